// SPDX-License-Identifier: Apache-2.0
// Policies of other schedulers, on the cases that characterize them.
#include <gtest/gtest.h>

#include "src/placement/linked_groups.h"
#include "src/placement/policies/gpu_tree.h"
#include "src/placement/policy.h"
#include "src/placement/testing/sample_nodes.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;

// Three pairs of GPUs. Each pair has a switch; the first two pairs share a host bridge, and the
// third pair has another host bridge.
Topology SixGpus() {
  return testing::MakeTopology(6, 0, [](int a, int b) {
    if (a / 2 == b / 2) return device::Link{.pcie = device::PcieLevel::kSingleSwitch};
    return device::Link{.pcie = a < 4 && b < 4 ? device::PcieLevel::kHostBridge
                                               : device::PcieLevel::kNode};
  });
}

class PeerPolicyTest : public ::testing::Test {
 protected:
  NodeId Add(const std::string& name, int gpus, Bytes memory = GiB(80)) {
    return *cluster_.AddNode(MakeNode(name, gpus, memory));
  }
  Placement Place(std::string_view policy, const Demand& demand) {
    const auto made = *MakePolicy(policy, cluster_, {});
    const ShapeId shape = *cluster_.Intern(demand);
    const auto decision = made->Choose(shape);
    if (!decision) return {};
    EXPECT_TRUE(cluster_.Place(shape, decision->node, decision->pick).ok());
    EXPECT_EQ(made->name(), policy);
    return *decision;
  }
  NodeId NodeOf(std::string_view policy, const Demand& demand) {
    return Place(policy, demand).node;
  }
  uint64_t GpusOf(std::string_view policy, const Demand& demand) {
    return Place(policy, demand).pick.all();
  }
  void Take(NodeId node, uint64_t mask, const Demand& demand) {
    ASSERT_TRUE(cluster_.Place(*cluster_.Intern(demand), node, PickOf(mask)).ok());
  }

  Cluster cluster_;
};

TEST_F(PeerPolicyTest, BinpackFillsANodeAndSpreadUsesAnother) {
  Add("a", 4), Add("b", 4), Add("c", 4);
  Take(1, 0b1, MakeDemand(1, 500));
  EXPECT_EQ(NodeOf("NodeBinpackGpuBinpack", MakeDemand(1, 100)), 1u);
  EXPECT_EQ(NodeOf("NodeBinpackGpuSpread", MakeDemand(1, 1000)), 1u);
  EXPECT_EQ(NodeOf("NodeSpreadGpuBinpack", MakeDemand(1, 100)), 0u);
  EXPECT_EQ(NodeOf("NodeSpreadGpuSpread", MakeDemand(1, 100)), 2u);
  EXPECT_EQ(NodeOf("NodeBinpackGpuBinpack", MakeDemand(0, 0, Bytes(0), 1)), 1u)
      << "nodes are compared by their CPUs";
}

TEST_F(PeerPolicyTest, BinpackFillsAGpuAndSpreadUsesAnother) {
  const NodeId node = Add("a", 3);
  Take(node, 0b010, MakeDemand(1, 500));
  EXPECT_EQ(GpusOf("NodeBinpackGpuBinpack", MakeDemand(1, 100)), 0b010u);
  EXPECT_EQ(GpusOf("NodeSpreadGpuSpread", MakeDemand(1, 100)), 0b001u);
  EXPECT_EQ(GpusOf("NodeBinpackGpuSpread", MakeDemand(1, 100)), 0b100u);
  EXPECT_EQ(GpusOf("NodeSpreadGpuBinpack", MakeDemand(1, 300)), 0b010u);
}

TEST_F(PeerPolicyTest, SpreadAcceptsPodsThatOnlyBinpackFits) {
  const NodeId node = Add("a", 2);
  Take(node, 0b01, MakeDemand(1, 400));
  Take(node, 0b10, MakeDemand(1, 100));
  // 0.6 on the emptier GPU leaves no room for 0.4 beside 0.5.
  Demand demand;
  for (const int milli : {600, 500, 400})
    demand.gpu_demands.push_back(MakeDemand(1, milli).gpu_demands[0]);
  EXPECT_EQ(GpusOf("NodeSpreadGpuSpread", demand), 0b11u);
}

