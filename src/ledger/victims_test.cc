// SPDX-License-Identifier: Apache-2.0
// Tests preemption: which pods are evicted, which budgets that violates, and for which pods GPUs
// are reserved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/ledger/ledger.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using testing::BoundPod;
using ::testing::ElementsAre;
using testing::GpuNode;
using testing::GpuPod;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Eviction = ClusterLedger::Eviction;
using Uids = std::vector<Uid>;

class VictimsTest : public ::testing::Test {
 protected:
  void SetUp() override { ledger_->budgets().SetKnown(); }

  static kube::PodObject Whole(const std::string& name, int priority, int gpus = 1) {
    kube::PodObject pod = GpuPod(name, {{names::kResourceGpu, std::to_string(gpus)}});
    pod.priority = priority;
    pod.meta.labels = {{"app", name}, {"team", "a"}};
    return pod;
  }
  ClusterLedger::Query MakeQuery(const kube::PodObject& pod) {
    return ledger_->MakeQuery(pod).value();
  }
  // Makes the pod run on "n".
  kube::PodObject Run(const kube::PodObject& pod) { return testing::Bind(*ledger_, pod, "n"); }
  void Delete(kube::PodObject pod) {
    pod.meta.deleting = true;
    ledger_->SetPod(pod);
  }
  void Nominate(kube::PodObject pod, const std::string& node) {
    pod.nominated_node = node;
    ledger_->SetPod(pod);
  }
  // Sets a budget that selects pods whose label `key` has `value`.
  void SetBudget(const std::string& name, const std::string& key, const std::string& value,
                 int allowed) {
    kube::PodDisruptionBudgetObject budget{.meta = {.name = name, .ns = "ns"},
                                           .disruptions_allowed = allowed};
    budget.selector.emplace().requirements.push_back(
        {key, kube::LabelSelector::Operator::kIn, {value}});
    ledger_->budgets().Set(budget);
  }
  std::string WhyUnfit(const kube::PodObject& pod) {
    ClusterLedger::Query query = MakeQuery(pod);
    const Verdict verdict = ledger_->Evaluate(query, "n");
    return verdict.fits ? "" : std::string(verdict.reason);
  }

  FakeClock clock_;
  std::unique_ptr<ClusterLedger> ledger_ = ClusterLedger::Make({}, &clock_).value();
};

TEST_F(VictimsTest, TheFewestPodsOfLowerPriorityAreEvicted) {
  ledger_->SetNode(GpuNode("n", 2));
  const Uid low = Run(Whole("low", 1)).meta.uid;
  const Uid middle = Run(Whole("middle", 5)).meta.uid;
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {})->uids, Uids{low});
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {.uids = {low, middle}})->uids,
            Uids{low});
  EXPECT_EQ(
      ledger_->Victims(MakeQuery(Whole("preemptor", 10, 2)), "n", {.uids = {low}})->uids.size(),
      2u);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 3, 2)), "n", {}), std::nullopt);
}

TEST_F(VictimsTest, PodsOfEqualPriorityAndUnboundPodsStay) {
  ledger_->SetNode(GpuNode("n", 2));
  Run(Whole("equal", 10));
  ASSERT_TRUE(ledger_->Assume(MakeQuery(Whole("assumed", 1)), "n", std::chrono::seconds(9)).ok());
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {}), std::nullopt);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "unknown", {}), std::nullopt);
}

TEST_F(VictimsTest, SearchingVictimsLeavesTheClusterUnchanged) {
  ledger_->SetNode(GpuNode("n", 2));
  Run(Whole("low", 1));
  Run(Whole("middle", 5));
  const ClusterLedger::Query query = MakeQuery(Whole("preemptor", 10));
  const uint64_t version = ledger_->cluster().version();
  EXPECT_TRUE(ledger_->Victims(query, "n", {}));
  EXPECT_EQ(ledger_->cluster().version(), version);  // caches stay valid
  EXPECT_EQ(ledger_->cluster().free_milli(), 0);
}

TEST_F(VictimsTest, APodUnderABudgetIsEvictedLast) {
  ledger_->SetNode(GpuNode("n", 2));
  const Uid guarded = Run(Whole("guarded", 1)).meta.uid;
  const Uid free = Run(Whole("free", 5)).meta.uid;
  SetBudget("one", "app", "guarded", 0);
  // Although it has the lower priority.
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {.uids = {guarded}}),
            (Eviction{{free}, 0}));
  const auto both = ledger_->Victims(MakeQuery(Whole("preemptor", 10, 2)), "n", {.uids = {free}});
  EXPECT_THAT(both->uids, UnorderedElementsAre(guarded, free));
  EXPECT_EQ(both->pdb_violations, 1);
}

