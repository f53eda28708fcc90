// SPDX-License-Identifier: Apache-2.0
// Inside the room: the GPUs of one node as a value, to try what would be if some pods left and
// others came. The cluster that it was copied from does not change.
//
// CPU and memory of the host do not count here. Threads: a value. Cost: a copy of the node's GPUs.
#pragma once

#include <optional>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::ledger {

// More is taken of it than it has.
inline bool IsOverassigned(const placement::GpuState& gpu) {
  return gpu.free_milli < 0 || (gpu.total_bytes > 0 && gpu.free_bytes < 0);
}

class NodeTrial {
 public:
  // The node as if no pod were on it.
  NodeTrial(const placement::Cluster& cluster, placement::NodeId node);

  // Takes the GPUs for a pod, also where there is no room.
  void Add(const placement::Demand& demand, const placement::Pick& pick);
  // Whether these GPUs have room for it, whatever their health.
  bool HasRoom(const placement::Demand& demand, const placement::Pick& pick) const;
  bool Fits(const placement::Demand& demand) const;
  // GPUs for it, picked as tightly as possible; nothing where it does not fit.
  std::optional<placement::Pick> PickFor(const placement::Demand& demand) const;

 private:
  placement::NodeView View() const { return {&state_, gpus_}; }

  placement::NodeState state_;
  std::vector<placement::GpuState> gpus_;
};

// The part of a demand that NodeTrial looks at.
placement::Demand GpusOnly(placement::Demand demand);

}  // namespace tessera::ledger
