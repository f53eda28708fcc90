// SPDX-License-Identifier: Apache-2.0
// Cached facts of each node for the default policy: its state for the waste model, and its present
// and future slots for large pods (forecast.h).
//
// A present slot counts one. A slot for which k pods would have to leave counts
// Turnover::FreeOf(k), the expected fraction of the next pod lifetime for which it is free. So
// small pods avoid nodes that are nearly empty, and these nodes become empty.
//
// Threads: one. Included only in src/placement.
#pragma once

#include <cstdint>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policies/forecast.h"
#include "src/placement/policies/turnover.h"
#include "src/placement/policies/waste_model.h"

namespace tessera::placement {

struct NodeSummary {
  NodeKey key;
  int64_t cpu_free = -1, memory_free = -1;  // negative where the node takes no pods
  // A placement after which at least these amounts are free takes no slot of any class.
  int64_t min_free_cpu = 0, min_free_memory = 0;
  int min_idle = 0;  // GPUs
  int idle = 0;      // GPUs
  int gpus = 0;      // GPUs that can be idle
  int pods = 0;
  int64_t cpu_total = 0, memory_total = 0;
  uint32_t near_classes = 0;      // bits of classes that gain a slot when a few pods leave
  bool idle_gpus_paired = false;  // whether each idle GPU has an NVLink to another idle GPU
  Slots slots{};                  // by class
  // (model, slack) of GPUs as added to the forecast.
  std::vector<std::pair<ModelId, int16_t>> counted_gpus;
};

class NodeSummaries {
 public:
  NodeSummaries(const Cluster& cluster, Forecast& forecast, const Turnover& turnover)
      : cluster_(cluster), forecast_(forecast), turnover_(turnover) {}

  // Updates changed nodes and counts new classes. Returns true if there is a new class.
  bool Sync();
  // Call when the values of Turnover::FreeOf have changed.
  void OnTurnoverChanged();

  const NodeSummary& operator[](NodeId id) const { return nodes_[id]; }

  // TakesSlots: whether a demand that takes `idle_taken` idle GPUs may take slots of some class.
  // SlotsTaken: how much of each class it takes, beyond the slots that are reserved for it (`own`).
  bool TakesSlots(const NodeSummary& node, int idle_taken, const Demand& demand) const;
  SlotParts SlotsTaken(const NodeSummary& node, int idle_taken, const Demand& demand,
                       const Slots& own) const;

 private:
  // Free resources of a node, and the number of pods that hold the rest.
  struct FreeResources {
    int idle, pods;
    int64_t cpu, memory;
  };
  static FreeResources FreeIn(const NodeSummary& node) {
    return {node.idle, node.pods, node.cpu_free, node.memory_free};
  }

  void CountClasses(uint32_t classes);
  void Summarize(NodeId id);
  void UpdateMinFree(NodeSummary& node) const;
  float FreeFraction(const NodeSummary& node, const LargeSize& size, const FreeResources& free,
                     int slots) const;
  float ExpectedSlots(const NodeSummary& node, const LargeSize& size, const FreeResources& free,
                      int slots) const;

  const Cluster& cluster_;
  Forecast& forecast_;
  const Turnover& turnover_;
  std::vector<NodeSummary> nodes_;
  uint64_t version_ = 0;
  std::vector<NodeId> changed_;
};

}  // namespace tessera::placement
