// SPDX-License-Identifier: Apache-2.0
#include "src/placement/fragmentation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/base/random.h"
#include "src/placement/fit.h"

namespace tessera::placement {
namespace {

// F_n(m) as defined in fragmentation.h, for pods that ask for thousandths.
double ByDefinition(const NodeView& node, const Demand& pod) {
  double idle = 0, useless = 0;
  int enough = 0;
  for (const GpuState& gpu : node.gpus) idle += gpu.slack;
  if (pod.gpu_demands.empty() || node->cpu_free < pod.cpu_milli) return idle;
  for (const GpuState& gpu : node.gpus) {
    const bool room = pod.AllowsModel(gpu.model) && gpu.slack >= pod.gpu_demands[0].milli.count() &&
                      gpu.slack > 0;
    enough += room;
    useless += room ? 0 : gpu.slack;
  }
  return enough < pod.gpu_demands[0].count ? idle : useless;
}

class FragmentationTest : public ::testing::Test {
 protected:
  Demand RandomDemand() {
    Demand demand;
    demand.cpu_milli = static_cast<int64_t>(random_.Below(8)) * 1000;
    const uint64_t kind = random_.Below(4);
    if (kind == 0) return demand;
    GpuDemand gpu_demand{.milli = kWholeGpu};
    if (kind == 1) gpu_demand.count = 1 << random_.Below(4);
    if (kind > 1) gpu_demand.milli = MilliGpu(static_cast<int64_t>(1 + random_.Below(999)));
    demand.gpu_demands = {gpu_demand};
    if (random_.Below(4) == 0) demand.models.set(*cluster_.ModelOf("T4"));
    return demand;
  }

  void AddNode(bool mixed) {
    NodeSpec spec{.name = std::to_string(cluster_.size()), .cpu_milli = 16'000};
    for (uint64_t n = 1 + random_.Below(8); n > 0; --n) {
      const bool other = mixed ? random_.Below(2) == 0 : cluster_.size() % 2 == 0;
      spec.gpus.push_back({.model = other ? "T4" : "A10"});
    }
    ASSERT_TRUE(cluster_.AddNode(std::move(spec)).ok());
  }

  void FillSome() {
    for (int n = 0; n < 400; ++n) {
      const ShapeId shape = *cluster_.Intern(RandomDemand());
      const NodeId node = static_cast<NodeId>(random_.Below(cluster_.size()));
      Pick pick;
      if (PickTightest(cluster_.node(node), cluster_.demand(shape), &pick)) {
        ASSERT_TRUE(cluster_.Place(shape, node, pick).ok());
      }
    }
  }

  Cluster cluster_;
  Random random_{11};
};

TEST_F(FragmentationTest, IsTheMeanOfTheDefinitionOverTheMix) {
  for (int n = 0; n < 60; ++n) AddNode(n % 5 == 0);
  FillSome();
  std::vector<MixEntry> mix;
  double total = 0;
  for (int n = 0; n < 30; ++n) {
    mix.push_back({*cluster_.Intern(RandomDemand()), 1.0 + static_cast<double>(n)});
    total += mix.back().weight;
  }
  Fragmentation fragmentation(cluster_, mix);
  for (NodeId node = 0; node < cluster_.size(); ++node) {
    double mean = 0;
    for (const MixEntry& entry : mix) {
      mean +=
          entry.weight / total * ByDefinition(cluster_.node(node), cluster_.demand(entry.shape));
    }
    EXPECT_NEAR(fragmentation.Of(cluster_.node(node)), mean, 0.02) << node;
  }
}

TEST_F(FragmentationTest, PodsThatRequestBytesCountByTheirShareOfEachGpu) {
  NodeSpec spec{.name = "n", .cpu_milli = 1000};
  spec.gpus = {{.memory = GiB(16)}, {.memory = GiB(32)}};
  ASSERT_TRUE(cluster_.AddNode(spec).ok());
  Demand demand;
  demand.gpu_demands = {{.bytes = GiB(24)}};
  const MixEntry entry{*cluster_.Intern(demand), 1};
  // The pod fits on the second GPU only.
  EXPECT_DOUBLE_EQ(Fragmentation(cluster_, {&entry, 1}).Of(cluster_.node(0)), 1000);
}

TEST_F(FragmentationTest, NothingIsFragmentedWithoutAMix) {
  AddNode(false);
  EXPECT_EQ(Fragmentation(cluster_, {}).Of(cluster_.node(0)), 0);
}

// FGD is the difference of this measure before and after a placement, in whole points.
TEST_F(FragmentationTest, FgdScoresTheFragmentationThatAPlacementAdds) {
  for (int n = 0; n < 30; ++n) AddNode(false);
  std::vector<MixEntry> mix;
  for (int n = 0; n < 20; ++n) mix.push_back({*cluster_.Intern(RandomDemand()), 1});
  FillSome();
  Fragmentation fragmentation(cluster_, mix);
  const auto policy = *MakePolicy("FGD", cluster_, {.mix = mix});
  for (int n = 0; n < 50; ++n) {
    const ShapeId shape = *cluster_.Intern(RandomDemand());
    const std::vector<float> scores(policy->Scores(shape).begin(), policy->Scores(shape).end());
    for (NodeId node = 0; node < cluster_.size(); ++node) {
      const auto pick = policy->PickOn(shape, node);
      ASSERT_EQ(pick.has_value(), scores[node] != kUnfit);
      if (!pick) continue;
      const double before = fragmentation.Of(cluster_.node(node));
      const PodId pod = *cluster_.Place(shape, node, *pick);
      const double gain = before - fragmentation.Of(cluster_.node(node));
      ASSERT_TRUE(cluster_.Remove(pod).ok());
      EXPECT_EQ(scores[node], std::floor(100 / (1 + std::exp(-gain / 1000))));
    }
  }
}

// One GPU is idle, and 200 thousandths are left on the other.
class IrregularPodTest : public ::testing::Test {
 protected:
  IrregularPodTest() {
    NodeSpec spec{.name = "n", .cpu_milli = 1000};
    spec.gpus = {{.uuid = "GPU-0"}, {.uuid = "GPU-1"}};
    node_ = *cluster_.AddNode(spec);
    const ShapeId share = *cluster_.Intern({.gpu_demands = {{.milli = MilliGpu(800)}}});
    (void)*cluster_.Adopt(share, node_, {{0b10}});
  }
  double Fragmented(const Demand& demand) {
    const MixEntry entry{*cluster_.Intern(demand), 1};
    return Fragmentation(cluster_, {&entry, 1}).Of(cluster_.node(node_));
  }

