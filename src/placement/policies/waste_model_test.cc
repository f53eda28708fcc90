// SPDX-License-Identifier: Apache-2.0
// Examples computed by hand check terminal waste against docs/concepts/placement.md.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "src/placement/linked_groups.h"
#include "src/placement/policies/waste_model.h"
#include "src/placement/policy.h"
#include "src/placement/testing/sample_nodes.h"
#include "src/placement/testing/sample_topologies.h"

namespace tessera::placement {
namespace {

using testing::MakeDemand;
using testing::MakeNode;
using testing::PickOf;

// Builds a model without one of the two estimates; GPU model 1 has 80 GiB.
std::unique_ptr<WasteModel> ModelOfMix(std::vector<MixPod> mix, double early_weight,
                                       PolicyPart excluded_part) {
  PolicyParts excluded_parts;
  excluded_parts.set(excluded_part);
  auto model = std::make_unique<WasteModel>(
      std::move(mix), std::vector<int64_t>{0, GiB(80).count()}, early_weight, excluded_parts);
  while (model->Step()) {
  }
  EXPECT_FALSE(model->Step()) << "a finished model stays finished";
  return model;
}

NodeKey KeyOf(std::vector<int16_t> slack, int64_t cpu, Bytes memory = GiB(1000)) {
  return NodeKey::Of(1, cpu, memory.count(), slack.data(), slack.size());
}

double ClosedForm(std::vector<MixPod> mix, const NodeKey& key) {
  return ModelOfMix(std::move(mix), 0, kRollOuts)->Waste(key);
}

double RollOuts(std::vector<MixPod> mix, double early_weight, const NodeKey& key) {
  return ModelOfMix(std::move(mix), early_weight, kClosedForm)->Waste(key);
}

MixPod Share(int milli, int64_t cpu = 0, Bytes memory = Bytes(0), double weight = 1) {
  return {.weight = weight, .count = 1, .milli = milli, .cpu_milli = cpu, .memory = memory.count()};
}

// One pod of 600 fits, and 400 are left. Where half of its CPU is missing, u = 1/2.
TEST(ClosedFormTest, GpuWithoutHostResourcesIsIdle) {
  const std::vector<MixPod> mix = {Share(600, 4000, GiB(8))};
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 8000)), 400, 0.01);
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 4000)), 400, 0.01);
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 2000)), 400 + 600 / 2, 0.01);
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 8000, GiB(4))), 400 + 600 / 2, 0.01);
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 2000, GiB(6))), 700, 0.01)
      << "the larger u of CPU and memory counts";
}

// Pods with one GPU need 2 or 6 cores: the mean is 4, the deviation 2. A normal distribution has
// E[(X - mean)+] = 0.39894 · deviation, so u = 0.39894 · 2 / 4.
TEST(ClosedFormTest, NeedForCpuAndMemoryHasAVariance) {
  const std::vector<MixPod> mix = {Share(1000, 2000, GiB(4)), Share(1000, 6000, GiB(12))};
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 4000)), 199.47, 0.01);
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 1000000, GiB(8))), 199.47, 0.01);
  // On two GPUs the mean doubles, and the deviation grows by √2 only.
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000, 1000}, 8000)), 2000 * 0.39894 / 2 / 1.41421, 0.01);
}

// Pods with half a GPU need 1 or 3 cores. The second pod of a GPU adds its own mean and variance,
// so the mean is 4 and the deviation √2.
TEST(ClosedFormTest, FurtherPodsOfAGpuAddTheirNeeds) {
  const std::vector<MixPod> mix = {Share(500, 1000, GiB(4)), Share(500, 3000, GiB(12))};
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 4000)), 1000 * 0.398942 * 1.414214 / 4, 0.01);
  EXPECT_NEAR(ClosedForm(mix, KeyOf({1000}, 1000000, GiB(16))), 1000 * 0.398942 * 1.414214 / 4,
              0.01);
  EXPECT_NEAR(ClosedForm(mix, KeyOf({500}, 1000)), 500 * 1.08332 / 2, 0.01)
      << "mean 2, deviation 1, one below the mean: E = 1.08332";
}

