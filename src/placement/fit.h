// SPDX-License-Identifier: Apache-2.0
// Decides whether a demand fits on a node, and on which of its GPUs. All rules of fitting are in
// this file; policies choose among the nodes and GPUs that fit.
//
// Cost: a pass over the GPUs of one node; no allocation. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::placement {

// Whether `gpu` has room now for one GPU of `gpu_demand`. Ignores the models and GPUs that the
// demand allows.
inline bool HasRoom(const GpuState& gpu, const GpuDemand& gpu_demand) {
  if (!gpu.healthy || gpu.kind != gpu_demand.kind) return false;
  if (gpu_demand.whole()) return gpu.idle() && gpu.total_bytes >= gpu_demand.bytes.count();
  return !gpu.held_whole && gpu.free_milli >= gpu_demand.milli.count() &&
         gpu.free_bytes >= gpu_demand.bytes.count();
}

// Predicate: whether one GPU of `gpu_demand` fits on a GPU. Its constructor checks whether the
// demand limits models or GPUs, so that calls need not. Keeps references to its arguments.
class GpuFit {
 public:
  GpuFit(const GpuDemand& gpu_demand, const Demand& demand)
      : gpu_demand_(gpu_demand), demand_(demand), allows_every_gpu_(demand.allows_every_gpu()) {}
  bool operator()(const GpuState& gpu) const {
    return HasRoom(gpu, gpu_demand_) &&
           (allows_every_gpu_ || (demand_.AllowsModel(gpu.model) && demand_.AllowsGpu(gpu.id)));
  }

 private:
  const GpuDemand& gpu_demand_;
  const Demand& demand_;
  const bool allows_every_gpu_;
};

inline bool Fits(const GpuState& gpu, const GpuDemand& gpu_demand, const Demand& demand) {
  return GpuFit(gpu_demand, demand)(gpu);
}

// Thousandths that a share of `milli` and `bytes` takes of a GPU with `device_memory` bytes: of its
// compute or of its memory, whichever is larger. More than 1000 if the memory does not suffice.
inline int MilliOn(int64_t device_memory, int milli, int64_t bytes) {
  if (bytes <= 0) return milli;
  if (bytes > device_memory) return 1001;
  return std::max(milli, static_cast<int>((bytes * 1000 + device_memory - 1) / device_memory));
}

// Thousandths of slack that one GPU of `gpu_demand` takes from `gpu`. REQUIRES: it fits.
inline int SlackTakenFrom(const GpuState& gpu, const GpuDemand& gpu_demand) {
  const int milli = static_cast<int>(gpu_demand.milli.count());
  return gpu_demand.whole() ? milli : MilliOn(gpu.total_bytes, milli, gpu_demand.bytes.count());
}

inline bool HostFits(const NodeState& node, const Demand& demand) {
  return node.present && node.schedulable && node.cpu_free >= demand.cpu_milli &&
         node.memory_free >= demand.memory.count();
}

// Whether the demand fits. If several GPU demands may share GPUs, the result is that of
// PickTightest, which places the largest demand first. An exhaustive search might find a pick where
// PickTightest finds none.
bool Fits(const NodeView& node, const Demand& demand);

// Picks for each GPU demand the GPUs with room that have the least slack, largest demands first.
// Among GPUs with equal slack the lowest positions come first. Returns false, with `pick`
// undefined, if the demand does not fit.
bool PickTightest(const NodeView& node, const Demand& demand, Pick* pick);

// GPUs of `node` that have room for one GPU of `gpu_demand` now, bit i for GPU i.
uint64_t GpusWithRoom(const NodeView& node, const GpuDemand& gpu_demand, const Demand& demand);

// If the links between the node's GPUs are known, replaces picked whole GPUs by those that
// LinkedGroups::Choose prefers: well linked GPUs that leave well linked GPUs. A demand for one GPU
// takes the GPU that breaks the fewest links. Every policy calls this once, for its chosen node, so
// that all policies pick whole GPUs in the same way. REQUIRES: the pick fits.
void PreferLinked(const NodeView& node, const Demand& demand, Pick* pick);

// The link score (device::ScoreOf) of the best linked GPUs that the largest demand for two or more
// whole GPUs could get; 0 without such a demand or without known links. Policies compare nodes by
// this value. REQUIRES: the demand fits.
int BestLinkScore(const NodeView& node, const Demand& demand);

// Whether PreferLinked gives each demand for two or more whole GPUs a set in which all pairs have
// NVLinks. False without such a demand or without known links. REQUIRES: the demand fits.
bool GetsAllPairsLinked(const NodeView& node, const Demand& demand);

// Writes to `after` the slack that each GPU of `node` has left once `pick` is placed. REQUIRES: the
// pick fits; `after` has room for the node's GPUs.
void SlackAfter(const NodeView& node, const Demand& demand, const Pick& pick, int16_t* after);

// INVALID_ARGUMENT if the pick does not match the demand. FAILED_PRECONDITION names the resource of
// the node that is too small for the pick.
Status CheckPick(const NodeView& node, const Demand& demand, const Pick& pick);
// Checks only that the pick matches the demand.
Status CheckPickShape(const NodeView& node, const Demand& demand, const Pick& pick);

}  // namespace tessera::placement
