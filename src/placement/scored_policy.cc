// SPDX-License-Identifier: Apache-2.0
#include "src/placement/scored_policy.h"

#include "src/placement/fit.h"

namespace tessera::placement {

void ScoredPolicy::Refresh(ShapeId shape) {
  const Demand& demand = cluster_.demand(shape);
  Pick unused;
  ranker_.Refresh(shape, [&](const NodeView& node, NodeId) {
    return Rank{.score = Score(node, shape, demand, &unused)};
  });
}

std::optional<Placement> ScoredPolicy::Choose(ShapeId shape) {
  Refresh(shape);
  Placement decision;
  decision.node = ranker_.Best();
  if (decision.node == kNoNode) return std::nullopt;
  const NodeView view = cluster_.node(decision.node);
  decision.score = Score(view, shape, cluster_.demand(shape), &decision.pick);
  PreferLinked(view, cluster_.demand(shape), &decision.pick);
  return decision;
}

std::span<const float> ScoredPolicy::Scores(ShapeId shape) {
  Refresh(shape);
  return ranker_.scores();
}

std::optional<Pick> ScoredPolicy::PickOn(ShapeId shape, NodeId node) {
  Pick pick;
  const NodeView view = cluster_.node(node);
  if (Score(view, shape, cluster_.demand(shape), &pick) == kUnfit) return std::nullopt;
  PreferLinked(view, cluster_.demand(shape), &pick);
  return pick;
}

}  // namespace tessera::placement
