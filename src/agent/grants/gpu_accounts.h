// SPDX-License-Identifier: Apache-2.0
// Who holds what of the GPUs of this node, over all dialects: what Conservation is judged by. For
// every GPU the shares of all pods together are at most what it has, and a whole GPU excludes
// shares. Containers of one pod that run one after the other hold what the most of them hold at one
// time, as Kubernetes counts.
//
// Not for remembering anything (grant_ledger.h) nor for choosing (local_choice.h).
// Threads: values. Cost: a pass over the holds of one GPU.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/units.h"
#include "src/device/assignment.h"
#include "src/device/gpu.h"
#include "src/device/request.h"

namespace tessera::agent {

// One container on one GPU.
struct Hold {
  std::string pod_uid;
  device::Phase phase = device::Phase::kMain;
  device::Dialect dialect = device::Dialect::kNvidiaGpu;
  MilliGpu compute;  // 1000: all of the GPU, whatever the memory says
  Bytes memory;

  bool whole() const { return compute == kWholeGpu; }
  bool operator==(const Hold&) const = default;
};

// What is held of one GPU.
struct GpuUse {
  MilliGpu compute;
  Bytes memory;
  bool whole = false;

  bool idle() const { return !whole && compute == MilliGpu(0) && memory == Bytes(0); }
};

class GpuAccounts {
 public:
  void Add(const std::string& uuid, Hold hold) { holds_[uuid].push_back(std::move(hold)); }

  // By all pods but `except`.
  GpuUse UseOf(std::string_view uuid, std::string_view except = {}) const;
  // By containers of one dialect.
  GpuUse UseOfDialect(std::string_view uuid, device::Dialect dialect) const;
  // Whether `hold` fits beside what others hold and what its own pod holds at that time. Of a whole
  // GPU it is not asked when its own pod's containers run: where only the kubelet's ids are known,
  // nobody could say.
  bool HasRoom(const device::Gpu& gpu, const Hold& hold) const;
  // Whether a container of its own pod that runs at the same time has the GPU, and one of the two
  // wants it whole.
  bool MeetsItsOwnPod(std::string_view uuid, const Hold& hold) const;
  bool operator==(const GpuAccounts&) const = default;

 private:
  template <typename Take>
  GpuUse Sum(std::string_view uuid, const Take& take) const;

  std::map<std::string, std::vector<Hold>, std::less<>> holds_;
};

// What a pod holds at most at one time, of holds on one GPU.
GpuUse MostAtOnce(const std::vector<const Hold*>& of_one_pod);

}  // namespace tessera::agent
