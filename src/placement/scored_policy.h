// SPDX-License-Identifier: Apache-2.0
// Base of policies whose score of a node depends only on the node and the shape. A derived class
// implements Score; this class caches scores of unchanged nodes and chooses the node.
//
// Threads: as Policy. Included only in src/placement.
#pragma once

#include <optional>
#include <span>

#include "src/placement/policy.h"
#include "src/placement/ranker.h"

namespace tessera::placement {

class ScoredPolicy : public Policy {
 public:
  explicit ScoredPolicy(const Cluster& cluster) : cluster_(cluster), ranker_(cluster) {}

  std::optional<Placement> Choose(ShapeId shape) override;
  std::span<const float> Scores(ShapeId shape) override;
  std::optional<Pick> PickOn(ShapeId shape, NodeId node) override;

 protected:
  // Returns the node's score and writes the GPUs to `pick`; kUnfit if the demand does not fit. Once
  // the node is chosen, PreferLinked replaces whole GPUs by better linked GPUs.
  virtual float Score(const NodeView& node, ShapeId shape, const Demand& demand, Pick* pick) = 0;

  const Cluster& cluster() const { return cluster_; }

 private:
  void Refresh(ShapeId shape);

  const Cluster& cluster_;
  Ranker ranker_;
};

}  // namespace tessera::placement
