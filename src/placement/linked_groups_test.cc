// SPDX-License-Identifier: Apache-2.0
#include "src/placement/linked_groups.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "src/placement/chooser.h"
#include "src/placement/cluster.h"
#include "src/placement/fit.h"
#include "src/placement/partition_table.h"
#include "src/placement/policy.h"
#include "src/placement/testing/reference_choice.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

std::shared_ptr<const LinkedGroups> GroupsOf(const Topology& topology) {
  return std::make_shared<const LinkedGroups>(topology);
}

NodeSpec Node(std::string name, std::shared_ptr<const LinkedGroups> groups, int gpus = 8) {
  NodeSpec spec{.name = std::move(name), .cpu_milli = 96000, .memory = GiB(384)};
  for (int i = 0; i < gpus; ++i) {
    spec.gpus.push_back({.uuid = fmt::format("GPU-{}-{}", spec.name, i), .model = "A100"});
  }
  spec.groups = std::move(groups);
  return spec;
}

Demand Whole(int count) { return {.gpu_demands = {{.count = count, .milli = kWholeGpu}}}; }

uint64_t Chosen(Cluster& cluster, const Demand& demand) {
  const auto policy = *MakePolicy("BestFit", cluster, {});
  const auto decision = policy->Choose(*cluster.Intern(demand));
  return decision ? decision->pick.all() : 0;
}

// chooser_test.cc checks the choice itself; these tests cover what only masks can express.
TEST(LinkedGroupsTest, ScoresEqualTheScoresOfTheReference) {
  std::mt19937 random(3);
  for (const int count : {1, 2, 7, 10, 16}) {
    for (const Topology& topology :
         {testing::RandomLinks(count, 5), testing::UnknownLinks(count)}) {
      const LinkedGroups groups(topology);
      testing::ReferenceChoice reference(topology, testing::Search::kPlain);
      for (int i = 0; i < 50; ++i) {
        const uint32_t available = random() & ((1u << count) - 1);
        EXPECT_EQ(groups.ScoreOf(available), reference.Score(available));
        const int size = 1 + static_cast<int>(random() % count);
        int best = 0;
        for (uint32_t set = available; set != 0; set = (set - 1) & available) {
          if (std::popcount(set) == size) best = std::max(best, reference.Score(set));
        }
        EXPECT_EQ(groups.BestScore(available, size), best);
      }
    }
  }
}

TEST(LinkedGroupsTest, PositionsThatTheNodeDoesNotHaveAreNotAvailable) {
  const LinkedGroups groups(testing::NvLinkPairs(8));
  EXPECT_EQ(groups.Choose(~uint64_t{0}, 0, 8), 0xffu);
  EXPECT_EQ(groups.Choose(~uint64_t{0}, 0, 9), 0u);
  EXPECT_EQ(groups.Choose(~uint64_t{0}, 0x100, 2), 0u);
  EXPECT_EQ(groups.BestScore(uint64_t{0xff} << 8, 2), 0);
}

TEST(LinkedGroupsTest, SixtyFourGpusAreSearchedGreedily) {
  const LinkedGroups groups(testing::NvLinkQuads(64));
  EXPECT_FALSE(groups.exact());
  EXPECT_EQ(groups.Choose(~uint64_t{1}, 0, 4), 0xf0u);
  EXPECT_EQ(groups.Choose(~uint64_t{0}, 0, 64), ~uint64_t{0});
  EXPECT_EQ(groups.BestScore(~uint64_t{0}, 4), groups.ScoreOf(0xf));
}

TEST(LinkedGroupsTest, NodesWithEqualLinksShareOneObject) {
  LinkedGroupsCache cache;
  const auto first = cache.Get(testing::NvLinkPairs(8));
  EXPECT_EQ(cache.Get(testing::NvLinkPairs(8)), first);
  EXPECT_NE(cache.Get(testing::NvLinkQuads(8)), first);
  NodeLinks other = testing::NvLinkPairs(8);
  other.numa_nodes[3] = 7;
  EXPECT_NE(cache.Get(other), first);
  EXPECT_EQ(cache.size(), 3u);
}

