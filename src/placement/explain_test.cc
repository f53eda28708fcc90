// SPDX-License-Identifier: Apache-2.0
#include "src/placement/explain.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "src/placement/fit.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;

class ExplainTest : public ::testing::Test {
 protected:
  NodeId Add(NodeSpec spec) { return *cluster_.AddNode(std::move(spec)); }
  void Hold(NodeId node, const Demand& demand, uint64_t mask) {
    ASSERT_TRUE(cluster_.Place(*cluster_.Intern(demand), node, PickOf(mask)).ok());
  }
  std::string Why(NodeId node, const Demand& demand) {
    return TextOf(ShortfallOf(cluster_.node(node), demand), demand, cluster_);
  }

  Cluster cluster_;
};

TEST_F(ExplainTest, CountsTheGpusByReason) {
  NodeSpec spec = MakeNode("a", 8);
  spec.gpus[7].healthy = false;
  const NodeId node = Add(spec);
  Hold(node, MakeDemand(4, 1000), 0b1111);
  Hold(node, MakeDemand(1, 100), 0b10000);
  EXPECT_EQ(Why(node, MakeDemand(3, 1000)),
            "3 GPUs wanted, 2 of 8 free: 1 unhealthy, 4 held whole, 1 shared");
  EXPECT_EQ(Why(node, MakeDemand(2, 1000)), "");
  const NodeShortfall shortfall = ShortfallOf(cluster_.node(node), MakeDemand(3, 1000));
  EXPECT_EQ(shortfall.reason, UnfitReason::kBusy);
  EXPECT_FALSE(shortfall.unresolvable) << "pods that leave make room";
  EXPECT_EQ(ShortfallOf(cluster_.node(node), MakeDemand(8, 1000)).reason, UnfitReason::kUnhealthy);
  EXPECT_TRUE(ShortfallOf(cluster_.node(node), MakeDemand(8, 1000)).unresolvable);
  EXPECT_EQ(ShortfallOf(cluster_.node(node), MakeDemand(9, 1000)).reason, UnfitReason::kTooFew);
}

TEST_F(ExplainTest, AGpuOfUnknownMemoryFitsNoPodThatRequestsMemory) {
  const NodeId node = Add(MakeNode("a", 1, Bytes(0)));
  const auto why = [&](const Demand& demand) {
    return TextOf(ShortfallOf(cluster_.node(node).gpus[0], demand.gpu_demands[0], demand));
  };
  EXPECT_EQ(why(MakeDemand(1, 300)), "");
  EXPECT_EQ(why(MakeDemand(1, 1000)), "");
  EXPECT_EQ(why(MakeDemand(1, 300, GiB(8))), "8 GiB wanted, the memory of the GPU is unknown");
  EXPECT_EQ(why(MakeDemand(1, 1000, GiB(8))), "8 GiB wanted, the memory of the GPU is unknown");
  for (const Demand& demand :
       {MakeDemand(1, 300), MakeDemand(1, 300, GiB(8)), MakeDemand(1, 1000, GiB(8))}) {
    EXPECT_EQ(Fits(cluster_.node(node), demand), why(demand).empty());
  }
}

TEST_F(ExplainTest, ReportsAGpuThatThePodDoesNotAllow) {
  const NodeId node = Add(MakeNode("a", 4)), other = Add(MakeNode("b", 1));
  Demand demand = MakeDemand(1, 1000);
  demand.gpu_filter = cluster_.FindGpus("GPU-a-2");
  EXPECT_EQ(Why(node, demand), "");
  EXPECT_EQ(Why(other, demand),
            "1 GPU among 1 named by UUID wanted, 0 of 1 free: 1 not allowed by UUID");
  EXPECT_EQ(ShortfallOf(cluster_.node(other), demand).reason, UnfitReason::kOtherGpu);
  EXPECT_TRUE(ShortfallOf(cluster_.node(other), demand).unresolvable)
      << "no pod that leaves makes room";
  EXPECT_EQ(CountShortfalls(cluster_, demand).Text(),
            "1/2 nodes have room: 1 GPUs that the pod does not allow");
  Hold(node, demand, 0b100);
  EXPECT_EQ(Why(node, demand),
            "1 GPU among 1 named by UUID wanted, 0 of 4 free: 3 not allowed by UUID, 1 held whole");
  EXPECT_FALSE(ShortfallOf(cluster_.node(node), demand).unresolvable);
  demand.gpu_filter_excludes = true;
  EXPECT_EQ(Why(node, demand), "");
  demand.gpu_demands[0].count = 4;
  EXPECT_EQ(Why(node, demand),
            "4 GPUs, none of 1 named by UUID wanted, 3 of 4 free: 1 not allowed by UUID");
}

