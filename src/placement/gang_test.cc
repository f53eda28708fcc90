// SPDX-License-Identifier: Apache-2.0
#include "src/placement/gang.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;
using testing::SnapshotOf;

class GangTest : public ::testing::Test {
 protected:
  void AddNodes(int count, int gpus, const std::string& pool = "") {
    for (int i = 0; i < count; ++i) {
      NodeSpec spec = MakeNode(fmt::format("n{}", cluster_.size()), gpus);
      spec.pool = pool;
      ASSERT_TRUE(cluster_.AddNode(spec).ok());
    }
  }
  GangMember Member(const Demand& demand, int count) { return {*cluster_.Intern(demand), count}; }
  GangResult Place(const Gang& gang) {
    return PlaceBy(*MakePolicy("BestFit", cluster_, {}).value(), gang);
  }
  // Places the gang, and checks that the cluster then holds all its pods or none of them.
  GangResult PlaceBy(Policy& policy, const Gang& gang) {
    const auto before = SnapshotOf(cluster_);
    const size_t count = cluster_.pod_count();
    const int64_t free = cluster_.free_milli();
    const GangResult result = PlaceGang(cluster_, policy, gang);
    if (!result.placed) {
      EXPECT_EQ(SnapshotOf(cluster_), before);
      EXPECT_EQ(cluster_.pod_count(), count);
      EXPECT_EQ(cluster_.free_milli(), free);
      EXPECT_THAT(result.pods, ::testing::IsEmpty());
      EXPECT_FALSE(result.reason.empty());
      return result;
    }
    std::vector<int> wanted, placed(gang.members.size());
    for (const GangMember& member : gang.members) wanted.push_back(member.count);
    for (const GangPod& pod : result.pods) {
      ++placed.at(pod.member);
      const PlacedPod* held = cluster_.Find(pod.pod);
      EXPECT_TRUE(held != nullptr && held->node == pod.placement.node &&
                  held->pick == pod.placement.pick);
    }
    EXPECT_EQ(placed, wanted) << "pods by member";
    EXPECT_EQ(cluster_.pod_count(), count + result.pods.size());
    return result;
  }
  std::multiset<NodeId> NodesOf(const GangResult& result) {
    std::multiset<NodeId> nodes;
    for (const GangPod& pod : result.pods) nodes.insert(pod.placement.node);
    return nodes;
  }

  Cluster cluster_;
};

TEST_F(GangTest, PlacesTheHardestMemberFirstAndListsPodsInTheOrderOfTheMembers) {
  AddNodes(1, 8);
  // Shares first would leave no two GPUs free beside the four.
  const GangResult result =
      Place({.members = {Member(MakeDemand(1, 600), 2), Member(MakeDemand(4, 1000), 1),
                         Member(MakeDemand(2, 1000), 1)}});
  ASSERT_TRUE(result.placed) << result.reason;
  ASSERT_EQ(result.pods.size(), 4u);
  EXPECT_EQ(result.pods[0].member, 0u);
  EXPECT_EQ(result.pods[3].member, 2u);
}

TEST_F(GangTest, ARejectedGangHoldsNothingAndTheReasonNamesTheMissingGpus) {
  AddNodes(2, 4);
  const GangResult result =
      Place({.members = {Member(MakeDemand(1, 100), 1), Member(MakeDemand(2, 1000), 5)}});
  EXPECT_FALSE(result.placed);
  EXPECT_EQ(result.failed_member, 1u);
  EXPECT_EQ(result.placed_count, 4);
  EXPECT_EQ(result.reason, "pod 5 of 6: 0/2 nodes have room: 2 insufficient free GPUs");
}

