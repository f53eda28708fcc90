// SPDX-License-Identifier: Apache-2.0
// What policies have in common whose score of a node depends on nothing but node and shape: they
// write Score, this class keeps scores of nodes that did not change, and chooses.
//
// Threads: as Policy. Private to this room.
#pragma once

#include <optional>
#include <span>

#include "src/placement/policy.h"
#include "src/placement/ranker.h"

namespace tessera::placement {

class ScoredPolicy : public Policy {
 public:
  explicit ScoredPolicy(const Cluster& cluster) : cluster_(cluster), ranker_(cluster) {}

  std::optional<Decision> Choose(ShapeId shape) override;
  std::span<const float> Scores(ShapeId shape) override;
  std::optional<Pick> PickOn(ShapeId shape, NodeId node) override;

 protected:
  // The score of the node, and in `pick` the GPUs; kUnfit where the demand does not fit. Which of
  // several whole GPUs it names is changed to those that are well linked (PreferLinked) once the
  // node is chosen.
  virtual float Score(const NodeView& node, ShapeId shape, const Demand& demand, Pick* pick) = 0;

  const Cluster& cluster() const { return cluster_; }

 private:
  void Refresh(ShapeId shape);

  const Cluster& cluster_;
  Ranker ranker_;
};

}  // namespace tessera::placement
