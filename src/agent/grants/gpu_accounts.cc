// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/gpu_accounts.h"

#include <algorithm>
#include <utility>

namespace tessera::agent {
namespace {

// The most that one pod holds of one GPU at one time. `holds`: all holds of the pod on the GPU.
GpuUse PeakUse(const std::vector<const Hold*>& holds) {
  GpuUse use;
  MilliGpu sidecars, mains, init;
  Bytes sidecars_memory, mains_memory, init_memory;
  for (const Hold* hold : holds) {
    use.whole |= hold->whole();
    switch (hold->phase) {
      case device::Phase::kInit:
        init = std::max(init, hold->compute);
        init_memory = std::max(init_memory, hold->memory);
        break;
      case device::Phase::kSidecar:
        sidecars += hold->compute;
        sidecars_memory += hold->memory;
        break;
      case device::Phase::kMain:
        mains += hold->compute;
        mains_memory += hold->memory;
        break;
    }
  }
  use.compute = sidecars + std::max(init, mains);
  use.memory = sidecars_memory + std::max(init_memory, mains_memory);
  return use;
}

// A sidecar runs beside all containers, an init container only beside sidecars.
bool RunTogether(device::Phase a, device::Phase b) {
  if (a == device::Phase::kSidecar || b == device::Phase::kSidecar) return true;
  return a != device::Phase::kInit && b != device::Phase::kInit;
}

}  // namespace

template <typename Include>
GpuUse GpuAccounts::Sum(std::string_view uuid, const Include& include) const {
  GpuUse sum;
  const auto found = holds_.find(uuid);
  if (found == holds_.end()) return sum;
  std::map<Uid, std::vector<const Hold*>> pods;
  for (const Hold& hold : found->second) {
    if (include(hold)) pods[hold.pod_uid].push_back(&hold);
  }
  for (const auto& [uid, holds] : pods) {
    const GpuUse use = PeakUse(holds);
    sum.compute += use.compute;
    sum.memory += use.memory;
    sum.whole |= use.whole;
  }
  return sum;
}

GpuUse GpuAccounts::UseOf(std::string_view uuid, const Uid& excluded_pod) const {
  return Sum(
      uuid, [&](const Hold& hold) { return excluded_pod.empty() || hold.pod_uid != excluded_pod; });
}

GpuUse GpuAccounts::UseOfDialect(std::string_view uuid, device::Dialect dialect) const {
  return Sum(uuid, [&](const Hold& hold) { return hold.dialect == dialect; });
}

bool GpuAccounts::HasRoom(const device::Gpu& gpu, const Hold& hold) const {
  const GpuUse others = UseOf(gpu.uuid, hold.pod_uid);
  if (hold.whole()) return others.idle();
  if (others.whole) return false;
  std::vector<const Hold*> own = {&hold};
  if (const auto found = holds_.find(gpu.uuid); found != holds_.end()) {
    for (const Hold& other : found->second) {
      // Within a pod a whole GPU passes from an init container to a main container.
      if (other.pod_uid == hold.pod_uid && !other.whole()) own.push_back(&other);
    }
  }
  const GpuUse pod = PeakUse(own);
  return others.compute + pod.compute <= kWholeGpu && others.memory + pod.memory <= gpu.memory;
}

bool GpuAccounts::OverlapsWithinPod(std::string_view uuid, const Hold& hold) const {
  const auto found = holds_.find(uuid);
  if (found == holds_.end()) return false;
  return std::ranges::any_of(found->second, [&](const Hold& other) {
    return other.pod_uid == hold.pod_uid && (other.whole() || hold.whole()) &&
           RunTogether(hold.phase, other.phase);
  });
}

}  // namespace tessera::agent
