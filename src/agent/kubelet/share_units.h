// SPDX-License-Identifier: Apache-2.0
// How the GPUs of a node are cut into device IDs for the resources that share them:
//
//   aliyun.com/gpu-mem        one ID for each GiB (or MiB) of a GPU
//   tencent.com/vcuda-core    100 IDs for each GPU
//   tencent.com/vcuda-memory  one ID for each 256 MiB of a GPU
//
// An ID is a letter for the resource, three characters for the GPU, and a number: "m3kf2a". IDs are
// short, because the kubelet's client stops at 4 MiB for a whole list. They differ between
// resources, because kubelets up to 1.36 mix up equal IDs, and stay the same after a restart. An ID
// does not say which GPU its container gets.
//
// If units are MiB, a node with more than about 30 GiB of device memory would make a list above
// kMaxListBytes. Such a node counts in GiB and publishes this unit. A pod that counts in MiB then
// waits for another node, so no pod gets less or more than it requests.
//
// Immutable after construction; any thread.
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

// The largest ListAndWatch message.
inline constexpr size_t kMaxListBytes = 1 << 20;

// One resource on one node.
struct ShareUnits {
  struct GpuUnits {
    std::string uuid;
    std::string prefix;  // of its IDs
    int count = 0;
    bool healthy = false;
  };
  std::string resource;
  device::Dialect dialect = device::Dialect::kNone;
  Bytes unit_memory;  // device memory of one unit; 0: a unit is kVcudaCore of compute
  std::vector<GpuUnits> gpus;

  static std::string IdOf(const GpuUnits& gpu, int number);
  // Whether the ID belongs to this resource.
  bool Has(std::string_view id) const;
  int64_t count() const;
};

class SharePlan {
 public:
  SharePlan() = default;
  // GPUs in MIG mode and GPUs of unknown memory are not shared.
  SharePlan(const device::NodeInventory& inventory, device::MemoryUnit gpu_mem_unit);

  // Null for a resource that does not share GPUs.
  const ShareUnits* Find(std::string_view resource) const;
  const std::vector<ShareUnits>& resources() const { return resources_; }
  // The unit of aliyun.com/gpu-mem on this node.
  device::MemoryUnit gpu_mem_unit() const { return unit_; }
  // A text for users if the unit differs from the configured unit; else empty.
  const std::string& note() const { return note_; }

 private:
  device::MemoryUnit unit_ = device::MemoryUnit::kGiB;
  std::string note_;
  std::vector<ShareUnits> resources_;
};

}  // namespace tessera::agent
