// SPDX-License-Identifier: Apache-2.0
#include "src/placement/cluster.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "src/placement/fit.h"
#include "src/placement/policy.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::GpusOf;
using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;

TEST(ClusterTest, AWholeGpuExcludesShares) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 2));
  const ShapeId whole = *cluster.Intern(MakeDemand(1, 1000));
  const ShapeId share = *cluster.Intern(MakeDemand(1, 0, GiB(8)));
  ASSERT_TRUE(cluster.Place(whole, node, PickOf(1)).ok());
  EXPECT_EQ(cluster.Place(share, node, PickOf(1)).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(cluster.Place(share, node, PickOf(2)).ok());
  EXPECT_EQ(cluster.Place(whole, node, PickOf(2)).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(cluster.node(node).gpus[1].slack, 900);  // memory is the scarcer resource
}

TEST(ClusterTest, PlaceThenRemoveRestoresTheStateExactly) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 4));
  const ShapeId base = *cluster.Intern(MakeDemand(1, 333, Bytes(12345678)));
  ASSERT_TRUE(cluster.Place(base, node, PickOf(4)).ok());
  const auto before = GpusOf(cluster, node);
  const int64_t free = cluster.free_milli();
  for (const Demand& demand : {MakeDemand(1, 1, Bytes(1)), MakeDemand(2, 1000), MakeDemand(0, 0),
                               MakeDemand(3, 10, GiB(3))}) {
    const ShapeId shape = *cluster.Intern(demand);
    Pick pick;
    ASSERT_TRUE(PickTightest(cluster.node(node), demand, &pick));
    const PodId pod = *cluster.Place(shape, node, pick);
    ASSERT_TRUE(cluster.Remove(pod).ok());
    EXPECT_EQ(GpusOf(cluster, node), before);
    EXPECT_EQ(cluster.free_milli(), free);
    EXPECT_EQ(cluster.Remove(pod).code(), Code::kNotFound);
  }
}

TEST(ClusterTest, AnAdoptedPodMayOversubscribeAndBlocksPlacementUntilItLeaves) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 1));
  const ShapeId big = *cluster.Intern(MakeDemand(1, 700, GiB(70)));
  const PodId first = *cluster.Adopt(big, node, PickOf(1));
  const PodId second = *cluster.Adopt(big, node, PickOf(1));
  EXPECT_EQ(cluster.node(node).gpus[0].slack, 0);
  EXPECT_LT(cluster.node(node).gpus[0].free_bytes, 0);
  EXPECT_FALSE(Fits(cluster.node(node), MakeDemand(1, 0, Bytes(1))));
  EXPECT_FALSE(Fits(cluster.node(node), MakeDemand(1, 1)));
  ASSERT_TRUE(cluster.Remove(first).ok());
  EXPECT_TRUE(Fits(cluster.node(node), MakeDemand(1, 300, GiB(10))));
  ASSERT_TRUE(cluster.Remove(second).ok());
  EXPECT_EQ(cluster.free_milli(), 1000);
}

TEST(ClusterTest, AGpuIsHeldWholeUntilTheLastAdoptedPodThatHoldsItWholeHasLeft) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 1));
  const ShapeId whole = *cluster.Intern(MakeDemand(1, 1000));
  const ShapeId share = *cluster.Intern(MakeDemand(1, 10));
  const PodId first = *cluster.Adopt(whole, node, PickOf(1));
  const PodId second = *cluster.Adopt(whole, node, PickOf(1));
  ASSERT_TRUE(cluster.Adopt(share, node, PickOf(1)).ok());
  ASSERT_TRUE(cluster.Remove(first).ok());
  EXPECT_TRUE(cluster.node(node).gpus[0].held_whole);
  ASSERT_TRUE(cluster.Remove(second).ok());
  EXPECT_FALSE(cluster.node(node).gpus[0].held_whole) << "a share remains";
}

