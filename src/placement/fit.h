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

// Predicate: whether one GPU of `gpu_demand` fits on a GPU. Computes only once whether the demand
// limits models or GPUs. Refers to its arguments.
class GpuFit {
 public:
  GpuFit(const GpuDemand& gpu_demand, const Demand& demand)
      : ask_(gpu_demand), demand_(demand), allows_any_(demand.allows_any()) {}
  bool operator()(const GpuState& gpu) const {
    return HasRoom(gpu, ask_) &&
           (allows_any_ || (demand_.AllowsModel(gpu.model) && demand_.AllowsGpu(gpu.id)));
  }

 private:
  const GpuDemand& ask_;
  const Demand& demand_;
  const bool allows_any_;
};

inline bool Fits(const GpuState& gpu, const GpuDemand& gpu_demand, const Demand& demand) {
  return GpuFit(gpu_demand, demand)(gpu);
}

// Thousandths that `milli` and `bytes` take of a GPU with `device_memory` bytes: the larger of the
// shares of compute and of device memory. Above 1000 where they do not fit.
inline int MilliOn(int64_t device_memory, int milli, int64_t bytes) {
  if (bytes <= 0) return milli;
  if (bytes > device_memory) return 1001;
  return std::max(milli, static_cast<int>((bytes * 1000 + device_memory - 1) / device_memory));
}

// Thousandths of slack that one GPU of `gpu_demand` takes from `gpu`. REQUIRES: it fits.
inline int SlackOf(const GpuState& gpu, const GpuDemand& gpu_demand) {
  const int milli = static_cast<int>(gpu_demand.milli.count());
  return gpu_demand.whole() ? milli : MilliOn(gpu.total_bytes, milli, gpu_demand.bytes.count());
}

inline bool HostFits(const NodeState& node, const Demand& demand) {
  return node.present && node.schedulable && node.cpu_free >= demand.cpu_milli &&
         node.memory_free >= demand.memory.count();
}

// Whether the demand fits. For several GPU demands that may share GPUs the result is that of
// PickTightest, which places the largest first and can miss a packing that only a search would
// find.
bool Fits(const NodeView& node, const Demand& demand);

// Picks for each GPU demand the GPUs with room that have the least slack, whole GPUs first; among
// equals the lowest positions. Returns false, with `pick` undefined, if the demand does not fit.
bool PickTightest(const NodeView& node, const Demand& demand, Pick* pick);

// GPUs of `node` that have room for one GPU of `gpu_demand` now, bit i for GPU i.
uint64_t RoomFor(const NodeView& node, const GpuDemand& gpu_demand, const Demand& demand);

// If the links between the node's GPUs are known, moves picks of whole GPUs to the best linked GPUs
// whose loss harms the remaining GPUs least; a demand for one GPU takes the GPU that breaks the
// fewest links. Every policy calls it once, for the node that it has chosen, so that all of them
// pick whole GPUs alike. REQUIRES: the pick fits.
void PreferLinked(const NodeView& node, const Demand& demand, Pick* pick);

// Points (device::ScoreOf) of the best linked GPUs that PreferLinked could give to the largest
// demand for two or more whole GPUs; 0 without such a demand or without known links. Used to
// compare nodes, so that a demand gets the best linked GPUs of the cluster. REQUIRES: the demand
// fits.
int LinkPoints(const NodeView& node, const Demand& demand);

// Whether PreferLinked gives each demand for two or more whole GPUs a set in which all pairs have
// NVLinks. False without such a demand or without known links. REQUIRES: the demand fits.
bool GetsJoined(const NodeView& node, const Demand& demand);

// Writes the slack of each GPU of `node` after `pick` to `after`, for policies that compare a node
// before and after. REQUIRES: the pick fits; `after` has room for the node's GPUs.
void SlackAfter(const NodeView& node, const Demand& demand, const Pick& pick, int16_t* after);

// FAILED_PRECONDITION names the resource that this pick lacks on the node; INVALID_ARGUMENT means
// that the pick does not match the demand.
Status CheckPick(const NodeView& node, const Demand& demand, const Pick& pick);
// Checks only that the pick matches the demand.
Status CheckPickShape(const NodeView& node, const Demand& demand, const Pick& pick);

}  // namespace tessera::placement
