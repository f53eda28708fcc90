// SPDX-License-Identifier: Apache-2.0
// Examples computed by hand check how many slots for large pods a node has and a placement takes.
#include <gtest/gtest.h>

#include <vector>

#include "src/placement/policies/forecast.h"
#include "src/placement/policies/node_summaries.h"
#include "src/placement/policies/turnover.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;

// Has two samples of turnover: with `half_`, half of the pods leave in half a lifetime; with
// `still_`, no pod leaves.
class SlotsTest : public ::testing::Test {
 protected:
  SlotsTest() : half_(busy_), still_(busy_) {
    const NodeId node = *busy_.AddNode(MakeNode("busy", 1));
    const ShapeId shape = *busy_.Intern(MakeDemand(1, 1));
    std::vector<PodId> pods;
    for (int i = 0; i < 128; ++i) pods.push_back(*busy_.Adopt(shape, node, PickOf(1)));
    half_.OnDeparture();
    (void)half_.OnArrival();
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(busy_.Remove(pods[i]).ok());
    for (int i = 0; i < 64; ++i) (void)half_.OnArrival();
    EXPECT_EQ(half_.FreeOf(1), 0.5f);
    EXPECT_EQ(half_.FreeOf(2), 0.25f);
    EXPECT_FALSE(still_.expects_departures());
  }
  // Adds a node of 8 GPUs, 96 cores and 384 GiB, with these pods from its first GPU on.
  void AddNode(const std::vector<Demand>& pods, bool schedulable = true) {
    NodeSpec spec = MakeNode("a", 8);
    spec.schedulable = schedulable;
    node_ = *cluster_.AddNode(spec);
    uint64_t bit = 1;
    for (const Demand& pod : pods) {
      (void)*cluster_.Adopt(*cluster_.Intern(pod), node_,
                            PickOf(pod.gpu_demands.empty() ? 0 : bit));
      bit <<= pod.gpus();
    }
  }
  static Demand Host(Demand demand, int64_t cpu, Bytes memory) {
    demand.cpu_milli = cpu;
    demand.memory = memory;
    return demand;
  }
  // Counts one arrival and returns the class of this demand.
  size_t Expect(const Demand& demand) {
    forecast_.OnArrival(*cluster_.Intern(demand));
    return forecast_.classes().size() - 1;
  }
  // The class of a whole node exists from the start; it is the last class after Expect.
  size_t WholeNode() const { return forecast_.classes().size() - 1; }

  static constexpr Slots kNotOwn{};
  Cluster busy_, cluster_;
  Turnover half_, still_;
  Forecast forecast_{cluster_};
  NodeId node_ = kNoNode;
};

TEST_F(SlotsTest, APodThatLeavesRoomForAllSlotsTakesNoSlot) {
  AddNode({Host(MakeDemand(1, 1000), 1000, GiB(1))});
  const size_t pairs = Expect(Host(MakeDemand(2, 1000), 8000, GiB(32)));
  NodeSummaries nodes(cluster_, forecast_, still_);
  EXPECT_TRUE(nodes.Sync()) << "classes are new";
  EXPECT_FALSE(nodes.Sync());
  const NodeSummary& node = nodes[node_];
  ASSERT_EQ(node.slots[pairs], 3);
  EXPECT_EQ(forecast_.classes()[pairs].slots, 3);
  // Seven GPUs, 95 cores and 383 GiB are free; three slots take 6, 24 and 96.
  const Demand most = Host(MakeDemand(1, 1000), 71000, GiB(287));
  EXPECT_FALSE(nodes.TakesSlots(node, 1, most));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, most, kNotOwn), SlotParts{});
  const Demand more_cpu = Host(MakeDemand(1, 1000), 71001, GiB(287));
  EXPECT_TRUE(nodes.TakesSlots(node, 1, more_cpu));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, more_cpu, kNotOwn)[pairs], kPartsPerSlot);
  const Demand more_memory = Host(MakeDemand(1, 1000), 71000, GiB(287) + Bytes(1));
  EXPECT_TRUE(nodes.TakesSlots(node, 1, more_memory));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, more_memory, kNotOwn)[pairs], kPartsPerSlot);
  EXPECT_TRUE(nodes.TakesSlots(node, 2, most));
  EXPECT_EQ(nodes.SlotsTaken(node, 2, most, kNotOwn)[pairs], kPartsPerSlot);
  Slots own{};
  own[pairs] = 1;
  EXPECT_EQ(nodes.SlotsTaken(node, 2, most, own), SlotParts{})
      << "the slot is reserved for this shape";
}

TEST_F(SlotsTest, UnhealthyGpusNeverCountAsIdle) {
  NodeSpec spec = MakeNode("a", 8);
  spec.gpus[7].healthy = false;
  spec.gpus[6].mig_profile = "1g.10gb";
  node_ = *cluster_.AddNode(spec);
  NodeSummaries nodes(cluster_, forecast_, still_);
  nodes.Sync();
  EXPECT_EQ(nodes[node_].gpus, 6);
  EXPECT_EQ(nodes[node_].idle, 6);
}

// For the whole node one pod must leave (½); with one more pod on it two must leave (¼).
TEST_F(SlotsTest, APodOnANodeThatIsNearlyEmptyTakesPartOfASlot) {
  AddNode({Host(MakeDemand(1, 1000), 1000, GiB(1))});
  NodeSummaries nodes(cluster_, forecast_, half_);
  nodes.Sync();
  const size_t whole = WholeNode();
  const NodeSummary& node = nodes[node_];
  EXPECT_EQ(node.near_classes, uint32_t{1} << whole);
  const Demand pod = Host(MakeDemand(1, 1000), 1000, GiB(1));
  EXPECT_TRUE(nodes.TakesSlots(node, 1, pod));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, pod, kNotOwn)[whole], kPartsPerSlot / 4);
  Slots own{};
  own[whole] = 1;
  EXPECT_EQ(nodes.SlotsTaken(node, 1, pod, own), SlotParts{});
}