TEST(LinkedGroupsTest, TheCacheOfDifferentTopologiesIsBounded) {
  LinkedGroupsCache cache;
  std::vector<std::shared_ptr<const LinkedGroups>> held;
  for (unsigned i = 0; i < 2 * LinkedGroupsCache::kMaxTopologies; ++i) {
    held.push_back(cache.Get(testing::RandomLinks(8, i)));
    EXPECT_EQ(held.back()->exact(), i < LinkedGroupsCache::kMaxTopologies);
  }
  EXPECT_EQ(cache.size(), LinkedGroupsCache::kMaxTopologies);
  held.clear();
  EXPECT_TRUE(cache.Get(testing::NvSwitch(8))->exact())
      << "topologies that no node has any more are dropped";
  EXPECT_EQ(cache.size(), 1u);
}

TEST(LinkedGroupsTest, APodOfTwoGetsALinkedPairAndASinglePodBreaksNone) {
  Cluster cluster;
  const auto groups = GroupsOf(testing::NvLinkPairs(8));
  const NodeId node = *cluster.AddNode(Node("a", groups));
  const ShapeId one = *cluster.Intern(Whole(1));
  Pick pick;
  pick.masks[0] = 0b1;
  ASSERT_TRUE(cluster.Place(one, node, pick).ok());
  EXPECT_EQ(Chosen(cluster, Whole(1)), 0b10u) << "GPU 0 is taken, so this pair is broken already";
  EXPECT_EQ(Chosen(cluster, Whole(2)), 0b1100u) << "GPUs 1 and 2 are not linked";
}

TEST(LinkedGroupsTest, OnlyIdleHealthyGpusOfTheRightModelAreCandidates) {
  Cluster cluster;
  NodeSpec spec = Node("a", GroupsOf(testing::NvLinkPairs(8)));
  spec.gpus[1].healthy = false;
  spec.gpus[3].model = "V100";
  const NodeId node = *cluster.AddNode(spec);
  Pick pick;
  pick.masks[0] = 1 << 5;
  const ShapeId share = *cluster.Intern({.gpu_demands = {{.milli = MilliGpu(10)}}});
  ASSERT_TRUE(cluster.Place(share, node, pick).ok());
  Demand demand = Whole(2);
  demand.models.set(cluster.FindModel("A100"));
  EXPECT_EQ(Chosen(cluster, demand), 0b11000000u);
  EXPECT_EQ(Chosen(cluster, Whole(6)), 0b11011101u);
}

TEST(LinkedGroupsTest, DemandsOfOnePodDoNotTakeEachOthersGpus) {
  Cluster cluster;
  ASSERT_TRUE(cluster.AddNode(Node("a", GroupsOf(testing::NvLinkQuads(8)))).ok());
  Demand demand = Whole(2);
  demand.gpu_demands.push_back({.count = 1, .milli = MilliGpu(500)});
  demand.gpu_demands.push_back({.count = 4, .milli = kWholeGpu});
  const ShapeId shape = *cluster.Intern(demand);
  const auto policy = *MakePolicy("BestFit", cluster, {});
  const auto decision = policy->Choose(shape);
  ASSERT_TRUE(decision);
  EXPECT_TRUE(cluster.Place(shape, decision->node, decision->pick).ok());
}

TEST(LinkedGroupsTest, AllPairsLinkedMeansThatEveryPairHasAnNvLink) {
  const LinkedGroups pairs(testing::NvLinkPairs(8)), quads(testing::NvLinkQuads(8)),
      pcie(testing::PcieOnly(8)), unknown(testing::UnknownLinks(8));
  EXPECT_TRUE(pairs.AllPairsLinked(0b1100));
  EXPECT_FALSE(pairs.AllPairsLinked(0b0110));
  EXPECT_FALSE(pairs.AllPairsLinked(0b1111));
  EXPECT_TRUE(quads.AllPairsLinked(0b1111));
  EXPECT_FALSE(quads.AllPairsLinked(0b11111));
  EXPECT_FALSE(quads.AllPairsLinked(uint64_t{0b11} << 8))
      << "positions that the node does not have";
  EXPECT_FALSE(quads.AllPairsLinked(0b1)) << "one GPU is not a group";
  EXPECT_FALSE(pcie.ChoosesAllPairsLinked(0xff, 2));
  EXPECT_FALSE(unknown.ChoosesAllPairsLinked(0xff, 2));
  EXPECT_TRUE(pairs.ChoosesAllPairsLinked(0b110010, 2));
  EXPECT_FALSE(pairs.ChoosesAllPairsLinked(0b101010, 2));
  EXPECT_TRUE(quads.ChoosesAllPairsLinked(0b11111110, 4));
  EXPECT_FALSE(quads.ChoosesAllPairsLinked(0b01111110, 4));
}

