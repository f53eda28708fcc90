// SPDX-License-Identifier: Apache-2.0
// Whether a demand fits a node, and on which of its GPUs. The one place that knows the rules; what
// is best is up to the policies.
//
// Cost: a pass over the GPUs of one node; no allocation. Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::placement {

// Room for one GPU of `ask` beside what is on `gpu` now. What the demand names is not looked
// at.
inline bool HasRoom(const GpuState& gpu, const GpuAsk& ask) {
  if (!gpu.healthy || gpu.kind != ask.kind) return false;
  if (ask.whole()) return gpu.idle() && gpu.total_bytes >= ask.bytes.count();
  return !gpu.held_whole && gpu.free_milli >= ask.milli.count() &&
         gpu.free_bytes >= ask.bytes.count();
}

// Says of GPU after GPU whether one of `ask` fits; looks at what the demand names once. Refers to
// its arguments.
class GpuFit {
 public:
  GpuFit(const GpuAsk& ask, const Demand& demand)
      : ask_(ask), demand_(demand), allows_any_(demand.allows_any()) {}
  bool operator()(const GpuState& gpu) const {
    return HasRoom(gpu, ask_) &&
           (allows_any_ || (demand_.AllowsModel(gpu.model) && demand_.AllowsGpu(gpu.id)));
  }

 private:
  const GpuAsk& ask_;
  const Demand& demand_;
  const bool allows_any_;
};

inline bool Fits(const GpuState& gpu, const GpuAsk& ask, const Demand& demand) {
  return GpuFit(ask, demand)(gpu);
}

// Thousandths that `milli` and `bytes` take of a GPU with `device_memory` bytes: compute and device
// memory count alike, the scarcer decides. Above 1000 where they do not fit.
inline int MilliOn(int64_t device_memory, int milli, int64_t bytes) {
  if (bytes <= 0) return milli;
  if (bytes > device_memory) return 1001;
  return std::max(milli, static_cast<int>((bytes * 1000 + device_memory - 1) / device_memory));
}

// Thousandths of this GPU that one GPU of `ask` takes from its slack. REQUIRES: it fits.
inline int SlackOf(const GpuState& gpu, const GpuAsk& ask) {
  const int milli = static_cast<int>(ask.milli.count());
  return ask.whole() ? milli : MilliOn(gpu.total_bytes, milli, ask.bytes.count());
}

inline bool HostFits(const NodeState& node, const Demand& demand) {
  return node.present && node.schedulable && node.cpu_free >= demand.cpu_milli &&
         node.memory_free >= demand.memory.count();
}

// Whether the demand fits. For a demand with several asks that may share GPUs, the answer is that
// of PickTightest, which places the largest first: it can miss a packing that only a search would
// find.
bool Fits(const NodeView& node, const Demand& demand);

// Takes for each ask the GPUs with the least slack that have room, the lowest positions among
// equals; whole asks first. False, and `pick` is undefined, where it does not fit.
bool PickTightest(const NodeView& node, const Demand& demand, Pick* pick);

// Which GPUs of `node` have room for one of `ask` now: bit i for its i-th.
uint64_t RoomFor(const NodeView& node, const GpuAsk& ask, const Demand& demand);

// Where the links between the GPUs of the node are known, changes the GPUs of whole asks to those
// that are best linked and whose loss harms the rest least; asks for one GPU take the one that
// breaks the least. Every policy calls it for the place that it has decided on, so that whole GPUs
// are picked alike; not for each node that it looks at. REQUIRES: the pick fits.
void PreferLinked(const NodeView& node, const Demand& demand, Pick* pick);

// What PreferLinked could give: points (device::ScoreOf) of the best linked GPUs for the demand's
// largest whole ask of two or more; 0 where there is none, or no link is known. To compare nodes by
// when one demand shall get the best linked GPUs of the cluster. REQUIRES: the demand fits.
int LinkPoints(const NodeView& node, const Demand& demand);

// Whether PreferLinked gives each whole ask of two or more GPUs that all have NVLinks to each
// other. False where there is no such ask, or no link is known. REQUIRES: the demand fits.
bool GetsJoined(const NodeView& node, const Demand& demand);

// What remains of the GPUs of `node` after `pick`: `after` has one entry for each. For policies
// that compare a node before and after. REQUIRES: the pick fits; `after` has room for the node's
// GPUs.
void SlackAfter(const NodeView& node, const Demand& demand, const Pick& pick, int16_t* after);

// FAILED_PRECONDITION says what is missing for this very pick; INVALID_ARGUMENT that it is no pick
// for this demand.
Status CheckPick(const NodeView& node, const Demand& demand, const Pick& pick);
// Only the latter.
Status CheckPickShape(const NodeView& node, const Demand& demand, const Pick& pick);

}  // namespace tessera::placement