// The node has room for one pod of four GPUs. For a second such pod, one pod must leave (½); with
// one more pod on the node, two must leave (¼). A third has no room on eight GPUs.
TEST_F(SlotsTest, FutureSlotsEndWhereTheNodeIsFull) {
  AddNode({Host(MakeDemand(1, 1000), 1000, GiB(1))});
  const size_t fours = Expect(Host(MakeDemand(4, 1000), 8000, GiB(32)));
  NodeSummaries nodes(cluster_, forecast_, half_);
  nodes.Sync();
  EXPECT_EQ(
      nodes.SlotsTaken(nodes[node_], 1, Host(MakeDemand(1, 1000), 1000, GiB(1)), kNotOwn)[fours],
      kPartsPerSlot / 4);
}

// A pod holds half of the CPU (or memory), so one slot is present, and a second one when the pod
// leaves (½). If another pod holds the rest, one of the two must leave for a slot (½), and both for
// two slots (¼). A third slot has no room.
TEST_F(SlotsTest, FutureSlotsEndWhereCpuOrMemoryEnds) {
  for (const bool by_cpu : {true, false}) {
    Cluster cluster;
    Forecast forecast(cluster);
    const int64_t cpu = by_cpu ? 48000 : 1000;
    const Bytes memory = by_cpu ? GiB(1) : GiB(192);
    const NodeId node = *cluster.AddNode(MakeNode("a", 8));
    const Demand pod = Host(MakeDemand(1, 1000), cpu, memory);
    (void)*cluster.Adopt(*cluster.Intern(pod), node, PickOf(1));
    const Demand pair =
        Host(MakeDemand(2, 1000), by_cpu ? 48000 : 8000, by_cpu ? GiB(32) : GiB(192));
    forecast.OnArrival(*cluster.Intern(pair));
    NodeSummaries nodes(cluster, forecast, half_);
    nodes.Sync();
    EXPECT_EQ(nodes[node].slots[0], 1);
    EXPECT_EQ(nodes.SlotsTaken(nodes[node], 1, pod, kNotOwn)[0], (1.5 - 0.75) * kPartsPerSlot);
  }
}

// The scarcest resource decides. Five pods hold five GPUs: one must leave for one slot, all for
// two. With six pods two or all must leave: the loss is ½ + 1/32 - ¼ - 1/64 = 17/64.
TEST_F(SlotsTest, ThePodsThatMustLeaveHoldTheMissingResources) {
  AddNode(std::vector<Demand>(5, Host(MakeDemand(1, 1000), 1000, GiB(1))));
  const size_t fours = Expect(Host(MakeDemand(4, 1000), 8000, GiB(32)));
  NodeSummaries nodes(cluster_, forecast_, half_);
  nodes.Sync();
  ASSERT_EQ(nodes[node_].slots[fours], 0);
  EXPECT_EQ(
      nodes.SlotsTaken(nodes[node_], 1, Host(MakeDemand(1, 1000), 1000, GiB(1)), kNotOwn)[fours],
      17);
}

TEST_F(SlotsTest, APodWithoutGpusMustLeaveBeforeAWholeNodeIsFree) {
  AddNode({Host(MakeDemand(0, 0), 1000, GiB(1))});
  NodeSummaries nodes(cluster_, forecast_, half_);
  nodes.Sync();
  EXPECT_EQ(nodes[node_].near_classes, uint32_t{1} << WholeNode())
      << "all GPUs are idle, and one pod must leave";
}

TEST_F(SlotsTest, APodThatHasAllCpuAndMemoryMayLeave) {
  AddNode({Host(MakeDemand(1, 1000), 96000, GiB(384))});
  NodeSummaries nodes(cluster_, forecast_, half_);
  nodes.Sync();
  EXPECT_EQ(nodes[node_].near_classes, uint32_t{1} << WholeNode());
}

TEST_F(SlotsTest, OvercommittedNodesHaveNoFutureSlots) {
  for (const Demand& pod :
       {Host(MakeDemand(1, 1000), 97000, GiB(1)), Host(MakeDemand(1, 1000), 1000, GiB(385))}) {
    Cluster cluster;
    Forecast forecast(cluster);
    const NodeId node = *cluster.AddNode(MakeNode("a", 8));
    (void)*cluster.Adopt(*cluster.Intern(pod), node, PickOf(1));
    NodeSummaries nodes(cluster, forecast, half_);
    nodes.Sync();
    EXPECT_EQ(nodes[node].near_classes, 0u);
  }
}

TEST_F(SlotsTest, NodesThatAreEmptyOrTakeNoPodsHaveNoFutureSlots) {
  AddNode({});
  NodeSummaries nodes(cluster_, forecast_, half_);
  nodes.Sync();
  EXPECT_EQ(nodes[node_].near_classes, 0u);
  EXPECT_EQ(nodes[node_].slots[WholeNode()], 1);
  NodeSpec spec = cluster_.spec(node_);
  spec.schedulable = false;
  ASSERT_TRUE(cluster_.UpdateNode(node_, spec).ok());
  nodes.Sync();
  EXPECT_EQ(nodes[node_].near_classes, 0u);
  EXPECT_EQ(nodes[node_].slots[WholeNode()], 0);
  EXPECT_EQ(forecast_.classes()[WholeNode()].slots, 0);
}

}  // namespace
}  // namespace tessera::placement
