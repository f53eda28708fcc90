// SPDX-License-Identifier: Apache-2.0
// Checks, with examples computed by hand, how many slots for large pods a node has, and how many of
// these a placement takes.
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

// Has two turnovers: with `half_leave_`, half of the pods leave within half a lifetime; with
// `none_leave_`, no pod leaves.
class SlotsTest : public ::testing::Test {
 protected:
  SlotsTest() : half_leave_(turnover_cluster_), none_leave_(turnover_cluster_) {
    const NodeId node = *turnover_cluster_.AddNode(MakeNode("busy", 1));
    const ShapeId shape = *turnover_cluster_.Intern(MakeDemand(1, 1));
    std::vector<PodId> pods;
    for (int i = 0; i < 128; ++i) pods.push_back(*turnover_cluster_.Adopt(shape, node, PickOf(1)));
    half_leave_.OnDeparture();
    (void)half_leave_.OnArrival();
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(turnover_cluster_.Remove(pods[i]).ok());
    for (int i = 0; i < 64; ++i) (void)half_leave_.OnArrival();
    EXPECT_EQ(half_leave_.FreeOf(1), 0.5f);
    EXPECT_EQ(half_leave_.FreeOf(2), 0.25f);
    EXPECT_FALSE(none_leave_.expects_departures());
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
  static Demand WithHost(Demand demand, int64_t cpu, Bytes memory) {
    demand.cpu_milli = cpu;
    demand.memory = memory;
    return demand;
  }
  // Counts the first arrival of this demand and returns its new class.
  size_t AddClass(const Demand& demand) {
    forecast_.OnArrival(*cluster_.Intern(demand));
    return forecast_.classes().size() - 1;
  }
  // The class of a whole node; the last class, because the first Sync adds it.
  size_t WholeNode() const { return forecast_.classes().size() - 1; }

  static constexpr Slots kNoOwnSlots{};
  Cluster turnover_cluster_, cluster_;
  Turnover half_leave_, none_leave_;
  Forecast forecast_{cluster_};
  NodeId node_ = kNoNode;
};

TEST_F(SlotsTest, APodThatLeavesRoomForAllSlotsTakesNoSlot) {
  AddNode({WithHost(MakeDemand(1, 1000), 1000, GiB(1))});
  const size_t pairs = AddClass(WithHost(MakeDemand(2, 1000), 8000, GiB(32)));
  NodeSummaries nodes(cluster_, forecast_, none_leave_);
  EXPECT_TRUE(nodes.Sync()) << "classes are new";
  EXPECT_FALSE(nodes.Sync());
  const NodeSummary& node = nodes[node_];
  ASSERT_EQ(node.slots[pairs], 3);
  EXPECT_EQ(forecast_.classes()[pairs].slots, 3);
  // Seven GPUs, 95 cores and 383 GiB are free; three slots take 6, 24 and 96.
  const Demand most = WithHost(MakeDemand(1, 1000), 71000, GiB(287));
  EXPECT_FALSE(nodes.TakesSlots(node, 1, most));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, most, kNoOwnSlots), SlotParts{});
  const Demand more_cpu = WithHost(MakeDemand(1, 1000), 71001, GiB(287));
  EXPECT_TRUE(nodes.TakesSlots(node, 1, more_cpu));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, more_cpu, kNoOwnSlots)[pairs], kPartsPerSlot);
  const Demand more_memory = WithHost(MakeDemand(1, 1000), 71000, GiB(287) + Bytes(1));
  EXPECT_TRUE(nodes.TakesSlots(node, 1, more_memory));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, more_memory, kNoOwnSlots)[pairs], kPartsPerSlot);
  EXPECT_TRUE(nodes.TakesSlots(node, 2, most));
  EXPECT_EQ(nodes.SlotsTaken(node, 2, most, kNoOwnSlots)[pairs], kPartsPerSlot);
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
  NodeSummaries nodes(cluster_, forecast_, none_leave_);
  nodes.Sync();
  EXPECT_EQ(nodes[node_].gpus, 6);
  EXPECT_EQ(nodes[node_].idle, 6);
}

// The slot for a pod of a whole node counts ½ if one pod must leave, ¼ if two must.
TEST_F(SlotsTest, APodOnANodeThatIsNearlyEmptyTakesPartOfASlot) {
  AddNode({WithHost(MakeDemand(1, 1000), 1000, GiB(1))});
  NodeSummaries nodes(cluster_, forecast_, half_leave_);
  nodes.Sync();
  const size_t whole = WholeNode();
  const NodeSummary& node = nodes[node_];
  EXPECT_EQ(node.near_classes, uint32_t{1} << whole);
  const Demand pod = WithHost(MakeDemand(1, 1000), 1000, GiB(1));
  EXPECT_TRUE(nodes.TakesSlots(node, 1, pod));
  EXPECT_EQ(nodes.SlotsTaken(node, 1, pod, kNoOwnSlots)[whole], kPartsPerSlot / 4);
  Slots own{};
  own[whole] = 1;
  EXPECT_EQ(nodes.SlotsTaken(node, 1, pod, own), SlotParts{});
}