TEST_F(ExplainTest, ReportsWhichResourceAShareLacks) {
  const NodeId node = Add(MakeNode("a", 2));
  Hold(node, MakeDemand(1, 800, GiB(1)), 0b01);
  Hold(node, MakeDemand(1, 0, GiB(70)), 0b10);
  EXPECT_EQ(
      Why(node, MakeDemand(1, 300, GiB(16))),
      "1 GPU with 0.3 of the compute and 16 GiB wanted, 0 of 2 have that: 1 short of compute, "
      "1 short of memory");
  const Demand demand = MakeDemand(1, 300, GiB(16));
  const auto gpus = cluster_.node(node).gpus;
  EXPECT_EQ(ShortfallOf(gpus[0], demand.gpu_demands[0], demand),
            (GpuShortfall{UnfitReason::kCompute, 300, 200}));
  EXPECT_EQ(TextOf(ShortfallOf(gpus[0], demand.gpu_demands[0], demand)),
            "0.3 GPU wanted, 0.2 free");
  EXPECT_EQ(TextOf(ShortfallOf(gpus[1], demand.gpu_demands[0], demand)),
            "16 GiB wanted, 10 GiB free");
  EXPECT_EQ(ShortfallOf(cluster_.node(node), MakeDemand(1, 0, GiB(81))).reason,
            UnfitReason::kTooSmall);
}

TEST_F(ExplainTest, NamesModelsAndSlices) {
  NodeSpec spec = MakeNode("a", 2);
  spec.gpus[1].mig_profile = "1g.10gb";
  const NodeId node = Add(spec);
  Demand demand = MakeDemand(1, 1000);
  demand.models.set(*cluster_.ModelOf("H100"));
  demand.models.set(*cluster_.ModelOf("H200"));
  EXPECT_EQ(Why(node, demand),
            "1 GPU of model H100 or H200 wanted, 0 of 2 free: 1 of another kind, 1 of another "
            "model");
  EXPECT_EQ(ShortfallOf(cluster_.node(node), demand).reason, UnfitReason::kOtherModel);
  demand = MakeDemand(2, 1000);
  demand.gpu_demands[0].kind = *cluster_.KindOf("1g.10gb");
  EXPECT_EQ(Why(node, demand), "2 1g.10gb wanted, 1 of 2 free: 1 of another kind");
}

TEST_F(ExplainTest, ReportsWhichHostResourceIsInsufficient) {
  const NodeId node = Add(MakeNode("a", 1));
  EXPECT_EQ(Why(node, MakeDemand(1, 1000, Bytes(0), 96500)), "96.5 CPU wanted, 96 free");
  Demand demand = MakeDemand(0, 0);
  demand.memory = GiB(385);
  EXPECT_EQ(Why(node, demand), "385 GiB of memory wanted, 384 GiB free");
  EXPECT_TRUE(ShortfallOf(cluster_.node(node), demand).unresolvable);
  NodeSpec cordoned = cluster_.spec(node);
  cordoned.schedulable = false;
  ASSERT_TRUE(cluster_.UpdateNode(node, cordoned).ok());
  EXPECT_EQ(Why(node, MakeDemand(1, 1000)), "the node is not schedulable");
  ASSERT_TRUE(cluster_.RemoveNode(node).ok());
  EXPECT_EQ(Why(node, MakeDemand(1, 1000)), "the node was removed");
}