TEST_F(PeerPolicyTest, GpuShareTakesTheSmallestFreeMemoryThatSuffices) {
  const NodeId node = Add("a", 4, GiB(16));
  Take(node, 0b0001, MakeDemand(1, 0, GiB(12)));
  Take(node, 0b0010, MakeDemand(1, 0, GiB(6)));
  Take(node, 0b0100, MakeDemand(1, 0, GiB(6)));
  EXPECT_EQ(GpusOf("GpuShare", MakeDemand(1, 0, GiB(8))), 0b0010u)
      << "10 GiB are left on two GPUs; the lower position wins";
  EXPECT_EQ(GpusOf("GpuShare", MakeDemand(1, 0, GiB(8))), 0b0100u);
  EXPECT_EQ(GpusOf("GpuShare", MakeDemand(1, 0, GiB(3))), 0b0001u);
  EXPECT_EQ(GpusOf("GpuShare", MakeDemand(1, 0, GiB(3))), 0b1000u);
  EXPECT_EQ(NodeOf("GpuShare", MakeDemand(1, 0, GiB(14))), kNoNode);
}

TEST_F(PeerPolicyTest, GpuAdmissionTakesTheFullestNodeThatFits) {
  for (const char* name : {"testnode0", "testnode1", "testnode2"}) Add(name, 2, MiB(4 * 256));
  const auto pod = [](std::vector<std::pair<int, int>> containers) {
    Demand demand;
    for (const auto& [cores, blocks] : containers) {
      GpuDemand gpu_demand{.count = std::max(1, cores / 100),
                           .milli = MilliGpu(std::min(cores, 100) * 10)};
      if (cores < 100) gpu_demand.bytes = MiB(blocks * 256);
      demand.gpu_demands.push_back(gpu_demand);
    }
    return demand;
  };
  EXPECT_EQ(NodeOf("GpuAdmission", pod({{10, 1}, {10, 1}})), 0u);
  EXPECT_EQ(NodeOf("GpuAdmission", pod({{100, 0}, {80, 3}})), 1u);
  EXPECT_EQ(NodeOf("GpuAdmission", pod({{200, 0}})), 2u);
  EXPECT_EQ(NodeOf("GpuAdmission", pod({{10, 2}})), 0u);
}

TEST_F(PeerPolicyTest, GpuAdmissionDecidesEqualNodesByName) {
  Add("b", 2), Add("a", 2), Add("c", 2);
  const auto policy = *MakePolicy("GpuAdmission", cluster_, {});
  const auto scores = policy->Scores(*cluster_.Intern(MakeDemand(1, 1000)));
  EXPECT_EQ(std::vector(scores.begin(), scores.end()), (std::vector<float>{-1, 0, -2}));
  EXPECT_EQ(NodeOf("GpuAdmission", MakeDemand(1, 1000)), 1u);
}

TEST_F(PeerPolicyTest, GpuManagerLinksSeveralGpus) {
  NodeSpec spec = MakeNode("a", 6);
  spec.groups = std::make_shared<const LinkedGroups>(SixGpus());
  const NodeId node = *cluster_.AddNode(spec);
  const ShapeId three = *cluster_.Intern(MakeDemand(3, 1000));
  const auto policy = *MakePolicy("GpuManager", cluster_, {});
  EXPECT_EQ(policy->PickOn(three, node), PickOf(0b000111));
  Take(node, 0b000100, MakeDemand(1, 1000));
  EXPECT_EQ(GpusOf("GpuManager", MakeDemand(2, 1000)), 0b000011u);
}

TEST_F(PeerPolicyTest, GpuManagerPrefersFragmentsAndTheTightestShares) {
  NodeSpec spec = MakeNode("a", 6);
  spec.groups = std::make_shared<const LinkedGroups>(SixGpus());
  const NodeId node = *cluster_.AddNode(spec);
  Take(node, 0b010000, MakeDemand(1, 1000));
  EXPECT_EQ(GpusOf("GpuManager", MakeDemand(1, 1000)), 0b100000u);
  EXPECT_EQ(GpusOf("GpuManager", MakeDemand(1, 500, GiB(1))), 0b000001u);
  EXPECT_EQ(GpusOf("GpuManager", MakeDemand(1, 600, GiB(1))), 0b000010u);
}