TEST(LinkedGroupsTest, ChoosesAllPairsLinkedPredictsChoose) {
  std::mt19937 random(8);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const LinkedGroups groups(seed % 2 ? testing::RandomLinks(8, seed) : testing::CubeMesh(8));
    for (int i = 0; i < 200; ++i) {
      const uint64_t available = random() & 0xff;
      const int size = static_cast<int>(random() % 9);
      EXPECT_EQ(groups.ChoosesAllPairsLinked(available, size),
                groups.AllPairsLinked(groups.Choose(available, 0, size)));
    }
  }
}

TEST(LinkedGroupsTest, BestLinkScoreComparesNodes) {
  Cluster cluster;
  const NodeId plain = *cluster.AddNode(Node("plain", nullptr));
  const NodeId pcie = *cluster.AddNode(Node("pcie", GroupsOf(testing::PcieOnly(8))));
  const NodeId nvlink = *cluster.AddNode(Node("nvlink", GroupsOf(testing::NvLinkPairs(8))));
  EXPECT_EQ(BestLinkScore(cluster.node(plain), Whole(2)), 0);
  EXPECT_EQ(BestLinkScore(cluster.node(pcie), Whole(2)), 50);
  EXPECT_EQ(BestLinkScore(cluster.node(nvlink), Whole(2)), 1250);
  EXPECT_EQ(BestLinkScore(cluster.node(nvlink), Whole(1)), 0);
}

TEST(LinkedGroupsTest, AHeldGpuThatIsGoneDoesNotShiftTheLinksOfTheOthers) {
  Cluster cluster;
  NodeSpec spec = Node("a", GroupsOf(testing::NvLinkPairs(8)));
  const NodeId node = *cluster.AddNode(spec);
  Pick pick;
  pick.masks[0] = 0b1;
  ASSERT_TRUE(cluster.Place(*cluster.Intern(Whole(1)), node, pick).ok());
  spec.gpus.erase(spec.gpus.begin());
  spec.groups = GroupsOf(testing::MakeTopology(7, 0, [](int a, int b) {
    return device::Link{.nvlinks = static_cast<uint8_t>(a == 1 && b == 4 ? 12 : 0)};
  }));
  ASSERT_TRUE(cluster.UpdateNode(node, spec).ok());
  ASSERT_EQ(cluster.node(node).gpus.size(), 8u);
  EXPECT_EQ(Chosen(cluster, Whole(2)), 0b10010u);
}

TEST(LinkedGroupsTest, LinksOfMoreGpusThanTheNodeHasAreRejected) {
  Cluster cluster;
  EXPECT_EQ(cluster.AddNode(Node("a", GroupsOf(testing::NvSwitch(8)), 7)).status().code(),
            Code::kInvalidArgument);
}

TEST(LinkedGroupsTest, SixteenGpusAreSearchedExactly) {
  EXPECT_TRUE(LinkedGroups(testing::NvLinkQuads(16)).exact());
  EXPECT_FALSE(LinkedGroups(testing::NvLinkQuads(17)).exact());
}

TEST(LinkedGroupsTest, ScoresWithoutTablesEqualThoseOfTables) {
  const LinkedGroups exact(testing::CubeMesh(8)), greedy(testing::CubeMesh(8), 0);
  ASSERT_FALSE(greedy.exact());
  for (uint64_t set = 0; set < 256; ++set) EXPECT_EQ(greedy.ScoreOf(set), exact.ScoreOf(set));
  EXPECT_GT(greedy.ScoreOf(0b11), 0);
}