// One pod in a hundred fits, so after 40 offers the GPU is idle with the chance 0.99^40.
TEST(ClosedFormTest, AGpuIsIdleIfNoneOfFortyPodsFits) {
  EXPECT_NEAR(ClosedForm({Share(1000), {.weight = 99}}, KeyOf({1000}, 0)), 668.97, 0.01);
}

TEST(ClosedFormTest, PodsThatTakeNothingOfAGpuFillNothing) {
  EXPECT_NEAR(ClosedForm({Share(1000), Share(0)}, KeyOf({500}, 1000)), 500, 0.01);
}

TEST(ClosedFormTest, PodsWithoutWeightAreNotInTheMix) {
  EXPECT_EQ(ClosedForm({Share(500, 0, Bytes(0), 0)}, KeyOf({1000}, 1000)), 1000);
}

// With four sizes the table of a GPU model takes two steps, and the second step makes the last row.
TEST(ClosedFormTest, AModelIsBuiltInBoundedSteps) {
  PolicyParts excluded_parts;
  excluded_parts.set(kRollOuts);
  WasteModel model({Share(600), Share(700), Share(800), Share(900)}, {0}, 0, excluded_parts);
  EXPECT_TRUE(model.Step());
  EXPECT_FALSE(model.Step());
  EXPECT_FALSE(model.Step());
  const int16_t slack = 1000;
  EXPECT_NEAR(model.Waste(NodeKey::Of(0, 0, 0, &slack, 1)), (400 + 300 + 200 + 100) / 4.0, 0.01);
}

TEST(NodeKeyTest, OnlyPodsThatNameNoModelUseAModelThatAppearsLater) {
  std::vector<MixPod> mix = {Share(600), Share(1000)};
  mix[1].models.set(1);
  const auto model = ModelOfMix(mix, 0, kRollOuts);
  const int16_t slack = 1000;
  EXPECT_NEAR(model->Waste(NodeKey::Of(1, 0, 0, &slack, 1)), 200, 0.01);
  for (const ModelId later : {2, 3, 200}) {
    EXPECT_NEAR(model->Waste(NodeKey::Of(later, 0, 0, &slack, 1)), 400, 0.01);
  }
}

TEST(NodeKeyTest, TheSixteenGpusWithTheMostSlackCount) {
  std::vector<int16_t> slack;
  for (int16_t i = 0; i < 20; ++i) slack.push_back(static_cast<int16_t>(1000 - 10 * i));
  const NodeKey key = KeyOf(slack, 1000);
  EXPECT_EQ(key.gpus, 16);
  EXPECT_EQ(key.slack.front(), 850);
  EXPECT_EQ(key.slack.back(), 1000);
}

// Ten pods of half a core fit into five cores and leave two of twelve GPUs idle. After the first
// four pods eight GPUs are idle.
TEST(RollOutsTest, IdleGpuAfterFourPodsHasItsWeight) {
  const NodeKey key = KeyOf(std::vector<int16_t>(12, 1000), 5000);
  EXPECT_NEAR(RollOuts({Share(1000, 500)}, 0, key), 2000, 0.01);
  EXPECT_NEAR(RollOuts({Share(1000, 500)}, 1, key), 8000, 0.01);
  EXPECT_NEAR(RollOuts({Share(1000, 500)}, 0.3, key), 0.3 * 8000 + 0.7 * 2000, 0.01);
}

TEST(RollOutsTest, ContinueWhilePodsFit) {
  EXPECT_NEAR(RollOuts({Share(50)}, 0, KeyOf({1000}, 1000)), 0, 0.01) << "after 20 pods";
  EXPECT_NEAR(RollOuts({Share(20)}, 0, KeyOf({1000}, 1000)), 1000 - 48 * 20, 0.01);
}