TEST(ClusterTest, AGpuWithFarTooMuchAdoptedMemoryHasNoSlack) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 1));
  const ShapeId huge = *cluster.Intern(MakeDemand(1, 10, kMaxRequestedMemory));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(cluster.Adopt(huge, node, PickOf(1)).ok());
    EXPECT_EQ(cluster.node(node).gpus[0].slack, 0) << i;
  }
}

TEST(ClusterTest, PodsStayOnTheirGpuWhenANodeIsUpdated) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 3);
  const NodeId node = *cluster.AddNode(spec);
  const ShapeId half = *cluster.Intern(MakeDemand(1, 500));
  const PodId pod = *cluster.Place(half, node, PickOf(4));  // GPU-a-2
  std::swap(spec.gpus[0], spec.gpus[2]);
  spec.gpus.erase(spec.gpus.begin() + 1);
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  EXPECT_EQ(cluster.Find(pod)->pick, PickOf(1));
  EXPECT_EQ(cluster.node(node).gpus[0].free_milli, 500);
  EXPECT_EQ(cluster.node(node).gpus[1].free_milli, 1000);
  // The held GPU disappears: it stays listed while it is held, and no other pod fits on it.
  spec.gpus.erase(spec.gpus.begin());
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  ASSERT_EQ(cluster.node(node).gpus.size(), 2u);
  EXPECT_FALSE(cluster.node(node).gpus[1].healthy);
  EXPECT_EQ(cluster.total_milli(), 1000);
  ASSERT_TRUE(cluster.Remove(pod).ok());
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  EXPECT_EQ(cluster.node(node).gpus.size(), 1u);
  EXPECT_EQ(cluster.free_milli(), 1000);
}

TEST(ClusterTest, AGpuKeepsItsNumberWhileANodeHasIt) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 3);
  const NodeId node = *cluster.AddNode(spec);
  const std::vector<GpuId> first = cluster.FindGpus("GPU-a-2");
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0], cluster.node(node).gpus[2].id);
  std::swap(spec.gpus[0], spec.gpus[2]);
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  EXPECT_EQ(cluster.FindGpus("GPU-a-2"), first);
  EXPECT_EQ(cluster.node(node).gpus[0].id, first[0]);
  // A pod holds the GPU, so it stays listed after it disappears from the node, until the pod
  // leaves.
  const PodId pod = *cluster.Place(*cluster.Intern(MakeDemand(1, 500)), node, PickOf(1));
  spec.gpus.erase(spec.gpus.begin());
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  EXPECT_EQ(cluster.FindGpus("GPU-a-2"), first);
  ASSERT_TRUE(cluster.Remove(pod).ok());
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  EXPECT_TRUE(cluster.FindGpus("GPU-a-2").empty());
  // It returns on another node with a new number, so a caller must look the number up again.
  const NodeId other = *cluster.AddNode(MakeNode("b", 1));
  NodeSpec moved = MakeNode("b", 1);
  moved.gpus[0].uuid = "GPU-a-2";
  ASSERT_TRUE(cluster.UpdateNode(other, moved).ok());
  EXPECT_NE(cluster.FindGpus("GPU-a-2"), first);
  ASSERT_TRUE(cluster.RemoveNode(node).ok());
  ASSERT_TRUE(cluster.RemoveNode(other).ok());
  EXPECT_TRUE(cluster.FindGpus("GPU-a-2").empty());
  EXPECT_TRUE(cluster.FindGpus("GPU-a-1").empty());
}