TEST_F(VictimsTest, ViolationsAreCountedForTheEvictedPods) {
  ledger_->SetNode(GpuNode("n", 4));
  for (const char* name : {"a", "b", "c", "d"}) Run(Whole(name, 1));
  SetBudget("team", "team", "a", 1);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10, 3)), "n", {.uids = {Uid("uid-a")}})
                ->pdb_violations,
            2);
  // Violations that kube-scheduler counted for spared pods are dropped.
  EXPECT_EQ(ledger_
                ->Victims(MakeQuery(Whole("preemptor", 10)), "n",
                          {.uids = {Uid("uid-a"), Uid("uid-b")}, .pdb_violations = 1})
                ->pdb_violations,
            0);
  // A pod without GPUs, whose labels only kube-scheduler knows.
  EXPECT_EQ(ledger_
                ->Victims(MakeQuery(Whole("preemptor", 10)), "n",
                          {.uids = {Uid("uid-a"), Uid("uid-plain")}, .pdb_violations = 1})
                ->pdb_violations,
            1);
  SetBudget("other-team", "team", "b", 0);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {})->pdb_violations, 0);
  ledger_->budgets().Remove("ns", "team");
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10, 4)), "n", {})->pdb_violations, 0);
}

TEST_F(VictimsTest, ViolationsOfPodsWithoutGpusExcludeThoseOfPodsWithGpus) {
  ledger_->SetNode(GpuNode("n", 2));
  Run(Whole("a", 1));
  Run(Whole("b", 1));
  SetBudget("team", "team", "a", 0);
  EXPECT_EQ(ledger_
                ->Victims(MakeQuery(Whole("preemptor", 10)), "n",
                          {.uids = {Uid("uid-a"), Uid("uid-plain")}, .pdb_violations = 2})
                ->pdb_violations,
            2);
}

TEST_F(VictimsTest, APodThatABudgetAlreadyCountsIsNotCountedAgain) {
  ledger_->SetNode(GpuNode("n", 1));
  Run(Whole("a", 1));
  kube::PodDisruptionBudgetObject budget{.meta = {.name = "all", .ns = "ns"},
                                         .selector = kube::LabelSelector{}};
  ledger_->budgets().Set(budget);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {})->pdb_violations, 1);
  budget.disrupted_pods = {"a"};
  ledger_->budgets().Set(budget);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {})->pdb_violations, 0);
  budget.disrupted_pods = {};
  budget.selector.reset();  // selects nothing
  ledger_->budgets().Set(budget);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {})->pdb_violations, 0);
}

TEST_F(VictimsTest, WithoutBudgetsOnlyProposedPodsAreEvicted) {
  ledger_ = ClusterLedger::Make({}, &clock_).value();
  ledger_->SetNode(GpuNode("n", 2));
  const Uid low = Run(Whole("low", 1)).meta.uid;
  Run(Whole("middle", 5));
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n",
                             {.uids = {low}, .pdb_violations = 1}),
            (Eviction{{low}, 1}));
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10, 2)), "n", {.uids = {low}}),
            std::nullopt);
}

TEST_F(VictimsTest, PodsUnderDeletionAreEvictedFirst) {
  ledger_->SetNode(GpuNode("n", 2));
  Run(Whole("a-stays", 1));
  kube::PodObject leaving = Run(Whole("b-leaves", 5));
  Delete(leaving);
  SetBudget("all", "team", "a", 0);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("preemptor", 10)), "n", {}),
            (Eviction{{leaving.meta.uid}, 0}));
}

TEST_F(VictimsTest, GpusOfANominatedPodAreNotFreeForLowerPriorities) {
  ledger_->SetNode(GpuNode("n", 2));
  Nominate(Whole("high", 100), "n");
  EXPECT_EQ(WhyUnfit(Whole("low", 1)), "");  // there are two free GPUs
  EXPECT_THAT(WhyUnfit(Whole("low", 1, 2)), HasSubstr("reserved for pod ns/high of priority 100"));
  EXPECT_THAT(WhyUnfit(Whole("equal", 100, 2)), HasSubstr("reserved"));
  EXPECT_EQ(WhyUnfit(Whole("higher", 101, 2)), "");
  EXPECT_EQ(WhyUnfit(Whole("high", 100, 1)), "");
  // Evictions do not help either: the nominated pod is not on the node.
  Run(Whole("old", 0));
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("low", 1, 2)), "n", {}), std::nullopt);
  EXPECT_EQ(ledger_->Victims(MakeQuery(Whole("low", 1)), "n", {})->uids, Uids{Uid("uid-old")});
}

