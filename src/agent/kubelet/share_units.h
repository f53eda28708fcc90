// SPDX-License-Identifier: Apache-2.0
// How the GPUs of a node are cut into device ids for the resources that share them:
//
//   aliyun.com/gpu-mem        one id for each GiB (or MiB) of a GPU
//   tencent.com/vcuda-core    100 ids for each GPU
//   tencent.com/vcuda-memory  one id for each 256 MiB of a GPU
//
// An id is a letter for the resource, three characters for the GPU, and a number: "m3kf2a". They
// are short because the kubelet's client stops at 4 MiB for all of them, unlike in all resources
// because kubelets up to 1.36 mix up equal ones, and the same after a restart. Which id a container
// has says nothing of which GPU it gets.
//
// In MiB, GPUs that together have more than some 30 GiB would make a list above kMaxListBytes. Such
// a node counts in GiB, and says so: a pod that means MiB then waits for another node, and none
// gets less or more than it means.
//
// Threads: immutable values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/units.h"
#include "src/device/dialects.h"
#include "src/device/gpu.h"

namespace tessera::agent {

// Of a ListAndWatch message.
inline constexpr size_t kMaxListBytes = 1 << 20;

// One resource on one node.
struct ShareUnits {
  struct PerGpu {
    std::string uuid;
    std::string prefix;  // of its ids
    int count = 0;
    bool healthy = false;
  };
  std::string resource;
  std::vector<PerGpu> gpus;

  static std::string IdOf(const PerGpu& gpu, int number);
  // Whether it is one of the ids.
  bool Has(std::string_view id) const;
  int64_t count() const;
};

class SharePlan {
 public:
  SharePlan() = default;
  // GPUs in MIG mode, and those whose memory is not known, are not shared.
  SharePlan(const device::NodeInventory& inventory, device::MemoryUnit gpu_mem_unit);

  // Null for a resource that is not one of the three.
  const ShareUnits* Find(std::string_view resource) const;
  const std::vector<ShareUnits>& resources() const { return resources_; }
  // Of aliyun.com/gpu-mem on this node.
  device::MemoryUnit gpu_mem_unit() const { return unit_; }
  // For people, where that is not the unit that was asked for; else empty.
  const std::string& note() const { return note_; }

 private:
  device::MemoryUnit unit_ = device::MemoryUnit::kGiB;
  std::string note_;
  std::vector<ShareUnits> resources_;
};

}  // namespace tessera::agent
