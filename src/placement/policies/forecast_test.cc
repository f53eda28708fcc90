// SPDX-License-Identifier: Apache-2.0
// Examples computed by hand check the expected arrivals and departures.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "src/placement/policies/forecast.h"
#include "src/placement/policies/turnover.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;

class TurnoverStepsTest : public ::testing::Test {
 protected:
  void StartPods(int pods) {
    node_ = *cluster_.AddNode(MakeNode("a", 1));
    shape_ = *cluster_.Intern(MakeDemand(1, 1));
    for (int i = 0; i < pods; ++i) pods_.push_back(*cluster_.Adopt(shape_, node_, PickOf(1)));
    turnover_.OnDeparture();
    EXPECT_FALSE(turnover_.OnArrival()) << "the first sample is not counted yet";
  }
  void Replace(int pods) {
    for (int i = 0; i < pods; ++i) {
      ASSERT_TRUE(cluster_.Remove(pods_.front()).ok());
      pods_.erase(pods_.begin());
      pods_.push_back(*cluster_.Adopt(shape_, node_, PickOf(1)));
    }
  }
  // Returns how many arrivals it takes until FreeOf changes; 0 if `most` do not suffice.
  int ArrivalsToChange(int most) {
    for (int i = 1; i <= most; ++i) {
      if (turnover_.OnArrival()) return i;
    }
    return 0;
  }

  Cluster cluster_;
  NodeId node_ = kNoNode;
  ShapeId shape_ = 0;
  std::vector<PodId> pods_;
  Turnover turnover_{cluster_};
};

TEST_F(TurnoverStepsTest, TheSampleIsCountedAgainAfterHalfALifetime) {
  StartPods(256);
  Replace(128);
  EXPECT_EQ(ArrivalsToChange(200), 128);
  EXPECT_EQ(turnover_.FreeOf(1), 0.5f);
  EXPECT_EQ(turnover_.FreeOf(7), 0.0078125f) << "half of a 64th of a slot still counts";
  EXPECT_EQ(turnover_.FreeOf(7.5), 0);
}

TEST_F(TurnoverStepsTest, ASteadyTurnoverIsNoChange) {
  StartPods(256);
  Replace(64);
  EXPECT_EQ(ArrivalsToChange(128), 128);
  Replace(64);
  EXPECT_EQ(ArrivalsToChange(128), 0);
  EXPECT_EQ(turnover_.FreeOf(1), 0.25f);
}

TEST_F(TurnoverStepsTest, TheMeanOfOldAndNewValuesCounts) {
  StartPods(256);
  EXPECT_EQ(ArrivalsToChange(128), 0);
  EXPECT_FALSE(turnover_.expects_departures());
  Replace(128);
  EXPECT_EQ(ArrivalsToChange(128), 128);
  EXPECT_EQ(turnover_.FreeOf(1), 0.25f);
}

TEST_F(TurnoverStepsTest, AChangeByOneInTwentyFiveCounts) {
  StartPods(100);
  Replace(4);
  EXPECT_EQ(ArrivalsToChange(64), 64);
  EXPECT_FLOAT_EQ(turnover_.FreeOf(1), 0.04f);
}

class ForecastTest : public ::testing::Test {
 protected:
  NodeId AddNode(const NodeSpec& spec) {
    const NodeId node = *cluster_.AddNode(spec);
    forecast_.OnNodeChanged(cluster_.node(node));
    return node;
  }
  void Arrive(const Demand& demand, int times = 1) {
    for (int i = 0; i < times; ++i) forecast_.OnArrival(*cluster_.Intern(demand));
  }
  void Depart(const Demand& demand, int times = 1) {
    for (int i = 0; i < times; ++i) forecast_.OnDeparture(*cluster_.Intern(demand));
  }
  // Adds ten idle GPUs of model 1.
  void AddTenGpus() {
    for (int i = 0; i < 10; ++i) forecast_.AddGpu(1, 1000, 1);
  }
  static Demand NamingModel1(Demand demand) {
    demand.models.set(1);
    return demand;
  }

  Cluster cluster_;
  Forecast forecast_{cluster_};
};

TEST(LargeSizeTest, SlotsOfCountsTheTakenSlots) {
  const LargeSize pair{.gpus = 2}, eight{.gpus = 8}, one{.gpus = 1};
  EXPECT_EQ(pair.SlotsOf(pair), 1);
  EXPECT_EQ(eight.SlotsOf(pair), 4);
  EXPECT_EQ(pair.SlotsOf(eight), 0);
  EXPECT_EQ(one.SlotsOf(one), 0) << "one GPU is no large pod";
  LargeSize with_model = pair, other = pair;
  with_model.models.set(1);
  other.models.set(2);
  EXPECT_EQ(with_model.SlotsOf(pair), 1);
  EXPECT_EQ(with_model.SlotsOf(with_model), 1);
  EXPECT_EQ(pair.SlotsOf(with_model), 0) << "a pod that names no model may go elsewhere";
  EXPECT_EQ(other.SlotsOf(with_model), 0);
}