TEST_F(VictimsTest, ANominationEndsWithThePodItsBindingOrAnotherNomination) {
  ledger_->SetNode(GpuNode("n", 1));
  const kube::PodObject high = Whole("high", 100);
  Nominate(high, "n");
  EXPECT_NE(WhyUnfit(Whole("low", 1)), "");
  Nominate(high, "elsewhere");
  EXPECT_EQ(WhyUnfit(Whole("low", 1)), "");
  Nominate(high, "n");
  EXPECT_NE(WhyUnfit(Whole("low", 1)), "");
  Nominate(high, "");
  EXPECT_EQ(WhyUnfit(Whole("low", 1)), "");
  Nominate(high, "n");
  ledger_->RemovePod(high.meta.uid);
  EXPECT_EQ(WhyUnfit(Whole("low", 1)), "");
  // A nominated pod that can never fit reserves nothing.
  Nominate(Whole("huge", 100, 8), "n");
  EXPECT_EQ(WhyUnfit(Whole("low", 1)), "");
}

TEST_F(VictimsTest, ReservesFreeGpusWhileVictimsEnd) {
  ledger_->SetNode(GpuNode("n", 2));
  const kube::PodObject victim = Run(Whole("victim", 1));
  Nominate(Whole("high", 100, 2), "n");
  // Before the deletion is observed, while the pod ends, and afterwards.
  EXPECT_NE(WhyUnfit(Whole("low", 1)), "");
  Delete(victim);
  EXPECT_NE(WhyUnfit(Whole("low", 1)), "");
  ledger_->RemovePod(victim.meta.uid);
  EXPECT_NE(WhyUnfit(Whole("low", 1)), "");
}

TEST_F(VictimsTest, ReservesFreeGpusBeforeGpusThatBecomeFree) {
  ledger_->SetNode(GpuNode("n", 2));
  Delete(Run(Whole("victim", 1)));
  Nominate(Whole("high", 100), "n");
  EXPECT_THAT(WhyUnfit(Whole("low", 1)), HasSubstr("reserved"));
}

TEST_F(VictimsTest, NamesTheNominatedPodOfTheHighestPriority) {
  ledger_->SetNode(GpuNode("n", 2));
  Nominate(Whole("a-lower", 50), "n");
  Nominate(Whole("b-high", 100), "n");
  Nominate(Whole("c-high", 100), "n");
  EXPECT_THAT(WhyUnfit(Whole("low", 1)), HasSubstr("ns/b-high of priority 100"));
}

TEST_F(VictimsTest, ANominatedPodReservesNothingBesidePodsOfItsPriority) {
  ledger_->SetNode(GpuNode("n", 2));
  Run(Whole("equal", 10));
  Nominate(Whole("nominated", 10, 2), "n");
  EXPECT_EQ(WhyUnfit(Whole("low", 1)), "");
}

TEST_F(VictimsTest, ANominatedShareKeepsTheGpuThatItFillsMost) {
  ledger_->SetNode(GpuNode("n", 2));
  const auto share = [](const std::string& name, const char* core, const char* blocks) {
    return GpuPod(name, {{names::kResourceVcudaCore, core}, {names::kResourceVcudaMemory, blocks}});
  };
  const auto run_on = [&](const kube::PodObject& pod, int gpu, int milli) {
    const device::Assignment on{
        {{"main", {{testing::UuidOf("n", gpu), MilliGpu(milli), MiB(256)}}}}};
    ledger_->SetPod(BoundPod(
        pod, "n",
        {{std::string(names::kAnnotationAssignment), device::EncodeAssignment(on).value()}}));
  };
  run_on(share("half", "50", "1"), 0, 500);
  run_on(share("most", "70", "1"), 1, 700);
  kube::PodObject nominated = share("nominated", "20", "1");
  nominated.priority = 100;
  Nominate(nominated, "n");
  EXPECT_EQ(WhyUnfit(share("low", "50", "1")), "") << "the other GPU is free for half of it";
}

TEST_F(VictimsTest, ALowerPriorityPodTakesUnreservedGpus) {
  ledger_->SetNode(GpuNode("n", 4));
  Nominate(Whole("high", 100, 3), "n");
  const auto low = ledger_->Assume(MakeQuery(Whole("low", 1)), "n", std::chrono::seconds(1));
  ASSERT_TRUE(low.ok()) << low.status().ToString();
  const auto second = ledger_->Assume(MakeQuery(Whole("second", 1)), "n", std::chrono::seconds(1));
  EXPECT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(ledger_->Assume(MakeQuery(Whole("high", 100, 3)), "n", std::chrono::seconds(1)).ok());
}

}  // namespace
}  // namespace tessera::ledger