TEST_F(ExplainTest, ReportsContainersThatFitOnlyOneByOne) {
  const NodeId node = Add(MakeNode("a", 3));
  Demand demand = MakeDemand(2, 1000);
  demand.gpu_demands.push_back(demand.gpu_demands[0]);
  EXPECT_EQ(Why(node, demand), "the 2 GPU containers fit one by one, but not together");
}

TEST_F(ExplainTest, SummarizesTheClusterByTheMostFrequentReasonFirst) {
  for (int i = 0; i < 3; ++i) {
    Hold(Add(MakeNode(fmt::format("a{}", i), 2)), MakeDemand(1, 1000), 0b1);
  }
  Add(MakeNode("cpu", 0));
  EXPECT_EQ(CountShortfalls(cluster_, MakeDemand(2, 1000)).Text(),
            "0/4 nodes have room: 3 insufficient free GPUs, 1 no such GPU");
  ASSERT_TRUE(cluster_.RemoveNode(3).ok());
  EXPECT_EQ(CountShortfalls(cluster_, MakeDemand(1, 1000)).Text(), "3/3 nodes have room");
}

TEST_F(ExplainTest, ReportsScoreAndGpusOfANode) {
  const NodeId node = Add(MakeNode("a", 2));
  Hold(node, MakeDemand(1, 1000), 0b1);
  const auto policy = *MakePolicy("BestFit", cluster_, {});
  const ShapeId one = *cluster_.Intern(MakeDemand(1, 1000)),
                two = *cluster_.Intern(MakeDemand(2, 1000));
  const NodeReport fits = ExplainNode(cluster_, *policy, one, node);
  EXPECT_EQ(fits.text, "");
  EXPECT_TRUE(fits.score.has_value());
  EXPECT_EQ(fits.pick, PickOf(0b10));
  EXPECT_EQ(fits.gpu_demands[0][0].reason, UnfitReason::kHeldWhole);
  const NodeReport not_fit = ExplainNode(cluster_, *policy, two, node);
  EXPECT_EQ(not_fit.text, "2 GPUs wanted, 1 of 2 free: 1 held whole");
  EXPECT_FALSE(not_fit.score.has_value());
}

TEST_F(ExplainTest, AgreesWithFitsOnRandomNodesAndDemands) {
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    Cluster cluster;
    NodeSpec spec = MakeNode("n", static_cast<int>(random() % 5), GiB(8));
    for (GpuSpec& gpu : spec.gpus) {
      gpu.healthy = random() % 5 != 0;
      if (random() % 4 == 0) gpu.model = std::string("B");
      if (random() % 5 == 0) gpu.mig_profile = "1g.5gb";
      if (random() % 5 == 0) gpu.memory = GiB(4);
    }
    spec.schedulable = random() % 20 != 0;
    const NodeId node = *cluster.AddNode(spec);
    const KindId slice = *cluster.KindOf("1g.5gb");
    for (int pod = 0; pod < 6; ++pod) {
      Demand demand = MakeDemand(static_cast<int>(random() % 4),
                                 random() % 2 ? 1000 : static_cast<int>(random() % 900),
                                 GiB(random() % 3 ? random() % 6 : 0), random() % 40000);
      if (!demand.gpu_demands.empty() && random() % 3 == 0)
        demand.gpu_demands.push_back(MakeDemand(1, 1000).gpu_demands[0]);
      if (!demand.gpu_demands.empty() && random() % 4 == 0) demand.gpu_demands[0].kind = slice;
      if (random() % 4 == 0) demand.models.set(*cluster.ModelOf("B"));
      const NodeShortfall shortfall = ShortfallOf(cluster.node(node), demand);
      ASSERT_EQ(shortfall.ok(), Fits(cluster.node(node), demand))
          << TextOf(shortfall, demand, cluster);
      ASSERT_EQ(shortfall.ok(), TextOf(shortfall, demand, cluster).empty());
      Pick pick;
      if (shortfall.ok() && PickTightest(cluster.node(node), demand, &pick)) {
        ASSERT_TRUE(cluster.Place(*cluster.Intern(demand), node, pick).ok());
      }
    }
  }
}