TEST_F(GangTest, OneNodeTakesTheWholeGangIfItHasRoom) {
  AddNodes(3, 4);
  AddNodes(1, 8);
  const Gang gang{
      .members = {Member(MakeDemand(2, 1000), 3)}, .layout = GangLayout::kOneNode, .strict = true};
  EXPECT_EQ(NodesOf(Place(gang)), (std::multiset<NodeId>{3, 3, 3}));
  const GangResult again = Place(gang);
  EXPECT_FALSE(again.placed);
  EXPECT_EQ(again.reason,
            "no node has room for all 3 pods in sum; pod 1 of 3: 4/4 nodes have room");
}

TEST_F(GangTest, OneNodeIsAPreferenceUnlessStrict) {
  AddNodes(4, 4);
  const GangResult result =
      Place({.members = {Member(MakeDemand(2, 1000), 4)}, .layout = GangLayout::kOneNode});
  ASSERT_TRUE(result.placed);
  const auto nodes = NodesOf(result);
  EXPECT_EQ(std::set<NodeId>(nodes.begin(), nodes.end()).size(), 2u)
      << "on as few nodes as possible";
}

TEST_F(GangTest, TheReasonNamesTheNodeThatPlacedTheMostPods) {
  AddNodes(2, 4);
  NodeSpec spec = cluster_.spec(1);
  spec.gpus[0].model = spec.gpus[1].model = "B";
  ASSERT_TRUE(cluster_.UpdateNode(1, spec).ok());
  Demand demand = MakeDemand(1, 1000);
  demand.models.set(cluster_.FindModel("B"));
  const GangResult result =
      Place({.members = {Member(demand, 3)}, .layout = GangLayout::kOneNode, .strict = true});
  EXPECT_FALSE(result.placed);
  EXPECT_EQ(result.reason,
            "no node has room for all 3 pods; 2 placed the most: pod 3 of 3: n1: 1 GPU of model B "
            "wanted, 0 of 4 free: 2 of another model, 2 held whole");
}

TEST_F(GangTest, TriesTheNextPoolIfAPoolCannotHoldTheGang) {
  AddNodes(2, 2, "small");
  AddNodes(2, 4, "large");
  const Gang gang{
      .members = {Member(MakeDemand(2, 1000), 3)}, .layout = GangLayout::kOnePool, .strict = true};
  const GangResult result = Place(gang);
  ASSERT_TRUE(result.placed) << result.reason;
  for (const NodeId node : NodesOf(result)) EXPECT_EQ(cluster_.spec(node).pool, "large");
  EXPECT_FALSE(Place(gang).placed);
  Gang preference = gang;
  preference.strict = false;
  EXPECT_TRUE(Place(preference).placed) << "two pods fit in small, one in large";
}

TEST_F(GangTest, TheApartLayoutPutsEachPodOnItsOwnNode) {
  AddNodes(3, 8);
  Gang gang{
      .members = {Member(MakeDemand(1, 1000), 3)}, .layout = GangLayout::kApart, .strict = true};
  EXPECT_EQ(NodesOf(Place(gang)), (std::multiset<NodeId>{0, 1, 2}));
  gang.members[0].count = 4;
  EXPECT_FALSE(Place(gang).placed);
  gang.strict = false;
  EXPECT_TRUE(Place(gang).placed);
}

TEST_F(GangTest, ImpossibleGangsAreRejected) {
  AddNodes(1, 1);
  EXPECT_EQ(Place({}).reason, "invalid gang of 0 pods: want 1 to 16384");
  EXPECT_EQ(Place({.members = {Member(MakeDemand(0, 0), -1)}}).reason,
            "invalid gang member of -1 pods: want at least 1");
  EXPECT_EQ(Place({.members = {Member(MakeDemand(0, 0, Bytes(0), 0), INT32_MAX)}}).reason,
            "invalid gang of 2147483647 pods: want 1 to 16384");
}