TEST(ClusterTest, PlaceRejectsAGpuThatThePodDoesNotAllow) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 2));
  Demand demand = MakeDemand(1, 500);
  demand.gpu_filter = cluster.FindGpus("GPU-a-1");
  const ShapeId only = *cluster.Intern(demand);
  EXPECT_EQ(cluster.Place(only, node, PickOf(1)).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(cluster.Place(only, node, PickOf(2)).ok());
  demand.gpu_filter_excludes = true;
  const ShapeId others = *cluster.Intern(demand);
  EXPECT_NE(others, only);
  EXPECT_EQ(cluster.Place(others, node, PickOf(2)).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(cluster.Place(others, node, PickOf(1)).ok());
}

TEST(ClusterTest, IdsOfRemovedNodesAreReused) {
  Cluster cluster;
  const ShapeId whole = *cluster.Intern(MakeDemand(1, 1000));
  for (int i = 0; i < 100; ++i) (void)*cluster.AddNode(MakeNode(fmt::format("n{}", i), 2));
  for (int i = 100; i < 5000; ++i) {
    ASSERT_TRUE(cluster.RemoveNode(cluster.FindNode(fmt::format("n{}", i - 100))).ok());
    const NodeId node = *cluster.AddNode(MakeNode(fmt::format("n{}", i), 1 + i % 4));
    ASSERT_TRUE(cluster.Place(whole, node, PickOf(1)).ok());
  }
  EXPECT_LE(cluster.size(), 100u);
  EXPECT_EQ(cluster.pod_count(), 100u);
  for (NodeId node = 0; node < cluster.size(); ++node) {
    const NodeView view = cluster.node(node);
    ASSERT_EQ(view.gpus.size(), cluster.spec(node).gpus.size());
    EXPECT_EQ(cluster.pods_of(node).size(), 1u);
    EXPECT_FALSE(view.gpus[0].idle());
    for (size_t i = 1; i < view.gpus.size(); ++i) EXPECT_TRUE(view.gpus[i].idle()) << i;
    EXPECT_EQ(cluster.FindGpus(cluster.spec(node).gpus[0].uuid).size(), 1u);
  }
}

TEST(ClusterTest, ChangesAreListedSinceARecentVersion) {
  Cluster cluster;
  for (int i = 0; i < 10; ++i) (void)*cluster.AddNode(MakeNode(fmt::format("n{}", i), 1));
  const uint64_t version = cluster.version();
  const ShapeId shape = *cluster.Intern(MakeDemand(1, 1000));
  const PodId pod = *cluster.Place(shape, 7, PickOf(1));
  ASSERT_TRUE(cluster.Remove(pod).ok());
  std::vector<NodeId> changed;
  ASSERT_TRUE(cluster.ChangesSince(version, &changed));
  EXPECT_EQ(changed, (std::vector<NodeId>{7, 7}));
  for (int i = 0; i < 5000; ++i)
    ASSERT_TRUE(cluster.Remove(*cluster.Place(shape, 3, PickOf(1))).ok());
  EXPECT_FALSE(cluster.ChangesSince(version, &changed));
}

TEST(ClusterTest, UnusedShapesAreReplacedAndUsedShapesStay) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(MakeNode("a", 1));
  const ShapeId held = *cluster.Intern(MakeDemand(1, 123));
  ASSERT_TRUE(cluster.Place(held, node, PickOf(1)).ok());
  for (int i = 0; i < 20000; ++i) (void)*cluster.Intern(MakeDemand(1, 5, Bytes(0), i));
  EXPECT_LE(cluster.shapes().size(), Shapes::kIdleShapes + 2);
  EXPECT_EQ(cluster.demand(held), MakeDemand(1, 123));
  EXPECT_EQ(*cluster.Intern(MakeDemand(1, 123)), held);
}

