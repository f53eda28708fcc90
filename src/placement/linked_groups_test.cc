// SPDX-License-Identifier: Apache-2.0
#include "src/placement/linked_groups.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "src/placement/cluster.h"
#include "src/placement/fit.h"
#include "src/placement/policy.h"
#include "src/placement/reference_choice.h"
#include "src/placement/sample_topologies.h"

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

Demand Whole(int count) { return {.asks = {{.count = count, .milli = kWholeGpu}}}; }

uint64_t Chosen(Cluster& cluster, const Demand& demand) {
  const auto policy = *MakePolicy("BestFit", cluster, {});
  const auto decision = policy->Choose(*cluster.Intern(demand));
  return decision ? decision->pick.all() : 0;
}

// The choice itself is judged in chooser_test.cc; here what only masks can ask.
TEST(LinkedGroupsTest, ScoresEqualThoseOfTheReference) {
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

TEST(LinkedGroupsTest, NodesThatAllDifferDoNotFillTheMemory) {
  LinkedGroupsCache cache;
  std::vector<std::shared_ptr<const LinkedGroups>> held;
  for (unsigned i = 0; i < 2 * LinkedGroupsCache::kMaxKinds; ++i) {
    held.push_back(cache.Get(testing::RandomLinks(8, i)));
    EXPECT_EQ(held.back()->exact(), i < LinkedGroupsCache::kMaxKinds);
  }
  EXPECT_EQ(cache.size(), LinkedGroupsCache::kMaxKinds);
  held.clear();
  EXPECT_TRUE(cache.Get(testing::NvSwitch(8))->exact()) << "kinds that no node has any more go";
  EXPECT_EQ(cache.size(), 1u);
}

TEST(LinkedGroupsTest, APodOfTwoGetsALinkedPairAndAPodOfOneBreaksNone) {
  Cluster cluster;
  const auto groups = GroupsOf(testing::NvLinkPairs(8));
  const NodeId node = *cluster.AddNode(Node("a", groups));
  const ShapeId one = *cluster.Intern(Whole(1));
  Pick pick;
  pick.masks[0] = 0b1;
  ASSERT_TRUE(cluster.Place(one, node, pick).ok());
  EXPECT_EQ(Chosen(cluster, Whole(1)), 0b10u) << "its pair is broken already";
  EXPECT_EQ(Chosen(cluster, Whole(2)), 0b1100u) << "not GPUs 1 and 2";
}

TEST(LinkedGroupsTest, OnlyIdleHealthyGpusOfTheRightModelAreCandidates) {
  Cluster cluster;
  NodeSpec spec = Node("a", GroupsOf(testing::NvLinkPairs(8)));
  spec.gpus[1].healthy = false;
  spec.gpus[3].model = "V100";
  const NodeId node = *cluster.AddNode(spec);
  Pick pick;
  pick.masks[0] = 1 << 5;
  const ShapeId share = *cluster.Intern({.asks = {{.milli = MilliGpu(10)}}});
  ASSERT_TRUE(cluster.Place(share, node, pick).ok());
  Demand demand = Whole(2);
  demand.models.set(cluster.FindModel("A100"));
  EXPECT_EQ(Chosen(cluster, demand), 0b11000000u);
  EXPECT_EQ(Chosen(cluster, Whole(6)), 0b11011101u);
}

TEST(LinkedGroupsTest, AsksOfOnePodDoNotTakeEachOthersGpus) {
  Cluster cluster;
  ASSERT_TRUE(cluster.AddNode(Node("a", GroupsOf(testing::NvLinkQuads(8)))).ok());
  Demand demand = Whole(2);
  demand.asks.push_back({.count = 1, .milli = MilliGpu(500)});
  demand.asks.push_back({.count = 4, .milli = kWholeGpu});
  const ShapeId shape = *cluster.Intern(demand);
  const auto policy = *MakePolicy("BestFit", cluster, {});
  const auto decision = policy->Choose(shape);
  ASSERT_TRUE(decision);
  EXPECT_TRUE(cluster.Place(shape, decision->node, decision->pick).ok());
}

TEST(LinkedGroupsTest, JoinedMeansThatEveryPairHasAnNvLink) {
  const LinkedGroups pairs(testing::NvLinkPairs(8)), quads(testing::NvLinkQuads(8)),
      pcie(testing::PcieOnly(8)), unknown(testing::UnknownLinks(8));
  EXPECT_TRUE(pairs.Joined(0b1100));
  EXPECT_FALSE(pairs.Joined(0b0110));
  EXPECT_FALSE(pairs.Joined(0b1111));
  EXPECT_TRUE(quads.Joined(0b1111));
  EXPECT_FALSE(quads.Joined(0b11111));
  EXPECT_FALSE(quads.Joined(uint64_t{0b11} << 8)) << "nobody knows those";
  EXPECT_FALSE(quads.Joined(0b1)) << "one is no group";
  EXPECT_FALSE(pcie.ChoosesJoined(0xff, 2));
  EXPECT_FALSE(unknown.ChoosesJoined(0xff, 2));
  EXPECT_TRUE(pairs.ChoosesJoined(0b110010, 2));
  EXPECT_FALSE(pairs.ChoosesJoined(0b101010, 2));
  EXPECT_TRUE(quads.ChoosesJoined(0b11111110, 4));
  EXPECT_FALSE(quads.ChoosesJoined(0b01111110, 4));
}

TEST(LinkedGroupsTest, SaysWithoutChoosingWhetherItWouldChooseJoinedOnes) {
  std::mt19937 random(8);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const LinkedGroups groups(seed % 2 ? testing::RandomLinks(8, seed) : testing::CubeMesh(8));
    for (int i = 0; i < 200; ++i) {
      const uint64_t available = random() & 0xff;
      const int size = static_cast<int>(random() % 9);
      EXPECT_EQ(groups.ChoosesJoined(available, size),
                groups.Joined(groups.Choose(available, 0, size)));
    }
  }
}

TEST(LinkedGroupsTest, LinkPointsTellTheNodeWithTheBestPair) {
  Cluster cluster;
  const NodeId plain = *cluster.AddNode(Node("plain", nullptr));
  const NodeId pcie = *cluster.AddNode(Node("pcie", GroupsOf(testing::PcieOnly(8))));
  const NodeId nvlink = *cluster.AddNode(Node("nvlink", GroupsOf(testing::NvLinkPairs(8))));
  EXPECT_EQ(LinkPoints(cluster.node(plain), Whole(2)), 0);
  EXPECT_EQ(LinkPoints(cluster.node(pcie), Whole(2)), 50);
  EXPECT_EQ(LinkPoints(cluster.node(nvlink), Whole(2)), 1250);
  EXPECT_EQ(LinkPoints(cluster.node(nvlink), Whole(1)), 0);
}

TEST(LinkedGroupsTest, AGpuThatIsGoneButHeldLeavesTheLinksOfTheOthers) {
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

TEST(LinkedGroupsTest, LinksOfMoreGpusThanTheNodeHasAreRefused) {
  Cluster cluster;
  EXPECT_EQ(cluster.AddNode(Node("a", GroupsOf(testing::NvSwitch(8)), 7)).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::placement