TEST(GpuTreeTest, AnswersAsGpuManagerDoesOnSixGpus) {
  const std::vector<GpuState> gpus(6);
  const Topology links = SixGpus();
  const GpuTree tree(6, &links);
  EXPECT_EQ(tree.PickLinked(0b111111, 3, gpus), 0b000111u);
  EXPECT_EQ(tree.PickLinked(0b111011, 2, gpus), 0b000011u);
  EXPECT_EQ(tree.PickFragment(0b111111, 2, gpus), 0b110000u);
  EXPECT_EQ(tree.PickFragment(0b101111, 1, gpus), 0b100000u);
  EXPECT_EQ(tree.PickLinked(0b111111, 6, gpus), 0b111111u);
  EXPECT_EQ(tree.PickLinked(0b111111, 7, gpus), 0u);
}

TEST(GpuTreeTest, WithoutLinksTheLowestPositionsAreTaken) {
  const std::vector<GpuState> gpus(64);
  const GpuTree tree(64, nullptr);
  EXPECT_EQ(tree.PickFragment(~uint64_t{1}, 2, gpus), 0b110u);
  EXPECT_EQ(tree.PickLinked(~uint64_t{1}, 2, gpus), 0b110u);
  EXPECT_EQ(GpuTree(0, nullptr).PickLinked(0, 1, {}), 0u);
  EXPECT_EQ(GpuTree(1, nullptr).PickFragment(1, 1, std::span(gpus).first(1)), 1u);
}

TEST(PoliciesTest, NamesAreFoundInAnyCaseAndTheErrorListsTheKnownNames) {
  Cluster cluster;
  EXPECT_EQ((*MakePolicy("fgd", cluster, {}))->name(), "FGD");
  const Status unknown = MakePolicy("fdg", cluster, {}).status();
  EXPECT_EQ(unknown.code(), Code::kInvalidArgument);
  EXPECT_NE(unknown.message().find("use one of Tessera, BestFit"), std::string::npos);
}

TEST_F(PeerPolicyTest, ANodeWithAFullerGpuIsFuller) {
  Add("a", 2), Add("b", 2);
  Take(0, 0b01, MakeDemand(1, 100));
  Take(1, 0b01, MakeDemand(1, 300));
  EXPECT_EQ(NodeOf("NodeBinpackGpuBinpack", MakeDemand(1, 100)), 1u);
  EXPECT_EQ(NodeOf("NodeSpreadGpuBinpack", MakeDemand(1, 100)), 0u);
}

TEST_F(PeerPolicyTest, TheFullnessOfANodeIncludesTheCpuOfThePod) {
  NodeSpec small = MakeNode("a", 1), large = MakeNode("b", 1);
  small.cpu_milli = 10000;
  large.cpu_milli = 100000;
  (void)*cluster_.AddNode(small);
  (void)*cluster_.AddNode(large);
  Take(1, 0, MakeDemand(0, 0, Bytes(0), 5000));
  EXPECT_EQ(NodeOf("NodeBinpackGpuBinpack", MakeDemand(0, 0, Bytes(0), 4000)), 0u)
      << "the pod fills node a to 40 %, node b to 9 %";
}

TEST_F(PeerPolicyTest, GpuAdmissionSumsFreeResourcesOfHealthyGpus) {
  NodeSpec spec = MakeNode("a", 3);
  spec.gpus[2].healthy = false;
  (void)*cluster_.AddNode(spec);
  Add("b", 3);
  Take(1, 0b001, MakeDemand(1, 500));
  EXPECT_EQ(NodeOf("GpuAdmission", MakeDemand(1, 500)), 0u)
      << "2 GPUs are free on node a, 2.5 on node b";
  EXPECT_EQ(GpusOf("GpuAdmission", MakeDemand(1, 500)), 0b001u);
}

TEST_F(PeerPolicyTest, GpuAdmissionTakesTheNodeWithTheFewestCoresThenTheLeastMemory) {
  Add("a", 2), Add("b", 2), Add("c", 2, GiB(40));
  Take(1, 0b01, MakeDemand(1, 500));
  EXPECT_EQ(NodeOf("GpuAdmission", MakeDemand(1, 1000)), 1u);
  EXPECT_EQ(NodeOf("GpuAdmission", MakeDemand(1, 1000)), 2u);
}

