// SPDX-License-Identifier: Apache-2.0
// The policies of the FGD experiments on nodes small enough for manual computation.
#include <gtest/gtest.h>

#include <map>

#include "src/placement/policy.h"

namespace tessera::placement {
namespace {

class PublishedPoliciesTest : public ::testing::Test {
 protected:
  NodeId AddNode(int64_t cpu_milli, size_t gpus) {
    NodeSpec spec{.name = std::to_string(cluster_.size()), .cpu_milli = cpu_milli};
    spec.gpus.resize(gpus);
    return *cluster_.AddNode(std::move(spec));
  }

  ShapeId ShapeOf(int64_t cpu_milli, int gpus, int milli = 1000) {
    Demand demand{.cpu_milli = cpu_milli};
    if (gpus > 0) demand.gpu_demands = {{.count = gpus, .milli = MilliGpu(milli)}};
    return *cluster_.Intern(demand);
  }

  void Place(ShapeId shape, NodeId node, uint64_t gpus) {
    Pick pick;
    pick.masks[0] = gpus;
    ASSERT_TRUE(cluster_.Place(shape, node, pick).ok());
  }

  std::vector<float> ScoresOf(std::string_view policy, ShapeId shape) {
    const auto made = *MakePolicy(policy, cluster_, {});
    const auto scores = made->Scores(shape);
    return {scores.begin(), scores.end()};
  }

  Cluster cluster_;
};

TEST_F(PublishedPoliciesTest, BestFitScoresTheRemainingCpuAndGpu) {
  AddNode(128'000, 8);
  AddNode(64'000, 2);
  const auto scores = ScoresOf("BestFit", ShapeOf(32'000, 1));
  EXPECT_EQ(scores[0], 18);  // 100 · (1 − ½ · 96/128 − ½ · 7/8), cut to a whole number
  EXPECT_EQ(scores[1], 81);  // 100 · (1 − ½ · 32/128 − ½ · 1/8)
}

TEST_F(PublishedPoliciesTest, DotProdScoresLowIfTheDemandedResourcesAreFree) {
  AddNode(128'000, 8);
  AddNode(64'000, 2);
  const auto scores = ScoresOf("DotProd", ShapeOf(32'000, 2));
  EXPECT_EQ(scores[0], 75);  // 100 · (1 − (1 · ¼ + 1 · ¼) / 2)
  EXPECT_EQ(scores[1], 90);  // 100 · (1 − (½ · ¼ + ¼ · ¼) / 2)
}

TEST_F(PublishedPoliciesTest, GpuClusteringGathersPodsOfOneClass) {
  const NodeId alone = AddNode(1000, 8), mixed = AddNode(1000, 8), idle = AddNode(1000, 8);
  const NodeId others = AddNode(1000, 8), full = AddNode(1000, 1);
  const ShapeId one = ShapeOf(0, 1), two = ShapeOf(0, 2);
  Place(one, alone, 1);
  Place(one, mixed, 1);
  Place(two, mixed, 6);
  Place(two, others, 3);
  Place(one, full, 1);
  const auto scores = ScoresOf("GpuClustering", one);
  EXPECT_EQ(scores[alone], 75 + 3);  // 25 · 1/8
  EXPECT_EQ(scores[mixed], 50 + 9);  // 25 · 3/8
  EXPECT_EQ(scores[idle], 25);
  EXPECT_EQ(scores[others], 6);  // 25 · 2/8
  EXPECT_EQ(scores[full], kUnfit);
  EXPECT_EQ(ScoresOf("GpuClustering", ShapeOf(1, 0))[alone], 0);
}

TEST_F(PublishedPoliciesTest, GpuPackingPrefersUsedGpusThenUsedNodesThenSmallNodes) {
  const NodeId shared = AddNode(1000, 4), used = AddNode(1000, 4);
  const NodeId large = AddNode(1000, 8), small = AddNode(1000, 2);
  Place(ShapeOf(0, 1, 600), shared, 1);
  Place(ShapeOf(0, 1, 900), used, 1);
  const auto scores = ScoresOf("GpuPacking", ShapeOf(0, 1, 300));
  EXPECT_EQ(scores[shared], 96);  // 40 % of the GPU are left
  EXPECT_EQ(scores[used], 49);
  EXPECT_EQ(scores[large], 25);
  EXPECT_EQ(scores[small], 31);
}

TEST_F(PublishedPoliciesTest, RandomDrawsFromAllNodesAndGpusThatFit) {
  for (int n = 0; n < 4; ++n) AddNode(1000, 4);
  AddNode(0, 4);
  const ShapeId shape = ShapeOf(1, 1, 10);
  const auto policy = *MakePolicy("Random", cluster_, {.seed = 5});
  std::map<std::pair<NodeId, uint64_t>, int> drawn;
  for (int n = 0; n < 1600; ++n) {
    policy->OnArrival(shape);
    const auto decision = policy->Choose(shape);
    ASSERT_TRUE(decision.has_value());
    // The answer stays the same until the next arrival.
    EXPECT_EQ(policy->Choose(shape)->node, decision->node);
    EXPECT_EQ(policy->PickOn(shape, decision->node), decision->pick);
    ++drawn[{decision->node, decision->pick.masks[0]}];
  }
  EXPECT_EQ(drawn.size(), 16u);
  for (const auto& [place, times] : drawn) {
    EXPECT_NEAR(times, 100, 50);
    EXPECT_LT(place.first, 4u);
  }
}

}  // namespace
}  // namespace tessera::placement