TEST_F(GangTest, EachGangIsPlacedWhollyOrNotAtAllOverRandomHistories) {
  std::mt19937 random(9);
  for (const char* pool : {"x", "y", "z"}) AddNodes(4, 4 + static_cast<int>(random() % 5), pool);
  const auto policy = *MakePolicy("BestFit", cluster_, {});
  std::vector<PodId> pods;
  int placed = 0, rejected = 0;
  for (int step = 0; step < 1500; ++step) {
    if (random() % 3 == 0 && !pods.empty()) {
      std::swap(pods[random() % pods.size()], pods.back());
      ASSERT_TRUE(cluster_.Remove(pods.back()).ok());
      pods.pop_back();
      continue;
    }
    Gang gang{.layout = static_cast<GangLayout>(random() % 4), .strict = random() % 2 == 0};
    for (size_t i = 0; i < 1 + random() % 3; ++i) {
      const int milli = random() % 2 ? 1000 : 100 * static_cast<int>(random() % 10);
      gang.members.push_back(
          Member(MakeDemand(static_cast<int>(random() % 5), milli, GiB(random() % 20)),
                 1 + static_cast<int>(random() % 4)));
    }
    const GangResult result = PlaceBy(*policy, gang);
    ASSERT_FALSE(HasFailure()) << "step " << step;
    ++(result.placed ? placed : rejected);
    std::set<NodeId> nodes;
    std::set<std::string> pools;
    for (const GangPod& pod : result.pods) {
      pods.push_back(pod.pod);
      nodes.insert(pod.placement.node);
      pools.insert(cluster_.pool(pod.placement.node));
    }
    if (!result.placed || !gang.strict) continue;
    if (gang.layout == GangLayout::kOneNode) {
      ASSERT_EQ(nodes.size(), 1u);
    }
    if (gang.layout == GangLayout::kOnePool) {
      ASSERT_EQ(pools.size(), 1u);
    }
    if (gang.layout == GangLayout::kApart) {
      ASSERT_EQ(nodes.size(), result.pods.size());
    }
  }
  EXPECT_GT(placed, 100);
  EXPECT_GT(rejected, 100);
}

TEST_F(GangTest, ArrivesAsItsPodsOrAsOnePodWithAllGpus) {
  Gang gang{
      .members = {Member(MakeDemand(2, 1000, GiB(10), 4000), 3), Member(MakeDemand(0, 0), 1)}};
  const ShapeId gpus = gang.members[0].shape, none = gang.members[1].shape;
  EXPECT_THAT(ArrivalsOf(cluster_, gang), ::testing::ElementsAre(gpus, gpus, gpus, none));
  gang.layout = GangLayout::kOneNode;
  Demand all = MakeDemand(6, 1000, GiB(10), 13000);
  all.memory = GiB(4);
  EXPECT_THAT(ArrivalsOf(cluster_, gang), ::testing::ElementsAre(*cluster_.Intern(all)));
}

TEST_F(GangTest, ArrivesAsItsPodsIfNoPodCouldHoldItsSum) {
  Gang shares{.members = {Member(MakeDemand(1, 500), 2)}, .layout = GangLayout::kOneNode};
  EXPECT_EQ(ArrivalsOf(cluster_, shares).size(), 2u);
  Gang large{.members = {Member(MakeDemand(8, 1000), 100)}, .layout = GangLayout::kOneNode};
  EXPECT_EQ(ArrivalsOf(cluster_, large).size(), 100u);
}

TEST_F(GangTest, OrdersMembersByLargestDemandThenBySum) {
  AddNodes(1, 8);
  Demand three = MakeDemand(1, 1000);
  three.gpu_demands.resize(3, three.gpu_demands[0]);
  const GangResult result =
      Place({.members = {Member(three, 1), Member(MakeDemand(2, 1000), 1),
                         Member(MakeDemand(1, 1000), 1), Member(MakeDemand(1, 1000), 1)}});
  ASSERT_TRUE(result.placed) << result.reason;
  EXPECT_EQ(result.pods[1].pod, 0u) << "pods are numbered as they are placed";
  EXPECT_EQ(result.pods[0].pod, 1u);
  EXPECT_EQ(result.pods[2].pod, 2u);
  EXPECT_EQ(result.pods[3].pod, 3u);
}

