// SPDX-License-Identifier: Apache-2.0
// The oversubscription check of one node. It covers all dialects: the families of resource names by
// which pods request GPUs, such as nvidia.com/* and aliyun.com/gpu-mem (device/dialects.h). For
// every GPU the sum of the shares of all pods is at most its capacity, and a whole GPU excludes
// shares. For containers of one pod that run one after the other, the sum includes the most that
// they hold at one time, as in Kubernetes.
//
// grant_ledger.h records grants, local_choice.h chooses GPUs. Threads: accounts are values, and
// each thread may use its own copy. Cost: a pass over the holds of one GPU.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/uid.h"
#include "src/base/units.h"
#include "src/device/assignment.h"
#include "src/device/gpu.h"
#include "src/device/request.h"

namespace tessera::agent {

// What one container holds of one GPU.
struct Hold {
  Uid pod_uid;
  device::Phase phase = device::Phase::kMain;
  device::Dialect dialect = device::Dialect::kNvidiaGpu;
  MilliGpu compute;  // 1000: all of the GPU, whatever `memory` is
  Bytes memory;

  bool whole() const { return compute == kWholeGpu; }
  bool operator==(const Hold&) const = default;
};

// The part of one GPU that is held.
struct GpuUse {
  MilliGpu compute;
  Bytes memory;
  bool whole = false;

  bool idle() const { return !whole && compute == MilliGpu(0) && memory == Bytes(0); }
};

class GpuAccounts {
 public:
  void Add(const std::string& uuid, Hold hold) { holds_[uuid].push_back(std::move(hold)); }

  // The use by all pods except the pod with UID `excluded_pod`.
  GpuUse UseOf(std::string_view uuid, const Uid& excluded_pod = Uid()) const;
  // The use by containers of one dialect.
  GpuUse UseOfDialect(std::string_view uuid, device::Dialect dialect) const;
  // Whether `hold` fits beside the holds of other pods, and beside those holds of its own pod that
  // exist at the same time. For a whole GPU the holds of its own pod are ignored, because the
  // phases of its containers are unknown if only the kubelet's IDs are known.
  bool HasRoom(const device::Gpu& gpu, const Hold& hold) const;
  // Whether a container of the same pod that runs at the same time holds the GPU, and one of the
  // two holds it whole.
  bool OverlapsWithinPod(std::string_view uuid, const Hold& hold) const;
  bool operator==(const GpuAccounts&) const = default;

 private:
  template <typename Include>
  GpuUse Sum(std::string_view uuid, const Include& include) const;

  std::map<std::string, std::vector<Hold>, std::less<>> holds_;
};

}  // namespace tessera::agent