// The node has room for one pod of four GPUs. For a second such pod, one pod must leave (½); with
// one more pod on the node, two must leave (¼). A third has no room on eight GPUs.
TEST_F(SlotsTest, FutureSlotsEndWhereTheNodeIsFull) {
  AddNode({WithHost(MakeDemand(1, 1000), 1000, GiB(1))});
  const size_t fours = AddClass(WithHost(MakeDemand(4, 1000), 8000, GiB(32)));
  NodeSummaries nodes(cluster_, forecast_, half_leave_);
  nodes.Sync();
  EXPECT_EQ(nodes.SlotsTaken(nodes[node_], 1, WithHost(MakeDemand(1, 1000), 1000, GiB(1)),
                             kNoOwnSlots)[fours],
            kPartsPerSlot / 4);
}

// A pod and a slot each take half of the CPU (or memory).
//   one pod on the node    1 slot is free, and a second one if the pod leaves: 1 + ½
//   two pods on the node   1 slot is free if one pod leaves, 2 if both leave: ½ + ¼
// A third slot has no room.
TEST_F(SlotsTest, FutureSlotsEndWhereCpuOrMemoryEnds) {
  for (const bool by_cpu : {true, false}) {
    Cluster cluster;
    Forecast forecast(cluster);
    const int64_t cpu = by_cpu ? 48000 : 1000;
    const Bytes memory = by_cpu ? GiB(1) : GiB(192);
    const NodeId node = *cluster.AddNode(MakeNode("a", 8));
    const Demand pod = WithHost(MakeDemand(1, 1000), cpu, memory);
    (void)*cluster.Adopt(*cluster.Intern(pod), node, PickOf(1));
    const Demand pair =
        WithHost(MakeDemand(2, 1000), by_cpu ? 48000 : 8000, by_cpu ? GiB(32) : GiB(192));
    forecast.OnArrival(*cluster.Intern(pair));
    NodeSummaries nodes(cluster, forecast, half_leave_);
    nodes.Sync();
    EXPECT_EQ(nodes[node].slots[0], 1);
    EXPECT_EQ(nodes.SlotsTaken(nodes[node], 1, pod, kNoOwnSlots)[0],
              ((1 + 0.5) - (0.5 + 0.25)) * kPartsPerSlot);
  }
}

// The scarcest resource decides. A slot takes four of the eight GPUs, and each pod holds one.
//   five pods   1 slot is free if one pod leaves, 2 if five leave: ½ + 1/32
//   six pods    1 slot is free if two pods leave, 2 if six leave: ¼ + 1/64
// The sixth pod takes the difference, 17/64 of a slot. kPartsPerSlot is 64.
TEST_F(SlotsTest, ThePodsThatMustLeaveHoldTheMissingResources) {
  AddNode(std::vector<Demand>(5, WithHost(MakeDemand(1, 1000), 1000, GiB(1))));
  const size_t fours = AddClass(WithHost(MakeDemand(4, 1000), 8000, GiB(32)));
  NodeSummaries nodes(cluster_, forecast_, half_leave_);
  nodes.Sync();
  ASSERT_EQ(nodes[node_].slots[fours], 0);
  EXPECT_EQ(nodes.SlotsTaken(nodes[node_], 1, WithHost(MakeDemand(1, 1000), 1000, GiB(1)),
                             kNoOwnSlots)[fours],
            17);
}

TEST_F(SlotsTest, APodWithoutGpusMustLeaveBeforeAWholeNodeIsFree) {
  AddNode({WithHost(MakeDemand(0, 0), 1000, GiB(1))});
  NodeSummaries nodes(cluster_, forecast_, half_leave_);
  nodes.Sync();
  EXPECT_EQ(nodes[node_].near_classes, uint32_t{1} << WholeNode())
      << "all GPUs are idle, and one pod must leave";
}

TEST_F(SlotsTest, APodThatHasAllCpuAndMemoryMayLeave) {
  AddNode({WithHost(MakeDemand(1, 1000), 96000, GiB(384))});
  NodeSummaries nodes(cluster_, forecast_, half_leave_);
  nodes.Sync();
  EXPECT_EQ(nodes[node_].near_classes, uint32_t{1} << WholeNode());
}

TEST_F(SlotsTest, OvercommittedNodesHaveNoFutureSlots) {
  for (const Demand& pod : {WithHost(MakeDemand(1, 1000), 97000, GiB(1)),
                            WithHost(MakeDemand(1, 1000), 1000, GiB(385))}) {
    Cluster cluster;
    Forecast forecast(cluster);
    const NodeId node = *cluster.AddNode(MakeNode("a", 8));
    (void)*cluster.Adopt(*cluster.Intern(pod), node, PickOf(1));
    NodeSummaries nodes(cluster, forecast, half_leave_);
    nodes.Sync();
    EXPECT_EQ(nodes[node].near_classes, 0u);
  }
}

TEST_F(SlotsTest, NodesThatAreEmptyOrTakeNoPodsHaveNoFutureSlots) {
  AddNode({});
  NodeSummaries nodes(cluster_, forecast_, half_leave_);
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