  Cluster cluster_;
  NodeId node_ = 0;
};

TEST_F(IrregularPodTest, OnlyTheRestIsUselessToARegularPod) {
  EXPECT_EQ(Fragmented({.gpu_demands = {{.milli = MilliGpu(500)}}}), 200);
  EXPECT_EQ(Fragmented({.gpu_demands = {{.milli = MilliGpu(200)}}}), 0);
}

TEST_F(IrregularPodTest, EachDemandNeedsAGpuForTheLargest) {
  EXPECT_EQ(Fragmented({.gpu_demands = {{.milli = MilliGpu(300)}, {.milli = MilliGpu(500)}}}),
            1200);
  EXPECT_EQ(Fragmented({.gpu_demands = {{.milli = MilliGpu(100)}, {.milli = MilliGpu(200)}}}), 0);
}

TEST_F(IrregularPodTest, SharesOfSeveralGpusNeedAllOfThem) {
  EXPECT_EQ(Fragmented({.gpu_demands = {{.count = 2, .milli = MilliGpu(300)}}}), 1200);
  EXPECT_EQ(Fragmented({.gpu_demands = {{.count = 2, .milli = MilliGpu(200)}}}), 0);
}

TEST_F(IrregularPodTest, AGpuThatThePodDoesNotAllowIsUseless) {
  EXPECT_EQ(Fragmented({.gpu_demands = {{.milli = MilliGpu(500)}},
                        .gpu_filter = cluster_.FindGpus("GPU-1")}),
            1200);
}

TEST_F(IrregularPodTest, WholeDevicesAreUselessToAPodThatWantsASlice) {
  Demand slice{.gpu_demands = {{.milli = kWholeGpu}}};
  slice.gpu_demands[0].kind = *cluster_.KindOf("1g.10gb");
  EXPECT_EQ(Fragmented(slice), 1200);
}

}  // namespace
}  // namespace tessera::placement