TEST(ClusterTest, InvalidNodesAndDemandsAreRejected) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 2);
  spec.gpus[1].uuid = spec.gpus[0].uuid;
  EXPECT_EQ(cluster.AddNode(spec).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cluster.AddNode(MakeNode("a", 65)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cluster.AddNode(MakeNode("a", 1, Bytes(-1))).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cluster.AddNode(MakeNode("a", 1, Bytes(INT64_MAX))).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(cluster.AddNode(MakeNode("", 1)).status().code(), Code::kInvalidArgument);
  ASSERT_TRUE(cluster.AddNode(MakeNode("a", 1)).ok());
  EXPECT_EQ(cluster.AddNode(MakeNode("a", 1)).status().code(), Code::kAlreadyExists);
  for (const Demand& demand :
       {MakeDemand(65, 1000), MakeDemand(1, 1001), MakeDemand(1, -1), MakeDemand(1, 1, Bytes(-1)),
        MakeDemand(1, 1, Bytes(0), -1), MakeDemand(INT32_MAX, 1)}) {
    EXPECT_EQ(cluster.Intern(demand).status().code(), Code::kInvalidArgument);
  }
  for (std::vector<GpuId> named : {std::vector<GpuId>{2, 1}, {1, 1}, {kNoGpu}, {}}) {
    Demand demand = MakeDemand(1, 1000);
    demand.gpu_filter_excludes = named.empty();
    demand.gpu_filter = std::move(named);
    EXPECT_EQ(cluster.Intern(demand).status().code(), Code::kInvalidArgument);
  }
  for (int i = 0; i < 300; ++i) {
    const auto added =
        cluster.AddNode(MakeNode(fmt::format("m{}", i), 1, GiB(1), fmt::format("M{}", i)));
    EXPECT_EQ(added.ok(), i < 254) << i;
  }
}

// Checks for overselling over random histories, and compares the ranker with a new policy.
TEST(ClusterTest, NothingIsOversoldAndCachedScoresEqualNewScores) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    Cluster cluster;
    std::vector<NodeSpec> specs;
    for (int i = 0; i < 12; ++i) {
      specs.push_back(MakeNode(fmt::format("n{}", i), static_cast<int>(random() % 9),
                               GiB(8 << random() % 4), random() % 2 ? "A" : "B"));
      (void)*cluster.AddNode(specs.back());
    }
    auto policy = *MakePolicy("BestFit", cluster, {});
    std::vector<PodId> pods;
    for (int step = 0; step < 600; ++step) {
      const int event = static_cast<int>(random() % 10);
      if (event == 0) {
        const NodeId node = random() % specs.size();
        if (!specs[node].gpus.empty())
          specs[node].gpus[random() % specs[node].gpus.size()].healthy ^= 1;
        ASSERT_TRUE(cluster.UpdateNode(node, specs[node]).ok());
      } else if (event < 4 && !pods.empty()) {
        std::swap(pods[random() % pods.size()], pods.back());
        ASSERT_TRUE(cluster.Remove(pods.back()).ok());
        pods.pop_back();
      } else {
        Demand demand = MakeDemand(static_cast<int>(random() % 3),
                                   random() % 3 ? 1000 : 10 * static_cast<int>(random() % 99),
                                   GiB(random() % 9), static_cast<int64_t>(random() % 30000));
        if (!demand.gpu_demands.empty() && random() % 4 == 0)
          demand.gpu_demands.push_back(demand.gpu_demands[0]);
        const ShapeId shape = *cluster.Intern(demand);
        const auto decision = policy->Choose(shape);
        auto fresh = *MakePolicy("BestFit", cluster, {});
        const auto again = fresh->Choose(shape);
        ASSERT_EQ(decision.has_value(), again.has_value());
        if (!decision) continue;
        ASSERT_EQ(decision->node, again->node);
        ASSERT_EQ(decision->pick, again->pick);
        pods.push_back(*cluster.Place(shape, decision->node, decision->pick));
      }
      for (NodeId id = 0; id < cluster.size(); ++id) {
        const NodeView node = cluster.node(id);
        ASSERT_GE(node->cpu_free, 0);
        ASSERT_GE(node->memory_free, 0);
        for (const GpuState& gpu : node.gpus) {
          ASSERT_GE(gpu.free_milli, 0);
          ASSERT_GE(gpu.free_bytes, 0);
          ASSERT_TRUE(!gpu.held_whole || gpu.pods == 1);
        }
      }
    }
  }
}