// In each step the 16 lanes take one pod from each sixteenth of the mix, so four steps take four
// times the mean of the mix, 85, for all random numbers.
TEST(RollOutsTest, StreamsTakeOnePodFromEachSixteenthOfTheMix) {
  std::vector<MixPod> mix;
  for (int i = 1; i <= 16; ++i) mix.push_back(Share(10 * i));
  const NodeKey key = KeyOf(std::vector<int16_t>(16, 1000), 1000);
  EXPECT_NEAR(RollOuts(mix, 1, key), 16000 - 4 * 85, 0.01);
}

class WorkedPolicyTest : public ::testing::Test {
 protected:
  NodeId AddNode(const std::string& name, int gpus, int64_t cpu, Bytes memory,
                 std::string model = "A100") {
    NodeSpec spec = MakeNode(name, gpus, GiB(80), std::move(model));
    spec.cpu_milli = cpu;
    spec.memory = memory;
    return *cluster_.AddNode(std::move(spec));
  }
  void Arrive(const Demand& demand, int times) {
    for (int i = 0; i < times; ++i) policy_->OnArrival(*cluster_.Intern(demand));
  }
  double WasteAvoided(const Demand& demand, NodeId node) {
    return policy_->Explain(*cluster_.Intern(demand), node).at(0).second;
  }

  Cluster cluster_;
  std::unique_ptr<Policy> policy_ = *MakePolicy("Tessera", cluster_, {});
};

Demand HostPod(int milli, int64_t cpu, Bytes memory) {
  Demand demand = MakeDemand(1, milli, Bytes(0), cpu);
  demand.memory = memory;
  return demand;
}

// Each pod takes a tenth of a GPU and a core. The node has one GPU, enough for 10 pods, and 8
// cores: ρ = 10/8, β = 0.2. W = ½ closed + ½ (β · idle after 4 pods + (1 - β) · idle in the end)
// before: ½ · 1000 · 2/10 + ½ (0.2 · 600 + 0.8 · 200) = 240
// after:  ½ · 900 · 2/9   + ½ (0.2 · 500 + 0.8 · 200) = 230
TEST_F(WorkedPolicyTest, PodsForWhichNoCpuIsLeftDoNotCount) {
  const NodeId node = AddNode("a", 1, 8000, GiB(384));
  const NodeId gone = AddNode("gone", 1, 800000, GiB(384));
  AddNode("without-gpus", 0, 800000, GiB(384));
  ASSERT_TRUE(cluster_.RemoveNode(gone).ok());
  const Demand pod = HostPod(100, 1000, GiB(2));
  Arrive(pod, 7);
  EXPECT_NEAR(WasteAvoided(pod, node), -900, 0.01)
      << "before a mix is learned, waste is the free part of GPUs";
  Arrive(pod, 1);
  EXPECT_NEAR(WasteAvoided(pod, node), 240 - 230, 0.01);
}

TEST_F(WorkedPolicyTest, PodsForWhichNoMemoryIsLeftDoNotCount) {
  const NodeId node = AddNode("a", 1, 800000, GiB(16));
  const Demand pod = HostPod(100, 1000, GiB(2));
  Arrive(pod, 8);
  EXPECT_NEAR(WasteAvoided(pod, node), 240 - 230, 0.01);
}

// Pods take whole GPUs of ten instead of tenths of one GPU, so all numbers are ten times as large.
TEST_F(WorkedPolicyTest, WholeGpusTakeCpuAndMemoryOfTheNode) {
  for (const bool by_cpu : {true, false}) {
    const NodeId node =
        AddNode(by_cpu ? "a" : "b", 10, by_cpu ? 8000 : 800000, by_cpu ? GiB(384) : GiB(16));
    policy_ = *MakePolicy("Tessera", cluster_, {});
    const Demand pod = HostPod(1000, 1000, GiB(2));
    Arrive(pod, 8);
    EXPECT_NEAR(WasteAvoided(pod, node), 2400 - 2300, 0.1);
    ASSERT_TRUE(cluster_.RemoveNode(node).ok());
  }
}

