// SPDX-License-Identifier: Apache-2.0
// What the default policy promises beyond what policies_property_test.cc holds every policy to.
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <memory>
#include <random>

#include "src/placement/linked_groups.h"
#include "src/placement/policies/forecast.h"
#include "src/placement/policies/turnover.h"
#include "src/placement/policies/waste_model.h"
#include "src/placement/policy.h"
#include "src/placement/sample_nodes.h"
#include "src/placement/sample_topologies.h"

namespace tessera::placement {
namespace {

using testing::Ask;

std::vector<MixPod> SomeMix() {
  return {{.weight = 3, .count = 1, .milli = 810, .cpu_milli = 3000, .memory = GiB(8).count()},
          {.weight = 4, .count = 1, .milli = 1000, .cpu_milli = 11000, .memory = GiB(30).count()},
          {.weight = 2, .count = 1, .milli = 190, .cpu_milli = 8000, .memory = GiB(4).count()},
          {.weight = 1, .count = 2, .milli = 1000, .cpu_milli = 16000, .memory = GiB(60).count()},
          {.weight = 1, .count = 0, .milli = 0, .cpu_milli = 9000, .memory = GiB(16).count()}};
}

std::unique_ptr<WasteModel> Model(std::vector<MixPod> mix, size_t models = 2) {
  auto model = std::make_unique<WasteModel>(std::move(mix), models);
  while (model->Step()) {
  }
  return model;
}

float Closed(const WasteModel& model, const std::vector<int16_t>& slack, int64_t cpu,
             Bytes memory = GiB(10000)) {
  WasteSums sums;
  for (const int16_t one : slack) model.Add(1, one, 1, &sums);
  return model.ClosedForm(sums, cpu, memory.count());
}

NodeKey Key(const std::vector<int16_t>& slack, int64_t cpu, Bytes memory = GiB(10000)) {
  return NodeKey::Of(1, cpu, memory.count(), slack.data(), slack.size());
}

TEST(WasteModelTest, WithoutCpuAllIsWaste) {
  const auto model = Model(SomeMix());
  EXPECT_NEAR(Closed(*model, {1000, 500}, 0), 1500, 1);
  EXPECT_EQ(model->RollOuts(Key({1000, 500}, 0)), 1500);
}

TEST(WasteModelTest, WithoutMemoryAllIsWaste) {
  const auto model = Model(SomeMix());
  EXPECT_NEAR(Closed(*model, {1000, 500}, 1000000, Bytes(0)), 1500, 1);
  EXPECT_EQ(model->RollOuts(Key({1000, 500}, 1000000, Bytes(0))), 1500);
}

TEST(WasteModelTest, ARestThatAPodOfTheMixFillsIsNoWaste) {
  const auto model = Model(SomeMix());
  EXPECT_LT(Closed(*model, {190}, 1000000), 20);
  EXPECT_NEAR(Closed(*model, {189}, 1000000), 189, 1);
  EXPECT_EQ(model->RollOuts(Key({190}, 1000000)), 0);
  EXPECT_EQ(model->RollOuts(Key({189}, 1000000)), 189);
}

TEST(WasteModelTest, MoreCpuIsNeverMoreWaste) {
  const auto model = Model(SomeMix());
  float before = 1e9;
  for (int64_t cpu = 0; cpu < 200000; cpu += 500) {
    const float now = Closed(*model, {1000, 1000, 810, 190}, cpu);
    EXPECT_LE(now, before + 0.01f) << cpu;
    before = now;
  }
}

TEST(WasteModelTest, ModelsThatNobodyMayUseAreWaste) {
  std::vector<MixPod> mix = SomeMix();
  for (MixPod& pod : mix) pod.models.set(0);
  const auto model = Model(mix);
  EXPECT_NEAR(Closed(*model, {1000}, 1000000), 1000, 1);
  EXPECT_EQ(model->RollOuts(Key({1000}, 1000000)), 1000);
}

TEST(WasteModelTest, ValuesDoNotDependOnWhatWasAskedBefore) {
  std::mt19937 random(5);
  const auto busy = Model(SomeMix());
  std::vector<NodeKey> keys;
  for (int i = 0; i < 40000; ++i) {  // more than the cache holds
    std::vector<int16_t> slack;
    for (size_t gpus = random() % 9; gpus > 0; --gpus) {
      slack.push_back(static_cast<int16_t>(random() % 1001));
    }
    keys.push_back(Key(slack, static_cast<int64_t>(random() % 100000)));
    (void)busy->RollOuts(keys.back());
  }
  const auto fresh = Model(SomeMix());
  for (size_t i = 0; i < keys.size(); i += 97) {
    EXPECT_EQ(busy->RollOuts(keys[i]), fresh->RollOuts(keys[i]));
  }
}

TEST(WasteModelTest, AKeyWithOneGpuChangedIsTheKeyOfThatNode) {
  std::mt19937 random(6);
  for (int i = 0; i < 2000; ++i) {
    std::vector<int16_t> slack;
    for (size_t gpus = 1 + random() % 16; gpus > 0; --gpus) {
      slack.push_back(static_cast<int16_t>(random() % 5 * 250));
    }
    const NodeKey key = Key(slack, 5000);
    int16_t& one = slack[random() % slack.size()];
    const int16_t from = one;
    one = static_cast<int16_t>(random() % (one + 1));
    EXPECT_EQ(key.With(from, one, 3000, GiB(1).count()), Key(slack, 3000, GiB(1)));
  }
}

class TesseraTest : public ::testing::Test {
 protected:
  NodeId AddNode(std::string name, int gpus, int64_t cpu, std::string model = "A100") {
    NodeSpec spec = testing::MakeNode(std::move(name), gpus, GiB(80), std::move(model));
    spec.cpu_milli = cpu;
    return *cluster_.AddNode(std::move(spec));
  }
  std::optional<Decision> Arrive(const Demand& demand) {
    const ShapeId shape = *cluster_.Intern(demand);
    policy_->Arrived(shape);
    const auto decision = policy_->Choose(shape);
    if (decision) pods_.push_back(*cluster_.Place(shape, decision->node, decision->pick));
    return decision;
  }
  void Leave(size_t at) {
    policy_->Departed(cluster_.Find(pods_[at])->shape);
    ASSERT_TRUE(cluster_.Remove(pods_[at]).ok());
    pods_.erase(pods_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void Learn(const Demand& demand, int times) {
    for (int i = 0; i < times; ++i) policy_->Arrived(*cluster_.Intern(demand));
  }
  double Term(const Demand& demand, NodeId node, std::string_view name) {
    for (const auto& [term, value] : policy_->Explain(*cluster_.Intern(demand), node)) {
      if (term == name) return value;
    }
    ADD_FAILURE() << "no term " << name;
    return 0;
  }

  Cluster cluster_;
  std::unique_ptr<Policy> policy_ = *MakePolicy("Tessera", cluster_, {});
  std::vector<PodId> pods_;
};

TEST_F(TesseraTest, PodsThatFillAGpuTogetherMeet) {
  for (int i = 0; i < 4; ++i) AddNode(fmt::format("n{}", i), 2, 96000);
  for (int i = 0; i < 40; ++i) {
    Learn(Ask(1, 810), 1);
    Learn(Ask(1, 190), 1);
    Learn(Ask(1, 500), 1);
  }
  const auto half = *Arrive(Ask(1, 500));
  const auto large = *Arrive(Ask(1, 810));
  const auto small = *Arrive(Ask(1, 190));
  EXPECT_EQ(small.node, large.node);
  EXPECT_EQ(small.pick, large.pick);
  const auto other = *Arrive(Ask(1, 500));
  EXPECT_EQ(other.node, half.node);
  EXPECT_EQ(other.pick, half.pick);
}

TEST_F(TesseraTest, PodsHungryForCpuGoWhereItIs) {
  const NodeId poor = AddNode("a-poor", 2, 16000);
  const NodeId rich = AddNode("b-rich", 2, 128000);
  for (int i = 0; i < 40; ++i) {
    Learn(Ask(1, 1000, Bytes(0), 4000), 1);
    Learn(Ask(1, 1000, Bytes(0), 15000), 1);
  }
  EXPECT_EQ(Arrive(Ask(1, 1000, Bytes(0), 15000))->node, rich);
  EXPECT_EQ(Arrive(Ask(1, 1000, Bytes(0), 4000))->node, poor);
}

TEST_F(TesseraTest, TheLastWholeNodeIsKeptForTheLargePodsThatCome) {
  const NodeId whole = AddNode("a", 8, 96000);
  const NodeId broken = AddNode("b", 8, 96000);
  (void)*cluster_.Adopt(*cluster_.Intern(Ask(1, 1000)), broken, testing::PickOf(1));
  for (int i = 0; i < 20; ++i) {
    Learn(Ask(8, 1000, Bytes(0), 64000), 1);
    Learn(Ask(1, 1000), 4);
  }
  for (int i = 0; i < 7; ++i) EXPECT_EQ(Arrive(Ask(1, 1000))->node, broken);
  EXPECT_LT(Term(Ask(1, 1000), whole, "places of large pods"), -4000);
  EXPECT_EQ(Arrive(Ask(8, 1000, Bytes(0), 64000))->node, whole);
}

// Where pods leave, a node with few of them is about to be whole; where none does, it is not.
TEST_F(TesseraTest, ANodeThatIsNearlyWholeIsKeptForTheLargePodsThatCome) {
  const NodeId few = AddNode("a", 8, 96000);
  const NodeId many = AddNode("b", 8, 96000);
  const Demand one = Ask(1, 1000, Bytes(0), 1000);
  const ShapeId shape = *cluster_.Intern(one);
  (void)*cluster_.Adopt(shape, few, testing::PickOf(1));
  for (uint64_t gpu = 1; gpu < 32; gpu *= 2) {
    (void)*cluster_.Adopt(shape, many, testing::PickOf(gpu));
  }
  Learn(Ask(8, 1000, Bytes(0), 64000), 40);
  Learn(one, 160);
  const auto price = [&](NodeId node) { return Term(one, node, "places of large pods"); };
  EXPECT_EQ(price(few), 0);
  EXPECT_EQ(price(many), 0);
  const NodeId busy = AddNode("c", 8, 96000);
  for (int i = 0; i < 400; ++i) {
    const PodId pod = *cluster_.Adopt(shape, busy, testing::PickOf(1));
    policy_->Arrived(i % 5 == 0 ? *cluster_.Intern(Ask(8, 1000, Bytes(0), 64000)) : shape);
    pods_.push_back(pod);
    if (pods_.size() > 4) Leave(0);
  }
  EXPECT_LT(price(few), -100);
  EXPECT_GT(price(many), price(few) / 2);
}

TEST_F(TesseraTest, AFittingPodIsNeverRefusedForOnesToCome) {
  AddNode("a", 8, 96000);
  Learn(Ask(8, 1000), 100);
  EXPECT_TRUE(Arrive(Ask(1, 10)));
}

TEST_F(TesseraTest, UntypedPodsKeepAwayFromModelsThatTypedPodsFill) {
  const NodeId scarce = AddNode("a", 4, 96000, "H100");
  const NodeId plenty = AddNode("b", 4, 96000, "T4");
  Demand typed = Ask(1, 1000);
  typed.models.set(*cluster_.ModelOf("H100"));
  for (int i = 0; i < 30; ++i) {
    Learn(typed, 1);
    Learn(Ask(1, 1000), 1);
  }
  EXPECT_LT(Term(Ask(1, 1000), scarce, "scarce model"), -300);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Arrive(Ask(1, 1000))->node, plenty);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Arrive(typed)->node, scarce);
}

TEST_F(TesseraTest, MemoryOfGpusIsPricedAsComputeIs) {
  AddNode("a", 4, 96000);
  for (int i = 0; i < 60; ++i) Learn(Ask(1, 0, GiB(40)), 1);
  const auto first = *Arrive(Ask(1, 0, GiB(40)));
  const auto second = *Arrive(Ask(1, 0, GiB(40)));
  EXPECT_EQ(first.pick, second.pick);
  const auto third = *Arrive(Ask(1, 0, GiB(40)));
  EXPECT_NE(third.pick, first.pick);
}

TEST_F(TesseraTest, PodsOfSeveralGpusGetTheBestLinkedOnesOfTheCluster) {
  const auto add = [&](std::string name, Topology topology) {
    NodeSpec spec = testing::MakeNode(std::move(name), 8);
    spec.groups = std::make_shared<const LinkedGroups>(std::move(topology));
    return *cluster_.AddNode(std::move(spec));
  };
  add("a", testing::PcieOnly(8));
  const NodeId linked = add("b", testing::NvLinkPairs(8));
  Learn(Ask(1, 1000), 30);
  const auto decision = *Arrive(Ask(2, 1000));
  EXPECT_EQ(decision.node, linked);
  const uint64_t mask = decision.pick.masks[0];
  EXPECT_TRUE(mask == 0b11 || mask == 0b1100 || mask == 0b110000 || mask == 0b11000000) << mask;
}

// The nodes of deploy/simulated/nodes.txt, as the profiles of simgpu link their GPUs.
class TesseraQuickstartTest : public TesseraTest {
 protected:
  TesseraQuickstartTest() {
    const auto nvswitch = [](uint8_t links) {
      return [=](int, int) { return device::Link{.nvlinks = links, .via_nvswitch = true}; };
    };
    a100_ = Add("n1", "A100", 8, nvswitch(12));
    t4_ = Add("n2", "T4", 4,
              [](int, int) { return device::Link{.pcie = device::PcieLevel::kHostBridge}; });
    h200_ = Add("n3", "H200", 2, nvswitch(18));
  }
  bool Joined(const Decision& decision) {
    return cluster_.node(decision.node)->groups->Joined(decision.pick.masks[0]);
  }
  static Demand Gpus(int count) { return Ask(count, 1000, Bytes(0), 100); }
  void Fill(NodeId node, uint64_t gpus) {
    const Demand demand = Gpus(std::popcount(gpus));
    pods_.push_back(*cluster_.Place(*cluster_.Intern(demand), node, testing::PickOf(gpus)));
  }

