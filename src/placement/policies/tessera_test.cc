// SPDX-License-Identifier: Apache-2.0
// Properties of the default policy beyond those of policies_property_test.cc.
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
#include "src/placement/testing/sample_nodes.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;

std::vector<MixPod> SomeMix() {
  return {{.weight = 3, .count = 1, .milli = 810, .cpu_milli = 3000, .memory = GiB(8).count()},
          {.weight = 4, .count = 1, .milli = 1000, .cpu_milli = 11000, .memory = GiB(30).count()},
          {.weight = 2, .count = 1, .milli = 190, .cpu_milli = 8000, .memory = GiB(4).count()},
          {.weight = 1, .count = 2, .milli = 1000, .cpu_milli = 16000, .memory = GiB(60).count()},
          {.weight = 1, .count = 0, .milli = 0, .cpu_milli = 9000, .memory = GiB(16).count()}};
}

constexpr int64_t kDeviceMemory = int64_t{80} << 30;

// Builds a WasteModel without the excluded parts. The GPU model with ID 1 has kDeviceMemory.
std::unique_ptr<WasteModel> Model(std::vector<MixPod> mix, PolicyParts excluded_parts = {}) {
  auto model = std::make_unique<WasteModel>(std::move(mix), std::vector<int64_t>{0, kDeviceMemory},
                                            0.3, excluded_parts);
  while (model->Step()) {
  }
  return model;
}

NodeKey Key(const std::vector<int16_t>& slack, int64_t cpu, Bytes memory = GiB(10000)) {
  return NodeKey::Of(1, cpu, memory.count(), slack.data(), slack.size());
}

// Runs with each estimate alone, then with both.
class WasteModelTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  PolicyParts excluded_parts() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Estimates, WasteModelTest,
                         ::testing::Values(1 << kRollOuts, 1 << kClosedForm, 0));

TEST_P(WasteModelTest, WithoutFreeCpuAllFreeGpuCapacityIsWaste) {
  EXPECT_NEAR(Model(SomeMix(), excluded_parts())->Waste(Key({1000, 500}, 0)), 1500, 1);
}

TEST_P(WasteModelTest, WithoutFreeMemoryAllFreeGpuCapacityIsWaste) {
  EXPECT_NEAR(Model(SomeMix(), excluded_parts())->Waste(Key({1000, 500}, 1000000, Bytes(0))), 1500,
              1);
}

TEST_P(WasteModelTest, FreeGpuCapacityThatAPodOfTheMixFillsIsLessWaste) {
  const auto model = Model(SomeMix(), excluded_parts());
  EXPECT_LT(model->Waste(Key({190}, 1000000)), 60);
  EXPECT_NEAR(model->Waste(Key({189}, 1000000)), 189, 1);
}

// In a roll-out more CPU may admit a large pod early, which then leaves no room for small pods.
TEST(WasteModelPartsTest, MoreCpuIsNeverMoreWasteInTheClosedForm) {
  const auto model = Model(SomeMix(), 1 << kRollOuts);
  float before = 1e9;
  for (int64_t cpu = 0; cpu < 200000; cpu += 500) {
    const float now = model->Waste(Key({1000, 1000, 810, 190}, cpu));
    EXPECT_LE(now, before + 0.01f) << cpu;
    before = now;
  }
}

TEST_P(WasteModelTest, ModelsThatNoPodOfTheMixMayUseAreWaste) {
  std::vector<MixPod> mix = SomeMix();
  for (MixPod& pod : mix) pod.models.set(0);
  EXPECT_NEAR(Model(mix, excluded_parts())->Waste(Key({1000}, 1000000)), 1000, 1);
}

// A pod that requests a fraction of memory is treated like one that requests this fraction of
// compute.
TEST_P(WasteModelTest, DeviceMemoryCountsLikeCompute) {
  std::vector<MixPod> by_memory = SomeMix();
  for (MixPod& pod : by_memory) {
    if (pod.count == 0) continue;
    pod.bytes = kDeviceMemory / 1000 * pod.milli;
    if (pod.milli < 1000) pod.milli = 0;
  }
  const auto expected = Model(SomeMix(), excluded_parts()),
             model = Model(by_memory, excluded_parts());
  for (const int16_t slack : {190, 500, 810, 1000}) {
    EXPECT_EQ(model->Waste(Key({slack, 1000}, 60000)), expected->Waste(Key({slack, 1000}, 60000)));
  }
}