TEST(UnfitReasonTest, EveryReasonHasAUniqueLabelAndText) {
  std::set<std::string_view> labels;
  std::set<std::string> texts;
  for (size_t i = 0; i < kUnfitReasonCount; ++i) {
    const auto reason = static_cast<UnfitReason>(i);
    EXPECT_TRUE(labels.insert(MetricLabelOf(reason)).second);
    ShortfallCounts counts;
    counts.Add({.reason = reason});
    EXPECT_TRUE(texts.insert(counts.Text()).second) << counts.Text();
  }
}

TEST_F(ExplainTest, NamesTheFirstOfEquallyFrequentCauses) {
  const NodeId node = Add(MakeNode("a", 2));
  Hold(node, MakeDemand(1, 1000), 0b01);
  Hold(node, MakeDemand(1, 600), 0b10);
  EXPECT_EQ(ShortfallOf(cluster_.node(node), MakeDemand(1, 500)).reason, UnfitReason::kHeldWhole);
  ShortfallCounts counts;
  counts.Add({.reason = UnfitReason::kMemory});
  counts.Add({.reason = UnfitReason::kCpu});
  EXPECT_EQ(counts.Text(), "0/2 nodes have room: 1 insufficient cpu, 1 insufficient memory");
}

TEST_F(ExplainTest, ExactlyEnoughResourcesFit) {
  const NodeId node = Add(MakeNode("a", 1));
  Hold(node, MakeDemand(1, 500, GiB(40)), 0b1);
  Demand demand = MakeDemand(1, 500, GiB(40), 95000);
  demand.memory = GiB(383);
  EXPECT_EQ(ShortfallOf(cluster_.node(node), demand).reason, UnfitReason::kNothing);
  EXPECT_EQ(ShortfallOf(cluster_.node(node).gpus[0], demand.gpu_demands[0], demand).reason,
            UnfitReason::kNothing);
}

TEST_F(ExplainTest, ReportsCpuBeforeMemoryAndRemovedPodsFreeBoth) {
  const NodeId node = Add(MakeNode("a", 1));
  Hold(node, MakeDemand(0, 0), 0);
  Demand demand = MakeDemand(0, 0, Bytes(0), 96000);
  demand.memory = GiB(384);
  EXPECT_EQ(ShortfallOf(cluster_.node(node), demand).reason, UnfitReason::kCpu);
  EXPECT_FALSE(ShortfallOf(cluster_.node(node), demand).unresolvable);
  demand.cpu_milli = 1;
  EXPECT_EQ(ShortfallOf(cluster_.node(node), demand).reason, UnfitReason::kMemory);
  EXPECT_FALSE(ShortfallOf(cluster_.node(node), demand).unresolvable);
  demand.memory = GiB(385);
  EXPECT_TRUE(ShortfallOf(cluster_.node(node), demand).unresolvable);
}

TEST_F(ExplainTest, OnlyRequestedResourcesAreNamed) {
  const NodeId node = Add(MakeNode("a", 0));
  EXPECT_EQ(Why(node, MakeDemand(1, 0, GiB(8))), "1 GPU with 8 GiB wanted, the node has none");
}

TEST_F(ExplainTest, AFullChunkOfNodesIsCounted) {
  for (int i = 0; i < 64; ++i) Add(MakeNode(fmt::format("n{}", i), 1));
  EXPECT_EQ(CountShortfalls(cluster_, MakeDemand(1, 1000)).count(UnfitReason::kNothing), 64u);
}

}  // namespace
}  // namespace tessera::placement