  NodeId a100_, t4_, h200_;

 private:
  NodeId Add(std::string name, std::string model, int gpus,
             const std::function<device::Link(int, int)>& link) {
    NodeSpec spec = testing::MakeNode(std::move(name), gpus, GiB(80), std::move(model));
    spec.cpu_milli = 2000;
    spec.memory = GiB(8);
    spec.groups = std::make_shared<const LinkedGroups>(testing::MakeTopology(gpus, 1, link));
    return *cluster_.AddNode(std::move(spec));
  }
};

TEST_F(TesseraQuickstartTest, APairOrAGroupOfFourIsJoinedByNvLink) {
  for (const int learnt : {0, 16, 200}) {
    Learn(Gpus(1), learnt);
    for (const int count : {2, 4}) {
      const auto decision = *Arrive(Gpus(count));
      EXPECT_EQ(decision.node, count == 4 ? a100_ : h200_) << "no place for eight is lost there";
      EXPECT_TRUE(Joined(decision));
      Leave(0);
    }
  }
}

TEST_F(TesseraQuickstartTest, APairIsWorthTheLastPlaceForEight) {
  Learn(Gpus(1), 16);
  Fill(h200_, 0b1);
  EXPECT_LT(Term(Gpus(2), a100_, "places of large pods"), -2000);
  EXPECT_EQ(Arrive(Gpus(2))->node, a100_);
}

TEST_F(TesseraQuickstartTest, WithoutRoomOnLinkedGpusAPairTakesOthers) {
  Fill(h200_, 0b1);
  Fill(a100_, 0b11111110);
  const auto decision = *Arrive(Gpus(2));
  EXPECT_EQ(decision.node, t4_);
  EXPECT_FALSE(Joined(decision));
}

TEST_F(TesseraQuickstartTest, OneGpuAndSharesLeaveLinkedOnesToOthers) {
  EXPECT_EQ(Arrive(Gpus(1))->node, t4_);
  EXPECT_EQ(Arrive(Ask(1, 500, Bytes(0), 100))->node, t4_);
  EXPECT_EQ(Arrive(Ask(1, 300, GiB(60), 100))->node, t4_);
  EXPECT_EQ(Term(Gpus(1), h200_, "links"), -50);
  EXPECT_EQ(Term(Gpus(1), t4_, "links"), 0);
  Fill(h200_, 0b1);
  EXPECT_EQ(Term(Gpus(1), h200_, "links"), 0) << "the other has lost its partner already";
}

TEST_F(TesseraTest, TermsSumUpToTheScoreAlsoOfNodesThatWereNotLookedAtTwice) {
  std::mt19937 random(21);
  for (int i = 0; i < 80; ++i) {
    const NodeId node = AddNode(fmt::format("n{}", i), 8, 1000 * (20 + i));
    for (int gpu = 0; gpu < i % 8; ++gpu) {
      const ShapeId shape = *cluster_.Intern(Ask(1, 100 * (1 + static_cast<int>(random() % 9))));
      (void)*cluster_.Adopt(shape, node, testing::PickOf(uint64_t{1} << gpu));
    }
  }
  for (int i = 0; i < 100; ++i) Learn(Ask(1, 100 * (1 + i % 10), Bytes(0), 500 * (i % 7)), 1);
  int clipped = 0;
  for (const Demand& demand : {Ask(1, 300), Ask(1, 1000), Ask(2, 1000)}) {
    const ShapeId shape = *cluster_.Intern(demand);
    const auto of_all = policy_->Scores(shape);
    const std::vector<float> scores(of_all.begin(), of_all.end());
    for (NodeId node = 0; node < cluster_.size(); ++node) {
      if (scores[node] == kUnfit) continue;
      double sum = 0;
      for (const auto& [term, value] : policy_->Explain(shape, node)) {
        sum += value;
        clipped += term == "not looked at twice";
      }
      EXPECT_NEAR(sum, scores[node], 0.01) << node;
    }
  }
  EXPECT_GT(clipped, 0);
}

// Every 16th arrival prices are set anew; there a policy that was asked all the time and one that
// was not agree.
TEST_F(TesseraTest, ScoresKeptOverChangesEqualScoresMadeAnew) {
  std::mt19937 random(9);
  for (int i = 0; i < 30; ++i) {
    AddNode(fmt::format("n{}", i), static_cast<int>(random() % 9), 8000 * (random() % 13),
            random() % 2 ? "A100" : "T4");
  }
  const auto silent = *MakePolicy("Tessera", cluster_, {});
  std::vector<ShapeId> shapes;
  for (int i = 1; i <= 1600; ++i) {
    Demand demand = random() % 2 ? Ask(1, 50 * static_cast<int>(1 + random() % 19), Bytes(0),
                                       500 * static_cast<int64_t>(random() % 20))
                                 : Ask(1 << random() % 4, 1000);
    if (random() % 5 == 0) demand.models.set(*cluster_.ModelOf("T4"));
    if (random() % 7 == 0) demand.asks[0].bytes = GiB(random() % 80);
    shapes.push_back(*cluster_.Intern(demand));
    silent->Arrived(shapes.back());
    (void)Arrive(demand);
    while (pods_.size() > 60) {
      std::swap(pods_[random() % pods_.size()], pods_.back());
      const ShapeId shape = cluster_.Find(pods_.back())->shape;
      for (Policy* policy : {policy_.get(), silent.get()}) policy->Departed(shape);
      ASSERT_TRUE(cluster_.Remove(pods_.back()).ok());
      pods_.pop_back();
    }
    if (i % 160 != 0) continue;
    // Prices follow arrivals: one more, so that both set them for the cluster as it is now.
    for (Policy* policy : {policy_.get(), silent.get()}) {
      for (int n = 0; n < 16; ++n) policy->Arrived(shapes[0]);
    }
    for (size_t n = 0; n < shapes.size(); n += 37) {
      const auto kept = policy_->Scores(shapes[n]);
      const auto anew = silent->Scores(shapes[n]);
      ASSERT_EQ(std::vector<float>(kept.begin(), kept.end()),
                std::vector<float>(anew.begin(), anew.end()))
          << i << " " << n;
    }
  }
}

TEST(TurnoverTest, IsTheShareOfThePodsThatLeavesInHalfALife) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(testing::MakeNode("a", 1));
  const ShapeId shape = *cluster.Intern(Ask(1, 1));
  std::vector<PodId> pods;
  for (int i = 0; i < 256; ++i) pods.push_back(*cluster.Adopt(shape, node, testing::PickOf(1)));
  Turnover turnover(cluster);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(turnover.Arrived());
  EXPECT_EQ(turnover.FreeOf(0), 1);
  EXPECT_EQ(turnover.FreeOf(1), 0);
  turnover.Departed();
  (void)turnover.Arrived();
  // One in four leaves before the 128 arrivals of half a life, and others come.
  for (size_t i = 0; i < pods.size(); i += 4) {
    ASSERT_TRUE(cluster.Remove(pods[i]).ok());
    (void)*cluster.Adopt(shape, node, testing::PickOf(1));
  }
  int changes = 0;
  for (int i = 0; i < 200; ++i) changes += turnover.Arrived();
  EXPECT_EQ(changes, 1);
  EXPECT_FLOAT_EQ(turnover.FreeOf(1), 0.25);
  EXPECT_FLOAT_EQ(turnover.FreeOf(2), 0.0625);
  EXPECT_EQ(turnover.FreeOf(4), 0);
}

TEST(ForecastTest, MoreSizesThanAreCountedApartDoNoHarm) {
  Cluster cluster;
  (void)*cluster.AddNode(testing::MakeNode("a", 8));
  const auto policy = *MakePolicy("Tessera", cluster, {});
  for (int i = 0; i < 500; ++i) {
    Demand demand = Ask(2 + i % 7, 1000, Bytes(0), 8000 * (i % 40));
    const ShapeId shape = *cluster.Intern(demand);
    policy->Arrived(shape);
    (void)policy->Choose(shape);
  }
  EXPECT_TRUE(policy->Choose(*cluster.Intern(Ask(1, 100))));
}

}  // namespace
}  // namespace tessera::placement
