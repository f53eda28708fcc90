// SPDX-License-Identifier: Apache-2.0
// What the default policy keeps of each node while it does not change, side by side in memory: a
// shape that is asked for rarely looks at all of them.
//
// Threads: one. Private to this room.
#pragma once

#include <cstdint>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policies/forecast.h"
#include "src/placement/policies/plain_ask.h"
#include "src/placement/policies/turnover.h"
#include "src/placement/policies/waste_model.h"

namespace tessera::placement {

struct NodeSummary {
  NodeKey key;
  uint64_t state = 0;  // equal for nodes that are equal to every demand with one plain ask
  int64_t cpu = -1, memory = -1;  // free; negative when the node takes nobody
  // With so much left no class of large pods loses a place.
  int64_t keep_cpu = 0, keep_memory = 0;
  int keep_idle = 0;
  int idle = 0;  // GPUs
  int gpus = 0;  // that can be idle
  int pods = 0;
  int64_t cpu_total = 0, memory_total = 0;
  uint32_t near = 0;  // classes by bit: for one more place of them few enough pods must leave
  ModelId model = kNoModel;
  bool paired = false;  // each idle GPU has an NVLink to another
  bool plain = false;   // one model, no more GPUs than a key holds, and compute as scarce as memory
  uint32_t generation = 0;  // of the waste model that made what follows; 0 for none
  WasteSums sums;
  float closed = 0;   // W by the closed form
  float rolled = -1;  // W by roll-outs; negative until it is asked for
  Places places{};    // by class
};

class NodeSummaries {
 public:
  NodeSummaries(const Cluster& cluster, Forecast& forecast, const Turnover& turnover)
      : cluster_(cluster), forecast_(forecast), turnover_(turnover) {}

  // Looks at the nodes that changed. True when that made a class of large pods.
  bool Sync();
  // A class was added: counts its places. REQUIRES: Sync before.
  void CountNewClasses();
  // Pods leave sooner or later than before.
  void TurnoverChanged();

  // With the parts that the waste model makes, when there is one.
  NodeSummary& Of(NodeId id, const WasteModel* model, uint32_t generation);
  const NodeSummary& operator[](NodeId id) const { return nodes_[id]; }

  // What a demand that takes `idle_taken` idle GPUs takes from the places of each class. A place
  // that is not there yet, but will be when a few pods have left, is a part of one.
  bool TakesPlaces(const NodeSummary& node, int idle_taken, const Demand& demand) const;
  PlaceParts PlacesTaken(const NodeSummary& node, int idle_taken, const PlainAsk& ask) const;

 private:
  // What is left of a node, and how many pods have the rest.
  struct Room {
    int idle, pods;
    int64_t cpu, memory;
  };
  static Room RoomOf(const NodeSummary& node) {
    return {node.idle, node.pods, node.cpu, node.memory};
  }

  void Describe(NodeId id);
  void Keep(NodeSummary& node) const;
  float PartFree(const NodeSummary& node, const LargeSize& size, const Room& room,
                 int places) const;
  float PlacesSoon(const NodeSummary& node, const LargeSize& size, const Room& room,
                   int places) const;

  const Cluster& cluster_;
  Forecast& forecast_;
  const Turnover& turnover_;
  std::vector<NodeSummary> nodes_;
  std::vector<std::vector<std::pair<ModelId, int16_t>>> slack_;  // as it was told to the forecast
  size_t classes_ = 0;  // of the forecast that were counted
  uint64_t version_ = 0;
  std::vector<NodeId> changed_;
};

}  // namespace tessera::placement
