// SPDX-License-Identifier: Apache-2.0
// Picks a random node on which the pod fits, and a random GPU with room for a share. It is the
// baseline for other policies. Draws a new random number at each arrival. All answers before the
// next arrival use the same number.
#include <bit>
#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "src/placement/fit.h"
#include "src/placement/policies/policies.h"
#include "src/placement/ranker.h"

namespace tessera::placement {
namespace {

class RandomPolicy : public Policy {
 public:
  RandomPolicy(const Cluster& cluster, uint64_t seed)
      : cluster_(cluster), ranker_(cluster), generator_(seed), draw_(generator_.Next()) {}
  std::string_view name() const override { return "Random"; }

  void OnArrival(ShapeId) override { draw_ = generator_.Next(); }

  std::span<const float> Scores(ShapeId shape) override {
    const Demand& demand = cluster_.demand(shape);
    ranker_.Refresh(shape, [&](const NodeView& node, NodeId) {
      return Rank{.score = Fits(node, demand) ? 0 : kUnfit};
    });
    scores_.assign(ranker_.scores().begin(), ranker_.scores().end());
    for (NodeId node = 0; node < scores_.size(); ++node) {
      if (scores_[node] != kUnfit) scores_[node] = static_cast<float>(NumberFor(node) >> 40);
    }
    return scores_;
  }

  std::optional<Placement> Choose(ShapeId shape) override {
    Placement best{.score = kUnfit};
    const std::span<const float> scores = Scores(shape);
    for (NodeId node = 0; node < scores.size(); ++node) {
      if (scores[node] <= best.score) continue;
      best.node = node;
      best.score = scores[node];
    }
    if (best.node == kNoNode) return std::nullopt;
    best.pick = *PickOn(shape, best.node);
    return best;
  }

  std::optional<Pick> PickOn(ShapeId shape, NodeId node) override {
    const NodeView view = cluster_.node(node);
    const Demand& demand = cluster_.demand(shape);
    Pick pick;
    if (!PickTightest(view, demand, &pick)) return std::nullopt;
    const bool share = demand.gpu_demands.size() == 1 && demand.gpu_demands[0].count == 1 &&
                       !demand.gpu_demands[0].whole();
    if (share)
      pick.masks[0] = AnyOf(GpusWithRoom(view, demand.gpu_demands[0], demand), NumberFor(node));
    PreferLinked(view, demand, &pick);
    return pick;
  }

 private:
  // A different number for each node and arrival.
  uint64_t NumberFor(NodeId node) const { return Random(draw_ + node).Next(); }

  static uint64_t AnyOf(uint64_t mask, uint64_t number) {
    uint64_t skip = number % static_cast<uint64_t>(std::popcount(mask));
    for (; skip > 0; --skip) mask &= mask - 1;
    return mask & -mask;
  }

  const Cluster& cluster_;
  Ranker ranker_;
  Random generator_;
  uint64_t draw_;
  std::vector<float> scores_;
};

}  // namespace

std::unique_ptr<Policy> MakeRandom(Cluster& cluster, const PolicyOptions& options) {
  return std::make_unique<RandomPolicy>(cluster, options.seed);
}

}  // namespace tessera::placement