// Without a mix all GPUs are equally good.
TEST_F(PeerPolicyTest, FgdTakesTheFirstOfEquallyGoodGpus) {
  const NodeId node = Add("a", 2);
  Take(node, 0b10, MakeDemand(1, 500));
  EXPECT_EQ(GpusOf("FGD", MakeDemand(1, 100)), 0b01u);
}

class FgdTest : public ::testing::Test {
 protected:
  Pick PickFor(const Demand& pod, const Demand& mix, NodeId node) {
    const auto policy = *MakePolicy("FGD", cluster_, {.mix = {{*cluster_.Intern(mix), 1}}});
    return policy->PickOn(*cluster_.Intern(pod), node).value_or(Pick{});
  }
  Cluster cluster_;
};

TEST_F(FgdTest, GpusWithDifferentSlackAreTriedSeparately) {
  const NodeId node = *cluster_.AddNode(MakeNode("a", 2));
  (void)*cluster_.Place(*cluster_.Intern(MakeDemand(1, 500)), node, PickOf(0b10));
  EXPECT_EQ(PickFor(MakeDemand(1, 500), MakeDemand(1, 1000), node), PickOf(0b10))
      << "the other GPU stays whole";
}

TEST_F(FgdTest, GpusWithDifferentMemoryAreTriedSeparately) {
  NodeSpec spec = MakeNode("a", 2);
  spec.gpus[1].memory = GiB(40);
  const NodeId node = *cluster_.AddNode(spec);
  EXPECT_EQ(PickFor(MakeDemand(1, 0, GiB(40)), MakeDemand(1, 1000), node), PickOf(0b10))
      << "the pod uses the whole smaller GPU";
}

TEST_F(FgdTest, GpusOfDifferentModelsAreTriedSeparately) {
  NodeSpec spec = MakeNode("a", 2);
  spec.gpus[1].model = "T4";
  const NodeId node = *cluster_.AddNode(spec);
  Demand a100_only = MakeDemand(1, 1000);
  a100_only.models.set(cluster_.FindModel("A100"));
  EXPECT_EQ(PickFor(MakeDemand(1, 500), a100_only, node), PickOf(0b10))
      << "pods that name A100 need the other GPU";
}

TEST(GpuTreeTest, EqualGroupsAreComparedByMemoryThenPodsThenPosition) {
  std::vector<GpuState> gpus(6);
  const Topology links = SixGpus();
  const GpuTree tree(6, &links);
  for (GpuState& gpu : gpus) gpu.free_bytes = 100;
  EXPECT_EQ(tree.PickLinked(0b111111, 2, gpus), 0b000011u);
  gpus[1].pods = 1;
  EXPECT_EQ(tree.PickLinked(0b111111, 2, gpus), 0b001100u) << "fewer pods";
  EXPECT_EQ(tree.PickFragment(0b001111, 2, gpus), 0b001100u);
  gpus[0].free_bytes = 50;
  EXPECT_EQ(tree.PickLinked(0b111111, 2, gpus), 0b000011u) << "less memory";
  gpus[5].free_bytes = 10;
  EXPECT_EQ(tree.PickLinked(0b111111, 2, gpus), 0b110000u);
  EXPECT_EQ(tree.PickLinked(0b011111, 2, gpus), 0b000011u) << "GPU 5 is not available";
  EXPECT_EQ(tree.PickLinked(0b111111, 1, gpus), 0b010000u);
}

TEST(GpuTreeTest, TooFewGpusGiveNoPick) {
  const std::vector<GpuState> gpus(6);
  const Topology links = SixGpus();
  const GpuTree tree(6, &links);
  EXPECT_EQ(tree.PickFragment(0b111111, 7, gpus), 0u);
  EXPECT_EQ(tree.PickFragment(0b111111, 0, gpus), 0u);
  EXPECT_EQ(tree.PickLinked(0b111111, 0, gpus), 0u);
}

}  // namespace
}  // namespace tessera::placement