TEST_F(ForecastTest, OnlyPodsOfSeveralWholeGpusAreLarge) {
  Arrive(MakeDemand(4, 500));
  Arrive(MakeDemand(1, 1000));
  Demand slices = MakeDemand(4, 1000);
  slices.gpu_demands[0].kind = *cluster_.KindOf("1g.10gb");
  Arrive(slices);
  EXPECT_TRUE(forecast_.classes().empty());
  Arrive(MakeDemand(2, 1000));
  ASSERT_EQ(forecast_.classes().size(), 1u);
  EXPECT_EQ(forecast_.classes()[0].arrived, 1);
}

TEST_F(ForecastTest, ANewSizeNeedsMoreDemandThanTheRarestClass) {
  // None of these sizes contains another: more CPU comes with less memory.
  const auto size = [](int i) {
    Demand demand = MakeDemand(2, 1000, Bytes(0), 8000 * i);
    demand.memory = GiB(32 * (40 - i));
    return demand;
  };
  for (int i = 1; i <= 32; ++i) Arrive(size(i));
  ASSERT_EQ(forecast_.classes().size(), kMaxClasses);
  const auto has = [&](int i) {
    return std::ranges::any_of(forecast_.classes(), [&](const LargeClass& known) {
      return known.size.cpu_milli == 8000 * i;
    });
  };
  Arrive(size(33), 2);
  EXPECT_FALSE(has(33)) << "seen once before the second arrival, like all others";
  Arrive(size(33));
  EXPECT_TRUE(has(33));
}

TEST_F(ForecastTest, TheMixHasMeansOverTheGpusOfAPod) {
  (void)*cluster_.Intern(MakeDemand(1, 10));
  (void)*cluster_.Intern(MakeDemand(1, 20));
  Demand demand = MakeDemand(1, 300, GiB(10));
  demand.gpu_demands.push_back(MakeDemand(3, 100, GiB(2)).gpu_demands[0]);
  Arrive(demand);
  const std::vector<MixPod> mix = forecast_.Mix();
  ASSERT_EQ(mix.size(), 1u) << "shapes of which no pod arrived are not in it";
  EXPECT_EQ(mix[0].count, 4);
  EXPECT_EQ(mix[0].milli, (300 + 3 * 100) / 4);
  EXPECT_EQ(mix[0].bytes, GiB(4).count());
}

TEST_F(ForecastTest, LearnsTheMemoryOfAModelFromNodes) {
  NodeSpec spec = MakeNode("a", 3);
  spec.gpus[1].memory = GiB(40);
  spec.gpus[2].mig_profile = "1g.10gb";
  spec.gpus[2].memory = GiB(90);
  AddNode(spec);
  const ModelId model = cluster_.FindModel("A100");
  EXPECT_EQ(forecast_.device_memory().at(model), GiB(80).count());
  EXPECT_EQ(forecast_.MilliOn(MakeDemand(2, 500), model), 1000);
  EXPECT_EQ(forecast_.MilliOn(MakeDemand(2, 500, GiB(60)), model), 1500);
  EXPECT_EQ(forecast_.MilliOn(MakeDemand(2, 500, GiB(100)), model), 2000)
      << "never more than the GPU";
}

TEST_F(ForecastTest, TheMeanIsOverTheModelsThatAPodMayUse) {
  NodeSpec spec = MakeNode("a", 2, GiB(80), "A100");
  spec.gpus[1].model = "T4";
  spec.gpus[1].memory = GiB(40);
  AddNode(spec);
  forecast_.AddGpu(1, 1000, 1);
  forecast_.AddGpu(2, 1000, 1);
  Arrive(NamingModel1(MakeDemand(1, 0, GiB(40))));
  EXPECT_EQ(forecast_.mean_milli(), 500);
}

TEST_F(ForecastTest, WholeNodesOfEachLargestKindAreExpected) {
  NodeSpec spec = MakeNode("a", 2);
  AddNode(spec);
  spec.name = "b";
  spec.cpu_milli = 48000;
  for (GpuSpec& gpu : spec.gpus) gpu.uuid += "b";
  AddNode(spec);
  ASSERT_EQ(forecast_.classes().size(), 2u);
  EXPECT_TRUE(forecast_.classes()[0].whole_node);
  EXPECT_TRUE(forecast_.classes()[1].whole_node);
  AddNode(MakeNode("c", 4));
  ASSERT_EQ(forecast_.classes().size(), 3u);
  EXPECT_FALSE(forecast_.classes()[0].whole_node);
  EXPECT_FALSE(forecast_.classes()[1].whole_node);
  EXPECT_TRUE(forecast_.classes()[2].whole_node);
}