// A step makes the table of one GPU model, and an arrival makes two steps. The nodes have two
// models; the third table is for GPUs of unknown model.
TEST_F(WorkedPolicyTest, LearningIsSpreadOverArrivals) {
  const NodeId node = AddNode("a", 1, 96000, GiB(384));
  AddNode("b", 1, 96000, GiB(384), "T4");
  const Demand pod = HostPod(100, 1000, GiB(2));
  Arrive(pod, 8);
  EXPECT_NEAR(WasteAvoided(pod, node), -900, 0.01);
  Arrive(pod, 1);
  EXPECT_GT(WasteAvoided(pod, node), -1);
}

TEST_F(WorkedPolicyTest, LearnsTheMixAgainAfterTwoLifetimes) {
  const NodeId node = AddNode("a", 1, 8000, GiB(384));
  const Demand pod = HostPod(100, 1000, GiB(2)), other = HostPod(700, 1000, GiB(2));
  Arrive(pod, 8);
  const double before = WasteAvoided(pod, node);
  for (int i = 0; i < 2047; ++i) policy_->OnDeparture(*cluster_.Intern(pod));
  Arrive(other, 1);
  EXPECT_EQ(WasteAvoided(pod, node), before);
  policy_->OnDeparture(*cluster_.Intern(pod));
  EXPECT_EQ(WasteAvoided(pod, node), before);
  Arrive(other, 1);
  EXPECT_NE(WasteAvoided(pod, node), before);
}

TEST_F(WorkedPolicyTest, APodMayTakeTheLastCpuAndMemory) {
  AddNode("a", 2, 96000, GiB(384));
  for (const int milli : {500, 1000}) {
    EXPECT_TRUE(policy_->Choose(*cluster_.Intern(HostPod(milli, 96000, GiB(384)))));
    EXPECT_FALSE(policy_->Choose(*cluster_.Intern(HostPod(milli, 96001, GiB(384)))));
    EXPECT_FALSE(policy_->Choose(*cluster_.Intern(HostPod(milli, 96000, GiB(384) + Bytes(1)))));
  }
}

TEST_F(WorkedPolicyTest, GpusOfDifferentMemoryAreTriedOneByOne) {
  NodeSpec spec = MakeNode("a", 2);
  spec.gpus[1].memory = GiB(40);
  const NodeId node = *cluster_.AddNode(spec);
  const auto pick = [&](const Demand& demand) {
    return policy_->PickOn(*cluster_.Intern(demand), node);
  };
  EXPECT_EQ(pick(MakeDemand(1, 0, GiB(40))), PickOf(0b10)) << "the pod fills the smaller GPU";
  EXPECT_EQ(pick(MakeDemand(1, 300)), PickOf(0b01)) << "the first of equally good GPUs";
}

// The link score of the pair is 1250, worth 500 · 2 · 1250 / (1250 + 500), and 320,000 because
// NVLink joins it.
TEST_F(WorkedPolicyTest, TheLinkTermIsTheNvLinkBonusPlusTheValueOfTheLinkScore) {
  NodeSpec spec = MakeNode("a", 8);
  spec.groups = std::make_shared<const LinkedGroups>(testing::NvLinkPairs(8));
  const NodeId node = *cluster_.AddNode(spec);
  const auto links = [&](const Demand& demand) {
    return policy_->Explain(*cluster_.Intern(demand), node).at(3).second;
  };
  EXPECT_NEAR(links(MakeDemand(2, 1000)), 320000 + 714.29, 0.1);
  EXPECT_EQ(links(MakeDemand(1, 1000)), -50) << "its partner loses a link";
}

}  // namespace
}  // namespace tessera::placement