TEST(ClusterTest, OnlyHealthyGpusThatAreNotCutUpHaveSlack) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 3);
  spec.gpus[0].healthy = false;
  spec.gpus[1].mig_profile = "1g.10gb";
  const NodeId node = *cluster.AddNode(spec);
  EXPECT_EQ(cluster.node(node).gpus[0].slack, 0);
  EXPECT_EQ(cluster.node(node).gpus[1].slack, 0);
  EXPECT_EQ(cluster.node(node).gpus[2].slack, 1000);
}

TEST(ClusterTest, PodSizesAreNumbersOfGpus) {
  EXPECT_EQ(PodSizeOf(MakeDemand(0, 0)), PodSize::kNoGpu);
  EXPECT_EQ(PodSizeOf(MakeDemand(1, 500)), PodSize::kShare);
  EXPECT_EQ(PodSizeOf(MakeDemand(1, 1000)), PodSize::kOne);
  EXPECT_EQ(PodSizeOf(MakeDemand(2, 1000)), PodSize::kTwo);
  Demand two = MakeDemand(1, 500);
  two.gpu_demands.push_back(two.gpu_demands[0]);
  EXPECT_EQ(PodSizeOf(two), PodSize::kTwo);
}

TEST(ClusterTest, ValuesAtTheLimitsAreAllowed) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 64);
  spec.gpus[0].memory = Bytes(int64_t{1} << 43);
  const NodeId node = *cluster.AddNode(spec);
  EXPECT_TRUE(cluster.UpdateNode(node, spec).ok());
  EXPECT_TRUE(
      cluster.Place(*cluster.Intern(MakeDemand(64, 1000)), node, PickOf(~uint64_t{0})).ok());
  spec = MakeNode("b", 1);
  spec.gpus[0].memory = Bytes((int64_t{1} << 43) + 1);
  EXPECT_EQ(cluster.AddNode(spec).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(cluster.AddNode(MakeNode("c", 65)).status().code(), Code::kInvalidArgument);
}

TEST(ClusterTest, TheErrorForTooManyModelsCountsThem) {
  Cluster cluster;
  for (size_t i = 1; i < kMaxModels; ++i) ASSERT_TRUE(cluster.ModelOf(fmt::format("m{}", i)).ok());
  EXPECT_EQ(cluster.ModelOf("T4").status().message(),
            "GPU model \"T4\": the cluster already has 255 others");
}

TEST(ClusterTest, AnUnknownPodIsNotFound) {
  const Cluster cluster;
  EXPECT_EQ(cluster.Find(0), nullptr);
}

TEST(ClusterTest, GpusWithoutUuidAreKnownByPosition) {
  Cluster cluster;
  NodeSpec spec = MakeNode("a", 4);
  for (GpuSpec& gpu : spec.gpus) gpu.uuid.clear();
  const NodeId node = *cluster.AddNode(spec);
  const PodId pod = *cluster.Place(*cluster.Intern(MakeDemand(1, 1000)), node, PickOf(0b0100));
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  EXPECT_EQ(cluster.node(node).gpus.size(), 4u);
  EXPECT_EQ(cluster.Find(pod)->pick, PickOf(0b0100));
  EXPECT_TRUE(cluster.node(node).gpus[2].held_whole);
  spec.gpus.resize(2);
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  ASSERT_EQ(cluster.node(node).gpus.size(), 3u) << "the held GPU stays";
  EXPECT_EQ(cluster.Find(pod)->pick, PickOf(0b0100));
  EXPECT_FALSE(cluster.node(node).gpus[2].healthy);
}

TEST(ClusterTest, ChangesAreKnownFromTheFirstNodeOn) {
  Cluster cluster;
  for (int i = 0; i < 600; ++i) (void)*cluster.AddNode(MakeNode(fmt::format("a{}", i), 1));
  std::vector<NodeId> changed;
  ASSERT_TRUE(cluster.ChangesSince(0, &changed));
  ASSERT_EQ(changed.size(), 600u);
  for (NodeId i = 0; i < 600; ++i) ASSERT_EQ(changed[i], i);
}