TEST_P(WasteModelTest, PodsThatNeedTooMuchDeviceMemoryFillNothing) {
  const auto model = Model({{.weight = 1, .count = 1, .milli = 100, .bytes = kDeviceMemory + 1}},
                           excluded_parts());
  EXPECT_EQ(model->Waste(Key({1000}, 1000000)), 1000);
}

TEST(WasteModelPartsTest, PodsWithoutGpusCompeteForCpuInRollOuts) {
  std::vector<MixPod> cpu_heavy_mix = SomeMix();
  cpu_heavy_mix.back().weight = 40;
  const NodeKey key = Key({1000, 1000, 1000, 1000}, 64000);
  const PolicyParts roll_outs_only = 1 << kClosedForm, closed_form_only = 1 << kRollOuts;
  // In roll-outs, more pods without GPUs leave less CPU for pods with GPUs.
  EXPECT_GT(Model(cpu_heavy_mix, roll_outs_only)->Waste(key),
            Model(SomeMix(), roll_outs_only)->Waste(key) + 500);
  // If pods without GPUs request most of the CPU, the roll-outs have most of the weight.
  EXPECT_NEAR(Model(cpu_heavy_mix)->Waste(key), Model(cpu_heavy_mix, roll_outs_only)->Waste(key),
              300);
  // The closed form ignores pods without GPUs.
  EXPECT_LT(Model(cpu_heavy_mix, closed_form_only)->Waste(key),
            Model(cpu_heavy_mix, roll_outs_only)->Waste(key) - 500);
}

TEST(WasteModelPartsTest, ValuesDoNotDependOnEarlierCalls) {
  std::mt19937 random(5);
  const auto busy = Model(SomeMix());
  std::vector<NodeKey> keys;
  for (int i = 0; i < 100000; ++i) {  // more than the cache holds
    std::vector<int16_t> slack;
    for (size_t gpus = random() % 9; gpus > 0; --gpus) {
      slack.push_back(static_cast<int16_t>(random() % 1001));
    }
    keys.push_back(Key(slack, static_cast<int64_t>(random() % 100000)));
    (void)busy->Waste(keys.back());
  }
  const auto fresh = Model(SomeMix());
  const auto without_cache = Model(SomeMix(), 1 << kMemo);
  for (size_t i = 0; i < keys.size(); i += 97) {
    const float waste = fresh->Waste(keys[i]);
    EXPECT_EQ(busy->Waste(keys[i]), waste);
    EXPECT_EQ(without_cache->Waste(keys[i]), waste);
  }
}

