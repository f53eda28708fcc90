// SPDX-License-Identifier: Apache-2.0
// Scores of all nodes for each shape, kept from one decision to the next: only nodes that changed
// since the shape was last asked for are scored again. For policies whose score depends on nothing
// but the node and the shape, up to an amount that is looked up at decision time (`group`).
//
// Memory: some 24 bytes for each node and shape, for at most kMaxShapes shapes (least recently used
// go). Threads: one.
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
  uint16_t group = 0;  // both for the policy's own use
  uint64_t state = 0;
};

class Ranker {
 public:
  static constexpr size_t kMaxShapes = 256;
  static constexpr size_t kTop = 96;

  explicit Ranker(const Cluster& cluster) : cluster_(cluster) {}

  // Brings the ranks of `shape` up to date: `evaluate(NodeView, NodeId)` gives the Rank of a node.
  template <typename Evaluate>
  void Refresh(ShapeId shape, Evaluate&& evaluate) {
    Table& table = TableOf(shape);
    const bool some = table.valid && cluster_.ChangesSince(table.version, &changed_);
    if (table.scores.size() < cluster_.size()) Grow(table);
    if (some) {
      // A node that changed several times is scored at the last of them.
      for (size_t i = 0; i < changed_.size(); ++i) {
        const NodeId node = changed_[i];
        if (cluster_.node(node)->version == table.version + 1 + i) {
          Evaluate1(table, node, evaluate);
        }
      }
    } else {
      DropTop(table);
      for (NodeId node = 0; node < cluster_.size(); ++node) Evaluate1(table, node, evaluate);
    }
    table.version = cluster_.version();
    table.valid = true;
  }

  // Nodes among which are all with a score of at least floor(), in no order; some have less. None
  // until the first Sift and after a Refresh of all nodes, when floor() is infinite: a policy that
  // does not ask for them does not pay for them.
  struct Top {
    NodeId node;
    Rank rank;
  };
  std::span<const Top> top() const { return current_->top; }
  float floor() const { return current_->floor; }  // lowest(): all that fit are among them
  // Chooses top() again: all with a score of at least `bar`, and the kTop next and their equals.
  void Sift(float bar);

  // The node with the highest score, the lowest id among equals; kNoNode where the shape fits
  // nowhere. REQUIRES: Refresh(shape) just before.
  NodeId Best() const;
  std::span<const float> scores() const { return current_->scores; }
  std::span<const uint16_t> groups() const { return current_->groups; }
  Rank rank(NodeId node) const {
    return {current_->scores[node], current_->groups[node], current_->states[node]};
  }

  // A number that the policy keeps beside the score of a node, until that is made again: NaN
  // before.
  float& note(NodeId node) { return current_->notes[node]; }

  // All scores are void: the policy has learnt something.
  void Invalidate();

 private:
  struct Table {
    uint64_t serial = 0;   // of the shape that it is for
    uint64_t version = 0;  // of the cluster that it is for
    uint64_t used = 0;
    bool valid = false;
    std::vector<float> scores;
    std::vector<uint16_t> groups;
    std::vector<uint64_t> states;
    std::vector<float> notes;
    float floor = std::numeric_limits<float>::infinity();
    std::vector<Top> top;
    std::vector<uint32_t> at_top;  // by node: where in `top`, and one more; 0 for nowhere
  };

  Table& TableOf(ShapeId shape);
  void Grow(Table& table);
  void DropTop(Table& table);
  template <typename Evaluate>
  void Evaluate1(Table& table, NodeId id, Evaluate&& evaluate) {
    const Rank rank = evaluate(cluster_.node(id), id);
    table.scores[id] = rank.score;
    table.groups[id] = rank.group;
    table.states[id] = rank.state;
    table.notes[id] = std::numeric_limits<float>::quiet_NaN();
    if (table.at_top[id] != 0) {
      table.top[table.at_top[id] - 1].rank = rank;
    } else if (rank.score >= table.floor && rank.score != kUnfit) {
      table.top.push_back({id, rank});
      table.at_top[id] = static_cast<uint32_t>(table.top.size());
    }
  }

  const Cluster& cluster_;
  std::vector<Table> tables_;      // by slot
  std::vector<uint32_t> slot_of_;  // by ShapeId; 0 for none, else slot + 1
  Table* current_ = nullptr;
  uint64_t clock_ = 0;
  std::vector<NodeId> changed_;
  std::vector<float> sifted_;
};

}  // namespace tessera::placement
