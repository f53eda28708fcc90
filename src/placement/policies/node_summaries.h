// SPDX-License-Identifier: Apache-2.0
// What the default policy keeps of each node while it does not change: its state for the waste
// model, and the slots for large pods (forecast.h) that it has and soon will have.
//
// A slot that is there counts one. A slot for which k pods would have to leave counts
// Turnover::FreeOf(k), the expected fraction of the next pod lifetime for which it is free. So
// small pods keep away from nodes that are nearly empty, and those become empty.
//
// Threads: one. Private to this room.
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
  int64_t cpu = -1, memory = -1;  // free; negative where the node takes no pods
  // With so much left no class loses a slot.
  int64_t keep_cpu = 0, keep_memory = 0;
  int keep_idle = 0;
  int idle = 0;  // GPUs
  int gpus = 0;  // that can be idle
  int pods = 0;
  int64_t cpu_total = 0, memory_total = 0;
  uint32_t near = 0;    // classes by bit: for one more slot of them few enough pods must leave
  bool paired = false;  // each idle GPU has an NVLink to another
  Slots slots{};        // by class
  std::vector<std::pair<ModelId, int16_t>> counted;  // GPUs as the forecast knows them
};

class NodeSummaries {
 public:
  NodeSummaries(const Cluster& cluster, Forecast& forecast, const Turnover& turnover)
      : cluster_(cluster), forecast_(forecast), turnover_(turnover) {}

  // Takes in nodes that changed, and classes that are new. True where there is a new class.
  bool Sync();
  // Turnover::FreeOf has other values.
  void TurnoverChanged();

  const NodeSummary& operator[](NodeId id) const { return nodes_[id]; }

  // Whether a demand that takes `idle_taken` idle GPUs may take slots of some class, and how much
  // of each, beyond the slots that are its own.
  bool TakesSlots(const NodeSummary& node, int idle_taken, const Demand& demand) const;
  SlotParts SlotsTaken(const NodeSummary& node, int idle_taken, const Demand& demand,
                       const Slots& own) const;

 private:
  // What is left of a node, and how many pods have the rest.
  struct Room {
    int idle, pods;
    int64_t cpu, memory;
  };
  static Room RoomOf(const NodeSummary& node) {
    return {node.idle, node.pods, node.cpu, node.memory};
  }

  void CountClasses(uint32_t classes);
  void Describe(NodeId id);
  void Keep(NodeSummary& node) const;
  float FreeFraction(const NodeSummary& node, const LargeSize& size, const Room& room,
                     int slots) const;
  float SlotsSoon(const NodeSummary& node, const LargeSize& size, const Room& room,
                  int slots) const;

  const Cluster& cluster_;
  Forecast& forecast_;
  const Turnover& turnover_;
  std::vector<NodeSummary> nodes_;
  uint64_t version_ = 0;
  std::vector<NodeId> changed_;
};

}  // namespace tessera::placement