TEST_F(GangTest, GangThatFillsANodeExactlyIsPlaced) {
  AddNodes(1, 8);
  Demand demand = MakeDemand(2, 1000, Bytes(0), 24000);
  demand.memory = GiB(96);
  const Gang gang{.members = {Member(demand, 4)}, .layout = GangLayout::kOneNode, .strict = true};
  EXPECT_TRUE(Place(gang).placed);
}

TEST_F(GangTest, ThePoolWithTheBestNodeIsTriedFirst) {
  AddNodes(1, 4, "a");
  AddNodes(1, 4, "b");
  AddNodes(1, 4, "c");
  ASSERT_TRUE(cluster_.Place(*cluster_.Intern(MakeDemand(2, 1000)), 1, PickOf(0b11)).ok());
  const auto policy = *MakePolicy("NodeBinpackGpuBinpack", cluster_, {});
  const GangResult result = PlaceBy(*policy, {.members = {Member(MakeDemand(1, 1000), 2)},
                                              .layout = GangLayout::kOnePool,
                                              .strict = true});
  ASSERT_TRUE(result.placed) << result.reason;
  EXPECT_EQ(NodesOf(result), (std::multiset<NodeId>{1, 1}));
}

TEST_F(GangTest, AGangStaysInOnePoolEvenIfThePolicyWouldSpreadIt) {
  AddNodes(2, 1, "a");
  AddNodes(2, 1, "b");
  AddNodes(3, 1, "c");
  const auto policy = *MakePolicy("NodeSpreadGpuSpread", cluster_, {});
  const GangResult result = PlaceBy(*policy, {.members = {Member(MakeDemand(1, 1000), 3)},
                                              .layout = GangLayout::kOnePool,
                                              .strict = true});
  ASSERT_TRUE(result.placed) << result.reason;
  EXPECT_EQ(NodesOf(result), (std::multiset<NodeId>{4, 5, 6}));
}

TEST_F(GangTest, OfAttemptsThatPlacedEquallyManyPodsTheFirstIsReported) {
  AddNodes(2, 2);
  for (NodeId node = 0; node < 2; ++node) {
    ASSERT_TRUE(cluster_.Place(*cluster_.Intern(MakeDemand(2, 500)), node, PickOf(0b11)).ok());
  }
  const GangResult result = Place(
      {.members = {Member(MakeDemand(1, 300), 3)}, .layout = GangLayout::kOneNode, .strict = true});
  ASSERT_FALSE(result.placed);
  EXPECT_EQ(result.placed_count, 2);
  EXPECT_NE(result.reason.find("pod 3 of 3: n0: "), std::string::npos) << result.reason;
}

TEST_F(GangTest, TheLargestGangIsPlacedOnAFullChunkOfNodes) {
  AddNodes(64, 1);
  Gang gang{.members = {Member(Demand{}, kMaxGangPods)}};
  EXPECT_TRUE(Place(gang).placed);
  for (const GangLayout layout : {GangLayout::kOneNode, GangLayout::kOnePool}) {
    gang = {.members = {Member(MakeDemand(1, 500), 2)}, .layout = layout, .strict = true};
    EXPECT_TRUE(Place(gang).placed);
  }
}

TEST_F(GangTest, AGangThatNamesAModelArrivesAsOnePodThatNamesIt) {
  Demand member = MakeDemand(2, 1000);
  member.models.set(1);
  const std::vector<ShapeId> arrivals = ArrivalsOf(
      cluster_,
      {.members = {Member(member, 1), Member(member, 1)}, .layout = GangLayout::kOneNode});
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(cluster_.demand(arrivals[0]).models, member.models);
  EXPECT_EQ(cluster_.demand(arrivals[0]).gpus(), 4);
}

}  // namespace
}  // namespace tessera::placement
