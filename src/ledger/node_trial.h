// SPDX-License-Identifier: Apache-2.0
// A copy of one node's GPUs, to evaluate hypothetical sets of pods without changing the cluster.
// CPU and memory of the node are ignored. Included only in src/ledger.
//
// Threads: a trial is a value, and each thread may use its own copy. Cost: a copy of the node's
// GPUs.
#pragma once

#include <optional>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::ledger {

// Whether pods hold more of the GPU than it has.
inline bool IsOverassigned(const placement::GpuState& gpu) {
  return gpu.free_milli < 0 || (gpu.total_bytes > 0 && gpu.free_bytes < 0);
}

class NodeTrial {
 public:
  // The node without pods.
  NodeTrial(const placement::Cluster& cluster, placement::NodeId node);

  // Takes the GPUs for a pod, even if they have no room.
  void Add(const placement::Demand& demand, const placement::Pick& pick);
  // Whether the picked GPUs have room for the demand, regardless of their health.
  bool HasRoom(const placement::Demand& demand, const placement::Pick& pick) const;
  bool Fits(const placement::Demand& demand) const;
  // The tightest GPUs for the demand; nullopt if it does not fit.
  std::optional<placement::Pick> PickFor(const placement::Demand& demand) const;

 private:
  placement::NodeView View() const { return {&state_, gpus_}; }

  placement::NodeState state_;
  std::vector<placement::GpuState> gpus_;
};

// The demand without CPU and memory.
placement::Demand GpusOnly(placement::Demand demand);

}  // namespace tessera::ledger