TEST(LinkedGroupsTest, ChoosesNothingForImpossibleSizes) {
  for (const size_t max_exact : {size_t{0}, kMaxExactGpus}) {
    const LinkedGroups groups(testing::NvLinkPairs(8), max_exact);
    for (const int size : {-1, 0, 9, 20}) {
      EXPECT_EQ(groups.Choose(0xff, 0, size), 0u) << size;
      EXPECT_EQ(groups.BestScore(0xff, size), 0) << size;
    }
  }
}

// GPUs 1 and 2 are linked, as are 0 and 3: the chosen and the remaining GPUs are equally good.
TEST(LinkedGroupsTest, ChoosesTheLowestPositionsAmongEqualSets) {
  const LinkedGroups groups(testing::MakeTopology(4, 0, [](int a, int b) {
    return device::Link{.nvlinks = static_cast<uint8_t>(a + b == 3 ? 4 : 0)};
  }));
  EXPECT_EQ(groups.Choose(0b1111, 0, 2), 0b1001u);
}

TEST(LinkedGroupsTest, EachGpuMustHaveAPartner) {
  const LinkedGroups pairs(testing::NvLinkPairs(8));
  EXPECT_TRUE(pairs.EachHasPartner(0b1111));
  EXPECT_FALSE(pairs.EachHasPartner(0b0111));
  EXPECT_FALSE(pairs.EachHasPartner(0)) << "the set is empty";
  EXPECT_FALSE(pairs.EachHasPartner(0b11 | 0b11 << 8)) << "their links are unknown";
}

TEST(LinkedGroupsTest, DemandsForOneGpuNeedNoLinks) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(Node("a", GroupsOf(testing::NvLinkPairs(8))));
  Demand demand = Whole(1);
  demand.gpu_demands.push_back(Whole(2).gpu_demands[0]);
  EXPECT_TRUE(GetsAllPairsLinked(cluster.node(node), demand));
  demand.gpu_demands.push_back(Whole(3).gpu_demands[0]);
  EXPECT_FALSE(GetsAllPairsLinked(cluster.node(node), demand)) << "only pairs are linked";
  demand.gpu_demands.resize(1);
  EXPECT_FALSE(GetsAllPairsLinked(cluster.node(node), demand));
}

TEST(LinkedGroupsTest, SharesStayWhereThePolicyPutThem) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(Node("a", GroupsOf(testing::NvLinkPairs(8))));
  Pick pick{{0b1000}};
  PreferLinked(cluster.node(node), {.gpu_demands = {{.milli = MilliGpu(500)}}}, &pick);
  EXPECT_EQ(pick.masks[0], 0b1000u);
}

TEST(PartitionTableLimitsTest, LinksWithTheHighestScoreAreAllowed) {
  const PartitionTable table(2, [](int, int) { return device::kMaxLinkScore; });
  EXPECT_EQ(table.ScoreOf(0b11), device::kMaxLinkScore / device::kLinkScoreUnit);
}

TEST(LinkedGroupsDeathTest, LinksThatDoNotMatchTheGpusAreABug) {
  NodeLinks links = testing::NvLinkPairs(8);
  links.numa_nodes.pop_back();
  EXPECT_DEATH(LinkedGroups{links}, "links_.links.size");
  Topology topology = testing::NvLinkPairs(8);
  topology.numa_nodes.pop_back();
  EXPECT_DEATH(Chooser{topology}, "topology_.numa_nodes.size");
  const auto fill = [](int count, int points) {
    const PartitionTable table(count, [=](int, int) { return points; });
  };
  EXPECT_DEATH(fill(17, 0), "count <= kMaxCount");
  EXPECT_DEATH(fill(2, -10), "points >= 0");
  EXPECT_DEATH(fill(2, device::kMaxLinkScore + 10), "points >= 0");
}

}  // namespace
}  // namespace tessera::placement
