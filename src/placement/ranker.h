// SPDX-License-Identifier: Apache-2.0
// Keeps the scores of all nodes for each shape from one decision to the next, and scores only nodes
// that changed since the shape's last decision. For policies whose score depends only on the node
// and the shape. A policy may put nodes into groups and add a penalty for each group at decision
// time.
//
// Memory: six bytes for each node and shape, for at most kMaxShapes shapes (the least recently used
// shape is dropped). Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "src/placement/cluster.h"
#include "src/placement/policy.h"

namespace tessera::placement {

struct Rank {
  float score = kUnfit;
  uint16_t group = 0;  // a number that only the policy interprets
};

class Ranker {
 public:
  static constexpr size_t kMaxShapes = 256;

  explicit Ranker(const Cluster& cluster) : cluster_(cluster) {}

  // Updates the ranks of `shape`: `evaluate(NodeView, NodeId)` gives the Rank of a node.
  template <typename Evaluate>
  void Refresh(ShapeId shape, Evaluate&& evaluate) {
    ShapeScores& table = ScoresOf(shape);
    const bool incremental = table.valid && cluster_.ChangesSince(table.version, &changed_);
    if (table.scores.size() < cluster_.size()) Grow(table);
    if (incremental) {
      // A node that changed several times is scored only once, at its last change.
      for (size_t i = 0; i < changed_.size(); ++i) {
        const NodeId node = changed_[i];
        if (cluster_.node(node)->version == table.version + 1 + i) {
          EvaluateNode(table, node, evaluate);
        }
      }
    } else {
      for (NodeId node = 0; node < cluster_.size(); ++node) EvaluateNode(table, node, evaluate);
    }
    table.version = cluster_.version();
    table.valid = true;
  }

  // The node with the highest score, the lowest id among equals; kNoNode if the shape fits on no
  // node. REQUIRES: Refresh(shape) just before.
  NodeId Best() const;
  std::span<const float> scores() const { return current_->scores; }
  std::span<const uint16_t> groups() const { return current_->groups; }

  // Drops all scores. Call when the policy's parameters have changed.
  void Invalidate();

 private:
  struct ShapeScores {
    uint64_t serial = 0;   // of its shape
    uint64_t version = 0;  // of the cluster at the last Refresh
    uint64_t last_use = 0;
    bool valid = false;
    std::vector<float> scores;
    std::vector<uint16_t> groups;
  };

  ShapeScores& ScoresOf(ShapeId shape);
  void Grow(ShapeScores& table);
  template <typename Evaluate>
  void EvaluateNode(ShapeScores& table, NodeId id, Evaluate&& evaluate) {
    const Rank rank = evaluate(cluster_.node(id), id);
    table.scores[id] = rank.score;
    table.groups[id] = rank.group;
  }

  const Cluster& cluster_;
  std::vector<ShapeScores> tables_;
  // By ShapeId: 0 for none, else the index in tables_ plus 1.
  std::vector<uint32_t> table_number_by_shape_;
  ShapeScores* current_ = nullptr;
  uint64_t use_count_ = 0;
  std::vector<NodeId> changed_;
};

}  // namespace tessera::placement