TEST(ClusterTest, ChangesAreKnownWhileTheLogGrows) {
  Cluster cluster;
  for (int i = 0; i < 10; ++i) (void)*cluster.AddNode(MakeNode(fmt::format("a{}", i), 1));
  const ShapeId shape = *cluster.Intern(MakeDemand(1, 1));
  std::vector<NodeId> changed;
  for (int i = 0; i < 600; ++i) {  // two changes each
    const PodId pod = *cluster.Place(shape, static_cast<NodeId>(i % 10), PickOf(1));
    ASSERT_TRUE(cluster.Remove(pod).ok());
  }
  const uint64_t before = cluster.version();
  ASSERT_TRUE(cluster.ChangesSince(before - 900, &changed));
  EXPECT_EQ(changed.size(), 900u);
  for (int i = 0; i < 600; ++i) (void)*cluster.AddNode(MakeNode(fmt::format("b{}", i), 1));
  ASSERT_TRUE(cluster.ChangesSince(before - 2, &changed));
  ASSERT_EQ(changed.size(), 602u);
  EXPECT_EQ(changed[0], 9u);
  EXPECT_EQ(changed[1], 9u);
  for (NodeId i = 0; i < 600; ++i) ASSERT_EQ(changed[2 + i], 10 + i);
}

TEST(GpuMasksTest, ACopyHasMasksOfItsOwn) {
  static_assert(sizeof(Pick) <= 16, "the cluster has one for each pod");
  Pick pick;
  pick.masks[0] = 0b1;
  EXPECT_EQ(pick, Pick{.masks = 0b1});
  Pick other = pick;
  other.masks[3] = 0b100;
  EXPECT_NE(pick, other);
  EXPECT_EQ(pick.all(), 0b1u);
  EXPECT_EQ(other.all(), 0b101u);
  pick = other;
  other.masks[3] = 0;
  EXPECT_EQ(std::as_const(pick).masks[3], 0b100u);
  EXPECT_EQ(other, Pick{.masks = 0b1});
}

TEST(ClusterNamesTest, ASpecIsReturnedAsItWasAdded) {
  Cluster cluster;
  const NodeSpec spec{.name = "n",
                      .cpu_milli = 4000,
                      .memory = GiB(8),
                      .gpus = {{.uuid = "GPU-1", .model = "A100", .memory = GiB(80)},
                               {.uuid = "MIG-2",
                                .model = "A100",
                                .memory = GiB(10),
                                .mig_profile = "1g.10gb",
                                .healthy = false,
                                .parent_uuid = "GPU-3"}},
                      .pool = "train"};
  const NodeId node = cluster.AddNode(spec).value();
  EXPECT_EQ(cluster.spec(node).gpus, spec.gpus);
  EXPECT_EQ(cluster.spec(node).cpu_milli, spec.cpu_milli);
  EXPECT_EQ(cluster.spec(node).memory, spec.memory);
  EXPECT_EQ(cluster.name(node), "n");
  EXPECT_EQ(cluster.pool(node), "train");
  EXPECT_EQ(cluster.uuid(node, 1), "MIG-2");
  EXPECT_EQ(cluster.PositionOf(node, "MIG-2"), 1u);
  EXPECT_EQ(cluster.PositionOf(node, "GPU-3"), std::nullopt)
      << "the node has only the slices of the GPU";
  // Another node may list the same GPU, and each of the two may leave first.
  NodeSpec beside = spec;
  beside.name = "m";
  const NodeId other = cluster.AddNode(beside).value();
  ASSERT_TRUE(cluster.RemoveNode(node).ok());
  EXPECT_EQ(cluster.spec(other).gpus, spec.gpus);
  EXPECT_TRUE(cluster.spec(node).gpus.empty());
}

}  // namespace
}  // namespace tessera::placement