class TesseraTest : public ::testing::Test {
 protected:
  NodeId AddNode(std::string name, int gpus, int64_t cpu, std::string model = "A100") {
    NodeSpec spec = testing::MakeNode(std::move(name), gpus, GiB(80), std::move(model));
    spec.cpu_milli = cpu;
    return *cluster_.AddNode(std::move(spec));
  }
  std::optional<Placement> Arrive(const Demand& demand) {
    const ShapeId shape = *cluster_.Intern(demand);
    policy_->OnArrival(shape);
    const auto decision = policy_->Choose(shape);
    if (decision) pods_.push_back(*cluster_.Place(shape, decision->node, decision->pick));
    return decision;
  }
  void Leave(size_t at) {
    policy_->OnDeparture(cluster_.Find(pods_[at])->shape);
    ASSERT_TRUE(cluster_.Remove(pods_[at]).ok());
    pods_.erase(pods_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void Learn(const Demand& demand, int times) {
    for (int i = 0; i < times; ++i) policy_->OnArrival(*cluster_.Intern(demand));
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

TEST_F(TesseraTest, PodsThatFillAGpuTogetherShareIt) {
  for (int i = 0; i < 4; ++i) AddNode(fmt::format("n{}", i), 2, 96000);
  for (int i = 0; i < 40; ++i) {
    Learn(MakeDemand(1, 810), 1);
    Learn(MakeDemand(1, 190), 1);
    Learn(MakeDemand(1, 500), 1);
  }
  const auto half = *Arrive(MakeDemand(1, 500));
  const auto large = *Arrive(MakeDemand(1, 810));
  const auto small = *Arrive(MakeDemand(1, 190));
  EXPECT_EQ(small.node, large.node);
  EXPECT_EQ(small.pick, large.pick);
  const auto other = *Arrive(MakeDemand(1, 500));
  EXPECT_EQ(other.node, half.node);
  EXPECT_EQ(other.pick, half.pick);
}

TEST_F(TesseraTest, CpuIntensivePodsGoToNodesWithCpu) {
  const NodeId poor = AddNode("a-poor", 2, 16000);
  const NodeId rich = AddNode("b-rich", 2, 128000);
  for (int i = 0; i < 40; ++i) {
    Learn(MakeDemand(1, 1000, Bytes(0), 4000), 1);
    Learn(MakeDemand(1, 1000, Bytes(0), 15000), 1);
  }
  EXPECT_EQ(Arrive(MakeDemand(1, 1000, Bytes(0), 15000))->node, rich);
  EXPECT_EQ(Arrive(MakeDemand(1, 1000, Bytes(0), 4000))->node, poor);
}

TEST_F(TesseraTest, TheLastWholeNodeIsReservedForLargePods) {
  const NodeId whole = AddNode("a", 8, 96000);
  const NodeId partly_used = AddNode("b", 8, 96000);
  (void)*cluster_.Adopt(*cluster_.Intern(MakeDemand(1, 1000)), partly_used, testing::PickOf(1));
  for (int i = 0; i < 20; ++i) {
    Learn(MakeDemand(8, 1000, Bytes(0), 64000), 1);
    Learn(MakeDemand(1, 1000), 4);
  }
  for (int i = 0; i < 7; ++i) EXPECT_EQ(Arrive(MakeDemand(1, 1000))->node, partly_used);
  EXPECT_LT(Term(MakeDemand(1, 1000), whole, "slots of large pods"), -4000);
  EXPECT_EQ(Arrive(MakeDemand(8, 1000, Bytes(0), 64000))->node, whole);
}

// If pods leave, a node with few pods is nearly whole; if none leaves, it is not.
TEST_F(TesseraTest, ANearlyWholeNodeIsReservedForLargePods) {
  const NodeId few = AddNode("a", 8, 96000);
  const NodeId many = AddNode("b", 8, 96000);
  const Demand one = MakeDemand(1, 1000, Bytes(0), 1000);
  const ShapeId shape = *cluster_.Intern(one);
  (void)*cluster_.Adopt(shape, few, testing::PickOf(1));
  for (uint64_t gpu = 1; gpu < 32; gpu *= 2) {
    (void)*cluster_.Adopt(shape, many, testing::PickOf(gpu));
  }
  Learn(MakeDemand(8, 1000, Bytes(0), 64000), 40);
  Learn(one, 160);
  const auto price = [&](NodeId node) { return Term(one, node, "slots of large pods"); };
  EXPECT_EQ(price(few), 0);
  EXPECT_EQ(price(many), 0);
  const NodeId busy = AddNode("c", 8, 96000);
  for (int i = 0; i < 400; ++i) {
    const PodId pod = *cluster_.Adopt(shape, busy, testing::PickOf(1));
    policy_->OnArrival(i % 5 == 0 ? *cluster_.Intern(MakeDemand(8, 1000, Bytes(0), 64000)) : shape);
    pods_.push_back(pod);
    if (pods_.size() > 4) Leave(0);
  }
  EXPECT_LT(price(few), -100);
  EXPECT_GT(price(many), price(few) / 2);
}

TEST_F(TesseraTest, AFittingPodIsNeverRejectedForFuturePods) {
  AddNode("a", 8, 96000);
  Learn(MakeDemand(8, 1000), 100);
  EXPECT_TRUE(Arrive(MakeDemand(1, 10)));
}

TEST_F(TesseraTest, PodsThatNameNoModelAvoidModelsThatOtherPodsFill) {
  const NodeId scarce = AddNode("a", 4, 96000, "H100");
  const NodeId plenty = AddNode("b", 4, 96000, "T4");
  Demand h100_only = MakeDemand(1, 1000);
  h100_only.models.set(*cluster_.ModelOf("H100"));
  for (int i = 0; i < 30; ++i) {
    Learn(h100_only, 1);
    Learn(MakeDemand(1, 1000), 1);
  }
  EXPECT_LT(Term(MakeDemand(1, 1000), scarce, "scarce model"), -300);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Arrive(MakeDemand(1, 1000))->node, plenty);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Arrive(h100_only)->node, scarce);
}

TEST_F(TesseraTest, SharesOfDeviceMemoryArePackedLikeCompute) {
  const NodeId node = AddNode("a", 4, 96000);
  const Demand half = MakeDemand(1, 0, GiB(40));
  (void)*cluster_.Adopt(*cluster_.Intern(half), node, testing::PickOf(0b1000));
  for (int i = 0; i < 60; ++i) Learn(half, 1);
  EXPECT_EQ(Arrive(half)->pick, testing::PickOf(0b1000)) << "half of GPU 3 is free";
  const auto first = *Arrive(half);
  EXPECT_EQ(Arrive(half)->pick, first.pick);
  EXPECT_NE(Arrive(half)->pick, first.pick);
}

// A pod of 30 GiB would leave 20 GiB of GPU 0, where no pod of the mix fits, or 30 GiB of GPU 1,
// which such a pod fills. Best fit would take GPU 0, because it has less free memory.
TEST_F(TesseraTest, PodsWhoseMemoryFillsAGpuShareIt) {
  const NodeId node = AddNode("a", 2, 96000);
  for (int i = 0; i < 60; ++i) {
    Learn(MakeDemand(1, 0, GiB(30)), 1);
    Learn(MakeDemand(1, 0, GiB(50)), 1);
  }
  (void)*cluster_.Adopt(*cluster_.Intern(MakeDemand(1, 0, GiB(30))), node, testing::PickOf(0b01));
  (void)*cluster_.Adopt(*cluster_.Intern(MakeDemand(1, 0, GiB(20))), node, testing::PickOf(0b10));
  EXPECT_EQ(Arrive(MakeDemand(1, 0, GiB(30)))->pick, testing::PickOf(0b10));
}

TEST_F(TesseraTest, PodsThatRequestMemoryAvoidScarceModels) {
  const NodeId scarce = AddNode("a", 4, 96000, "H100");
  const NodeId plenty = AddNode("b", 4, 96000, "T4");
  Demand h100_only = MakeDemand(1, 0, GiB(80));
  h100_only.models.set(*cluster_.ModelOf("H100"));
  for (int i = 0; i < 30; ++i) {
    Learn(h100_only, 1);
    Learn(MakeDemand(1, 0, GiB(80)), 1);
  }
  EXPECT_LT(Term(MakeDemand(1, 0, GiB(80)), scarce, "scarce model"), -300);
  EXPECT_EQ(Arrive(MakeDemand(1, 0, GiB(80)))->node, plenty);
}

TEST_F(TesseraTest, PodsOfSeveralGpusGetTheBestLinkedGpus) {
  const auto add = [&](std::string name, Topology topology) {
    NodeSpec spec = testing::MakeNode(std::move(name), 8);
    spec.groups = std::make_shared<const LinkedGroups>(std::move(topology));
    return *cluster_.AddNode(std::move(spec));
  };
  add("a", testing::PcieOnly(8));
  const NodeId linked = add("b", testing::NvLinkPairs(8));
  Learn(MakeDemand(1, 1000), 30);
  const auto decision = *Arrive(MakeDemand(2, 1000));
  EXPECT_EQ(decision.node, linked);
  const uint64_t mask = decision.pick.masks[0];
  EXPECT_TRUE(mask == 0b11 || mask == 0b1100 || mask == 0b110000 || mask == 0b11000000) << mask;
}

// The nodes of deploy/simulated/nodes.txt, with the links of simgpu's profiles.
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
  bool AllPairsLinked(const Placement& decision) {
    return cluster_.node(decision.node)->groups->AllPairsLinked(decision.pick.masks[0]);
  }
  static Demand Gpus(int count) { return MakeDemand(count, 1000, Bytes(0), 100); }
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

TEST_F(TesseraQuickstartTest, APodOfTwoOrFourGpusGetsGpusLinkedByNvLink) {
  for (const int arrivals : {0, 16, 200}) {
    Learn(Gpus(1), arrivals);
    for (const int count : {2, 4}) {
      const auto decision = *Arrive(Gpus(count));
      EXPECT_EQ(decision.node, count == 4 ? a100_ : h200_)
          << "no slot for a pod of eight is lost there";
      EXPECT_TRUE(AllPairsLinked(decision));
      Leave(0);
    }
  }
}

TEST_F(TesseraQuickstartTest, ALinkedPairIsWorthTheLastSlotForAPodOfEight) {
  Learn(Gpus(1), 16);
  Fill(h200_, 0b1);
  EXPECT_LT(Term(Gpus(2), a100_, "slots of large pods"), -2000);
  EXPECT_EQ(Arrive(Gpus(2))->node, a100_);
}

TEST_F(TesseraQuickstartTest, WithoutFreeLinkedGpusAPairTakesUnlinkedGpus) {
  Fill(h200_, 0b1);
  Fill(a100_, 0b11111110);
  const auto decision = *Arrive(Gpus(2));
  EXPECT_EQ(decision.node, t4_);
  EXPECT_FALSE(AllPairsLinked(decision));
}

TEST_F(TesseraQuickstartTest, SingleGpusAndSharesAvoidLinkedGpus) {
  EXPECT_EQ(Arrive(Gpus(1))->node, t4_);
  EXPECT_EQ(Arrive(MakeDemand(1, 500, Bytes(0), 100))->node, t4_);
  EXPECT_EQ(Arrive(MakeDemand(1, 300, GiB(60), 100))->node, t4_);
  EXPECT_EQ(Term(Gpus(1), h200_, "links"), -50);
  EXPECT_EQ(Term(Gpus(1), t4_, "links"), 0);
  Fill(h200_, 0b1);
  EXPECT_EQ(Term(Gpus(1), h200_, "links"), 0) << "the other GPU has lost its partner already";
}

TEST_F(TesseraTest, TermsAddUpToTheScore) {
  std::mt19937 random(21);
  for (int i = 0; i < 80; ++i) {
    const NodeId node = AddNode(fmt::format("n{}", i), 8, 1000 * (20 + i));
    for (int gpu = 0; gpu < i % 8; ++gpu) {
      const ShapeId shape =
          *cluster_.Intern(MakeDemand(1, 100 * (1 + static_cast<int>(random() % 9))));
      (void)*cluster_.Adopt(shape, node, testing::PickOf(uint64_t{1} << gpu));
    }
  }
  for (int i = 0; i < 100; ++i)
    Learn(MakeDemand(1, 100 * (1 + i % 10), Bytes(0), 500 * (i % 7)), 1);
  for (const Demand& demand : {MakeDemand(1, 300), MakeDemand(1, 1000), MakeDemand(2, 1000)}) {
    const ShapeId shape = *cluster_.Intern(demand);
    const auto of_all = policy_->Scores(shape);
    const std::vector<float> scores(of_all.begin(), of_all.end());
    for (NodeId node = 0; node < cluster_.size(); ++node) {
      if (scores[node] == kUnfit) continue;
      double sum = 0;
      for (const auto& [term, value] : policy_->Explain(shape, node)) sum += value;
      EXPECT_NEAR(sum, scores[node], 0.01) << node;
    }
  }
}

// Prices are set at every 16th arrival. After that arrival, a policy that makes all decisions and a
// policy that makes none have equal scores.
TEST_F(TesseraTest, CachedScoresEqualRecomputedScores) {
  std::mt19937 random(9);
  for (int i = 0; i < 30; ++i) {
    AddNode(fmt::format("n{}", i), static_cast<int>(random() % 9), 8000 * (random() % 13),
            random() % 2 ? "A100" : "T4");
  }
  const auto uncalled = *MakePolicy("Tessera", cluster_, {});
  std::vector<ShapeId> shapes;
  for (int i = 1; i <= 1600; ++i) {
    Demand demand = random() % 2 ? MakeDemand(1, 50 * static_cast<int>(1 + random() % 19), Bytes(0),
                                              500 * static_cast<int64_t>(random() % 20))
                                 : MakeDemand(1 << random() % 4, 1000);
    if (random() % 5 == 0) demand.models.set(*cluster_.ModelOf("T4"));
    if (random() % 7 == 0) demand.gpu_demands[0].bytes = GiB(random() % 80);
    shapes.push_back(*cluster_.Intern(demand));
    uncalled->OnArrival(shapes.back());
    (void)Arrive(demand);
    while (pods_.size() > 60) {
      std::swap(pods_[random() % pods_.size()], pods_.back());
      const ShapeId shape = cluster_.Find(pods_.back())->shape;
      for (Policy* policy : {policy_.get(), uncalled.get()}) policy->OnDeparture(shape);
      ASSERT_TRUE(cluster_.Remove(pods_.back()).ok());
      pods_.pop_back();
    }
    if (i % 160 != 0) continue;
    // 16 more arrivals make both policies set their prices for the current cluster.
    for (Policy* policy : {policy_.get(), uncalled.get()}) {
      for (int n = 0; n < 16; ++n) policy->OnArrival(shapes[0]);
    }
    for (size_t n = 0; n < shapes.size(); n += 37) {
      const auto kept = policy_->Scores(shapes[n]);
      const auto anew = uncalled->Scores(shapes[n]);
      ASSERT_EQ(std::vector<float>(kept.begin(), kept.end()),
                std::vector<float>(anew.begin(), anew.end()))
          << i << " " << n;
    }
  }
}

TEST(TurnoverTest, IsTheFractionOfPodsThatLeaveInHalfALifetime) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(testing::MakeNode("a", 1));
  const ShapeId shape = *cluster.Intern(MakeDemand(1, 1));
  std::vector<PodId> pods;
  for (int i = 0; i < 256; ++i) pods.push_back(*cluster.Adopt(shape, node, testing::PickOf(1)));
  Turnover turnover(cluster);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(turnover.OnArrival());
  EXPECT_EQ(turnover.FreeOf(0), 1);
  EXPECT_EQ(turnover.FreeOf(1), 0);
  turnover.OnDeparture();
  (void)turnover.OnArrival();
  // There are 256 pods, so 256 arrivals are one lifetime. A quarter of the pods leaves before the
  // 128 arrivals of half a lifetime, and others take their places.
  for (size_t i = 0; i < pods.size(); i += 4) {
    ASSERT_TRUE(cluster.Remove(pods[i]).ok());
    (void)*cluster.Adopt(shape, node, testing::PickOf(1));
  }
  int changes = 0;
  for (int i = 0; i < 200; ++i) changes += turnover.OnArrival();
  EXPECT_EQ(changes, 1);
  EXPECT_FLOAT_EQ(turnover.FreeOf(1), 0.25);
  EXPECT_FLOAT_EQ(turnover.FreeOf(2), 0.0625);
  EXPECT_EQ(turnover.FreeOf(4), 0);
}

TEST_F(TesseraTest, ANewSizeOfLargePodsReplacesARareSize) {
  const NodeId whole = AddNode("a", 8, 96000);
  const NodeId partly_used = AddNode("b", 8, 96000);
  (void)*cluster_.Adopt(*cluster_.Intern(MakeDemand(1, 1000)), partly_used, testing::PickOf(1));
  for (int i = 0; i < 200; ++i)
    Learn(MakeDemand(2, 1000, Bytes(0), 8000 * i), 1);  // ever new sizes
  Learn(MakeDemand(1, 1000), 4);
  const double before = Term(MakeDemand(1, 1000), whole, "slots of large pods");
  Learn(MakeDemand(7, 1000, Bytes(0), 90000), 100);
  EXPECT_LT(Term(MakeDemand(1, 1000), whole, "slots of large pods"), before - 3000);
  EXPECT_TRUE(policy_->Choose(*cluster_.Intern(MakeDemand(1, 100))));
}

TEST_F(TesseraTest, ANewSetOfModelsReplacesARareSet) {
  const NodeId scarce = AddNode("a", 4, 96000, "H100");
  AddNode("b", 4, 96000, "T4");
  for (int i = 0; i < 100; ++i) {
    Demand rare = MakeDemand(1, 10);
    rare.models.set(*cluster_.ModelOf(fmt::format("model-{}", i)));
    rare.models.set(*cluster_.ModelOf("T4"));
    Learn(rare, 1);
  }
  Demand h100_only = MakeDemand(1, 1000);
  h100_only.models.set(*cluster_.ModelOf("H100"));
  Learn(h100_only, 100);
  EXPECT_LT(Term(MakeDemand(1, 1000), scarce, "scarce model"), -300);
}

TEST(PolicyPartsTest, ThePolicyNameCanExcludeParts) {
  Cluster cluster;
  const NodeId node = *cluster.AddNode(testing::MakeNode("a", 8));
  const auto whole = *MakePolicy("tessera", cluster, {});
  const auto without = *MakePolicy("Tessera-reservation-links", cluster, {});
  const ShapeId large = *cluster.Intern(MakeDemand(8, 1000));
  for (int i = 0; i < 50; ++i) {
    whole->OnArrival(large);
    without->OnArrival(large);
  }
  const ShapeId one = *cluster.Intern(MakeDemand(1, 1000));
  EXPECT_LT(whole->Explain(one, node)[1].second, -1000);
  EXPECT_EQ(without->Explain(one, node)[1].second, 0);
  const auto unknown = FindPolicy("Tessera-magic");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.status().message().find("rollouts, closedform, memo"), std::string::npos);
  EXPECT_FALSE(FindPolicy("FGD-links").ok());
}

}  // namespace
}  // namespace tessera::placement