TEST_F(ForecastTest, NodesThatTakeNoPodsHaveNoSlots) {
  NodeSpec spec = MakeNode("a", 8);
  AddNode(spec);
  spec.name = "b";
  spec.schedulable = false;
  for (GpuSpec& gpu : spec.gpus) gpu.uuid += "b";
  const NodeId cordoned = AddNode(spec);
  EXPECT_EQ(forecast_.SlotsOn(cluster_.node(0), 0), 1);
  EXPECT_EQ(forecast_.SlotsOn(cluster_.node(cordoned), 0), 0);
}

TEST_F(ForecastTest, BeforeTheFirstArrivalOnlyFullCapacityHasAPrice) {
  AddNode(MakeNode("a", 8));
  AddTenGpus();
  forecast_.Price({});
  EXPECT_EQ(forecast_.classes()[0].price, 8000) << "no slot is left";
  forecast_.AddSlots(0, 1, 1);
  forecast_.Price({});
  EXPECT_EQ(forecast_.classes()[0].price, 0);
}

// Four pods request 750 on average, so the cluster is full after 10000 / 750 = 13.33 arrivals. Two
// of the four name a model: in that time such pods request 6667 on average, with a variance of
// 13.33 · 2/4 · 1000² · (1 + 13.33/4). They request more than 10,000 with the chance 0.2676.
TEST_F(ForecastTest, ScarcityIsTheChanceThatPodsThatNameAModelFillIt) {
  AddTenGpus();
  Arrive(NamingModel1(MakeDemand(1, 1000)), 2);
  Arrive(MakeDemand(1, 500), 2);
  forecast_.Price({});
  EXPECT_NEAR(forecast_.scarcity(1), 0.26757, 1e-5);
  EXPECT_EQ(forecast_.scarcity(0), 0);
}

// With a departure of 500, each of the four arrivals adds 875 net, so 10,000 are full after 11.43
// arrivals.
TEST_F(ForecastTest, DeparturesDelayTheTimeWhenTheClusterIsFull) {
  AddTenGpus();
  Arrive(NamingModel1(MakeDemand(1, 1000)), 4);
  EXPECT_FALSE(forecast_.pods_depart());
  Depart(MakeDemand(1, 500));
  EXPECT_TRUE(forecast_.pods_depart());
  forecast_.Price({});
  EXPECT_NEAR(forecast_.scarcity(1), 0.58518, 1e-5);
}

// The cluster is full after 40 arrivals, which request its capacity of 40,000. Once a pod has
// departed, the horizon is 16 arrivals: they request 16,000 with a variance of 16 · 1000² · (1 +
// 16/4), so 40,000 is 2.683 deviations away.
TEST_F(ForecastTest, TheHorizonIsOneLifetimeIfPodsDepart) {
  for (int i = 0; i < 4; ++i) AddTenGpus();
  Arrive(NamingModel1(MakeDemand(1, 1000)), 4);
  forecast_.Price({});
  EXPECT_NEAR(forecast_.scarcity(1), 0.5, 1e-9);
  Depart(MakeDemand(0, 0));
  forecast_.Price({});
  EXPECT_NEAR(forecast_.scarcity(1), 0.003645, 1e-6);
}

// Four pairs arrived and one left, 1500 net, so the cluster is full after 20000 / 1500 = 13.33
// arrivals. In that time 3.33 slots become free in addition to the 3 present slots. For 4 events in
// 4 arrivals, the negative binomial has P(D >= 6.33) = 0.85251 over 13.33 arrivals.
TEST_F(ForecastTest, ASlotIsWorthTheChanceThatDemandExceedsSupply) {
  for (int i = 0; i < 2; ++i) AddTenGpus();
  Arrive(MakeDemand(2, 1000), 4);
  forecast_.AddSlots(0, 1, 3);
  Depart(MakeDemand(2, 1000));
  forecast_.Price({});
  EXPECT_NEAR(forecast_.classes()[0].price, 2000 * 0.85251, 0.1);
}

TEST_F(ForecastTest, PodsWithoutGpusMakeNoModelScarce) {
  forecast_.AddGpu(1, 0, 1);
  Arrive(NamingModel1(MakeDemand(0, 0)));
  forecast_.Price({});
  EXPECT_EQ(forecast_.scarcity(1), 0);
}

// Without running pods, 4096 departures make a new arrival weigh (1 + 1/4096)^4096 = 2.718 times as
// much.
TEST_F(ForecastTest, OldArrivalsWeighLess) {
  AddTenGpus();
  Arrive(MakeDemand(1, 1000));
  Depart(MakeDemand(1, 100), 4096);
  Arrive(MakeDemand(1, 500));
  EXPECT_NEAR(forecast_.mean_milli(), (1000 + 2.71795 * 500) / 3.71795, 0.01);
  Depart(MakeDemand(1, 100), 57000);
  EXPECT_TRUE(forecast_.Mix().empty()) << "shapes without weight are dropped";
}

}  // namespace
}  // namespace tessera::placement
