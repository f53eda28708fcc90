// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/extender.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/names.h"
#include "src/ledger/testing/objects.h"
#include "src/scheduler/testing/scheduler_harness.h"
#include "src/scheduler/verbs.h"

namespace tessera::scheduler {
namespace {

using namespace std::chrono_literals;
using ledger::testing::BoundPod;
using ledger::testing::GpuNode;
using ledger::testing::GpuPod;
using ledger::testing::Whole;
using ::testing::ElementsAre;
using testing::FakeBindingApi;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SchedulerHarness;
using ::testing::SizeIs;

kube::PodObject Memory(const std::string& name, int gib) {
  return GpuPod(name, {{names::kResourceGpuMem, std::to_string(gib)}});
}

TEST(ExtenderTest, FilterNamesAllFittingNodesAndAReasonForEachOther) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  d.AddNode(GpuNode("n2", 2));
  d.AddNode(GpuNode("n3", 4));
  d.AddNode(GpuNode("cpu", 0));
  const FilterResult result = d.Filter(Whole("a", 2));
  EXPECT_EQ(result.error, "");
  EXPECT_THAT(result.fitting, ElementsAre(1, 2));
  // No eviction gives a second GPU to a node that has one.
  ASSERT_THAT(result.unresolvable, SizeIs(2));
  EXPECT_EQ(result.unresolvable[0].first, 0u);
  EXPECT_THAT(result.unresolvable[0].second, HasSubstr("node(s) without room: 2 GPUs wanted"));
  EXPECT_EQ(result.unresolvable[1].first, 3u);
}

TEST(ExtenderTest, TheNextPodSeesTheHoldOfThePreviousPod) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 2));
  d.AddNode(GpuNode("n2", 2));
  EXPECT_NE(d.Choose(Whole("a", 2)), "");
  EXPECT_NE(d.Choose(Whole("b", 2)), "");
  // Nothing is bound yet, but there is no room left.
  EXPECT_EQ(d.Choose(Whole("c", 2)), "");
  EXPECT_EQ(d.api.requests(), 0);
}

TEST(ExtenderTest, FilterHoldsTheOnlyFittingNodeBecausePrioritizeIsSkipped) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  EXPECT_THAT(d.Filter(Whole("a")).fitting, SizeIs(1));
  EXPECT_THAT(d.Filter(Whole("b")).fitting, IsEmpty());
  // A second filter of the same pod may use its own held GPU.
  EXPECT_THAT(d.Filter(Whole("a")).fitting, SizeIs(1));
}

TEST(ExtenderTest, OnlyTheBestNodeHasTenPoints) {
  SchedulerHarness d;
  for (int i = 0; i < 25; ++i) d.AddNode(GpuNode(fmt::format("n{}", i), 8));
  // Some of the nodes are in use, so that scores differ.
  for (int i = 0; i < 10; ++i) {
    const kube::PodObject pod = Whole(fmt::format("p{}", i), 1 + i % 4);
    d.AddPod(pod);
    const std::string node = d.Choose(pod);
    ASSERT_TRUE(d.BindSucceeds(pod, node));
    d.Feed(pod);
  }
  const ExtenderArgs args = d.Args(Whole("a"));
  const std::vector<int> points = d.extender->Prioritize(args);
  EXPECT_EQ(std::count(points.begin(), points.end(), kMaxHostScore), 1);
  for (const int point : points) {
    EXPECT_GE(point, 0);
    EXPECT_LE(point, kMaxHostScore);
  }
}

TEST(ExtenderTest, OtherNodesHavePointsByRankAndUnfitNodesNone) {
  SchedulerHarness d({.policy = "BestFit"});
  for (const int gpus : {4, 1, 3, 2}) d.AddNode(GpuNode(fmt::format("n{}", gpus), gpus));
  d.AddNode(GpuNode("cpu", 0));
  d.AddPod(Whole("a"));
  const auto points = [&](const kube::PodObject& pod) {
    return d.extender->Prioritize(d.Args(pod, {"n4", "n1", "n3", "cpu", "n2"}));
  };
  EXPECT_THAT(points(Whole("a")), ElementsAre(3, 10, 6, 0, 9));
  EXPECT_THAT(points(Whole("b", 2)), ElementsAre(4, 0, 9, 0, 10));
}

TEST(ExtenderTest, NodesWithEqualScoresHaveEqualPoints) {
  SchedulerHarness d({.policy = "BestFit"});
  const std::vector<std::string_view> names = {"a4", "b2", "c1", "d2", "e1", "f2"};
  for (const std::string_view name : names) d.AddNode(GpuNode(std::string(name), name[1] - '0'));
  d.AddPod(Whole("a"));
  EXPECT_THAT(d.extender->Prioritize(d.Args(Whole("a"), names)), ElementsAre(1, 7, 10, 7, 9, 7));
}

TEST(ExtenderTest, FilterHoldsNothingWhileSeveralNodesFit) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  d.AddNode(GpuNode("n2", 1));
  EXPECT_THAT(d.Filter(Whole("a")).fitting, SizeIs(2));
  EXPECT_THAT(d.Filter(Whole("b")).fitting, SizeIs(2));
}

TEST(ExtenderTest, APodWithoutGpusFitsEverywhereAndHoldsNothing) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  const kube::PodObject pod = GpuPod("a", {{"cpu", "2"}});
  const ExtenderArgs args = d.Args(pod, {"n1", "unknown"});
  EXPECT_THAT(d.extender->Filter(args).fitting, SizeIs(2));
  EXPECT_THAT(d.extender->Prioritize(args), ElementsAre(0, 0));
  EXPECT_THAT(d.Filter(Whole("b")).fitting, SizeIs(1));
}

TEST(ExtenderTest, UnknownNodesAreRejectedByName) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  const FilterResult result = d.extender->Filter(d.Args(Whole("a"), {"ghost", "n1"}));
  EXPECT_THAT(result.fitting, ElementsAre(1));
  ASSERT_THAT(result.failed, SizeIs(1));
  EXPECT_THAT(result.failed[0].second, HasSubstr("not known"));
  d.extender->Prioritize(d.Args(Whole("a"), {"ghost", "n1"}));
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  EXPECT_EQ(d.BindAsKubeScheduler(pod, "ghost")->code(), Code::kFailedPrecondition);
  EXPECT_EQ(d.Bind(pod, "ghost")->code(), Code::kNotFound);
}

TEST(ExtenderTest, ARequestThatBreaksARuleIsAnErrorAndNoDecision) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  const FilterResult result = d.Filter(GpuPod("a", {{names::kResourceVcudaCore, "150"}}));
  EXPECT_THAT(result.error, HasSubstr("ns/a"));
  EXPECT_THAT(result.error, HasSubstr("150"));
}

TEST(ExtenderTest, AnnotationsForgedByAUserAreIgnored) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  kube::PodObject pod = Whole("a");
  pod.meta.annotations[std::string(names::kAnnotationAssignment)] =
      R"({"version":1,"containers":{"main":[{"gpu":"GPU-n1-0","milli":1,"bytes":1}]}})";
  pod.meta.annotations[std::string(names::kAnnotationGpuMemIndex)] = "99";
  d.AddPod(pod);
  EXPECT_TRUE(d.BindSucceeds(pod, d.Choose(pod)));
  d.Feed(pod);
  EXPECT_EQ(d.AssignedGpus().milli().at("GPU-n1-0"), 1000);
  EXPECT_THAT(d.Filter(Whole("b")).fitting, IsEmpty());
}

TEST(ExtenderTest, ARejectionByQuotaGivesOneEventWithTheRemainingQuota) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 4));
  d.ledger->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"A100":1}}})").value());
  kube::PodObject held = Whole("a");
  held.failed_attempt_hash = 7;  // so the hold is short
  EXPECT_THAT(d.Filter(held).fitting, SizeIs(1));
  for (int i = 0; i < 3; ++i) {
    const FilterResult result = d.Filter(Whole("b"));
    EXPECT_THAT(result.fitting, IsEmpty());
    EXPECT_THAT(result.unresolvable, SizeIs(1));
  }
  ASSERT_THAT(d.events, SizeIs(1));
  EXPECT_THAT(d.events[0], HasSubstr("GPUQuotaExceeded"));
  EXPECT_THAT(d.events[0], HasSubstr("used"));
  EXPECT_EQ(d.metrics.rejected_pods.values().at("quota"), 3u);
  EXPECT_FALSE(d.metrics.rejected_pods.values().contains("no_node_fits"));
  d.Advance(2min);
  d.Filter(Whole("b"));
  // The hold has ended: the pod fits now.
  EXPECT_THAT(d.events, SizeIs(1));
}

class QuotaEventTest : public ::testing::Test {
 protected:
  QuotaEventTest() {
    d.AddNode(GpuNode("n1", 4));
    SetQuota(1);
  }
  void SetQuota(int gpus) {
    d.ledger->SetQuota(
        placement::ParseQuota(fmt::format(R"({{"ns":{{"quota":{{"A100":{}}}}}}})", gpus)).value());
  }

  SchedulerHarness d;
};

TEST_F(QuotaEventTest, NamesTheRemainingQuotaOnce) {
  d.Filter(Whole("a", 2));
  ASSERT_THAT(d.events, SizeIs(1));
  EXPECT_THAT(d.events[0], HasSubstr("1 left"));
  EXPECT_EQ(d.events[0].find("left"), d.events[0].rfind("left"));
}

TEST_F(QuotaEventTest, IsRepeatedAfterAMinute) {
  d.Filter(Whole("a", 3));
  d.Advance(59s);
  d.Filter(Whole("a", 3));
  EXPECT_THAT(d.events, SizeIs(1));
  d.clock.Advance(1s);
  d.Filter(Whole("a", 3));
  EXPECT_THAT(d.events, SizeIs(2));
}

TEST_F(QuotaEventTest, RecordsANewReasonAtOnce) {
  d.Filter(Whole("a", 3));
  SetQuota(2);
  d.Filter(Whole("a", 3));
  ASSERT_THAT(d.events, SizeIs(2));
  EXPECT_THAT(d.events[1], HasSubstr("2 left"));
}

TEST_F(QuotaEventTest, EachPodHasItsOwnEvent) {
  d.Filter(Whole("a", 3));
  d.Filter(Whole("b", 3));
  EXPECT_THAT(d.events, SizeIs(2));
}

TEST(ExtenderTest, ARejectionForAModelWithoutQuotaNamesTheQuotasOfOthers) {
  SchedulerHarness d;
  kube::NodeObject t4 = GpuNode("n1", 4);
  t4.meta.labels["gaia.tencent.com/gpu-model"] = "T4";
  d.AddNode(t4);
  d.ledger->SetQuota(placement::ParseQuota(R"({"ns":{"quota":{"A100":2}}})").value());
  EXPECT_THAT(d.Filter(Whole("a")).fitting, IsEmpty());
  ASSERT_THAT(d.events, SizeIs(1));
  EXPECT_THAT(d.events[0], HasSubstr("it has a quota for A100 (A100: 0 used, 2 left)"));
}

TEST(ExtenderTest, PredicatesNameOnlyTheBestNode) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 2));
  d.AddNode(GpuNode("n2", 2));
  d.AddNode(GpuNode("small", 1));
  d.AddNode(GpuNode("cpu", 0));
  d.AddPod(Whole("a", 2));
  const FilterResult result = d.extender->FilterToOne(d.Args(Whole("a", 2)));
  ASSERT_THAT(result.fitting, SizeIs(1));
  std::map<size_t, std::string> reasons(result.failed.begin(), result.failed.end());
  reasons.insert(result.unresolvable.begin(), result.unresolvable.end());
  EXPECT_EQ(reasons.at(1 - result.fitting[0]), "pod a has already been matched to another node");
  EXPECT_THAT(reasons.at(2), HasSubstr("pod a does not match with this node"));
  EXPECT_EQ(reasons.at(3), "no GPU device");
  // The node is held, so the next pod gets the other node.
  const FilterResult next = d.extender->FilterToOne(d.Args(Whole("b", 2)));
  ASSERT_THAT(next.fitting, SizeIs(1));
  EXPECT_EQ(next.fitting[0], 1 - result.fitting[0]);
  EXPECT_THAT(d.extender->PrioritizeCpuNodes(d.Args(Whole("c"))), ElementsAre(0, 0, 0, 1));
}

TEST(ExtenderTest, PredicatesNameAllNodesForAPodWithoutGpus) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 2));
  d.AddNode(GpuNode("n2", 2));
  const kube::PodObject pod = GpuPod("a", {{"cpu", "2"}});
  const FilterResult result = d.extender->FilterToOne(d.Args(pod));
  EXPECT_THAT(result.fitting, ElementsAre(0, 1));
  EXPECT_THAT(result.failed, IsEmpty());
}

TEST(ExtenderTest, PreemptionNamesPodsWhoseEvictionMakesRoom) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 2));
  d.AddNode(GpuNode("n2", 1));
  for (const char* name : {"low1", "low2"}) {
    const kube::PodObject pod = Whole(name);
    d.AddPod(pod);
    ASSERT_TRUE(d.BindSucceeds(pod, "n1"));
    d.Feed(pod);
  }
  kube::PodObject high = Whole("high", 2);
  high.priority = 1000;
  PreemptionArgs args;
  args.pod = high;
  args.victims["n1"] = {.uids = {Uid("uid-low1")}, .pdb_violations = 1};
  args.victims["n2"] = {.uids = {}};
  d.ledger->budgets().SetKnown();
  const Victims victims = d.extender->Preempt(args);
  ASSERT_THAT(victims, SizeIs(1));
  EXPECT_THAT(victims.at("n1").uids,
              ::testing::UnorderedElementsAre(Uid("uid-low1"), Uid("uid-low2")));
  // The violations are counted for these victims, and no disruption budget selects them.
  EXPECT_EQ(victims.at("n1").pdb_violations, 0);
}

// kube-scheduler 1.36 sends only nodes on which it found victims, and drops a whole answer that
// names a node without victims.
TEST(ExtenderTest, PreemptionNamesNoNodeWithoutVictims) {
  SchedulerHarness d;
  d.AddNode(GpuNode("free", 2));
  d.AddNode(GpuNode("full", 1));
  const kube::PodObject low = Whole("low");
  d.AddPod(low);
  ASSERT_TRUE(d.BindSucceeds(low, "full"));
  d.Feed(low);
  d.ledger->budgets().SetKnown();
  kube::PodObject high = Whole("high");
  high.priority = 1000;
  PreemptionArgs args{.pod = high};
  args.victims["free"] = {};
  args.victims["full"] = {};
  const Victims victims = d.extender->Preempt(args);
  ASSERT_THAT(victims, SizeIs(1));
  EXPECT_THAT(victims.at("full").uids, ElementsAre(Uid("uid-low")));
  args.victims.clear();
  EXPECT_THAT(d.extender->Preempt(args), IsEmpty());
}

TEST(ExtenderTest, GpusOfVictimsAreReservedForTheNominatedPod) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 1));
  const kube::PodObject low = Whole("low");
  d.AddPod(low);
  ASSERT_TRUE(d.BindSucceeds(low, "n1"));
  d.Feed(low);
  kube::PodObject high = Whole("high");
  high.priority = 1000;
  high.nominated_node = "n1";
  d.AddPod(high);
  d.RemovePod(low);
  // Pod other was filtered first, but has to wait.
  kube::PodObject other = Whole("other");
  d.AddPod(other);
  const FilterResult result = d.Filter(other);
  EXPECT_THAT(result.fitting, IsEmpty());
  ASSERT_THAT(result.failed, SizeIs(1));
  EXPECT_THAT(result.failed[0].second, HasSubstr("reserved for pod ns/high"));
  EXPECT_EQ(d.Bind(other, "n1")->code(), Code::kFailedPrecondition);
  EXPECT_TRUE(d.BindSucceeds(high, d.Choose(high)));
}

TEST(InspectTest, HasTheFormatOfGpushare) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 2));
  d.AddNode(GpuNode("cpu", 0));
  const kube::PodObject pod = Memory("a", 8);
  d.AddPod(pod);
  ASSERT_TRUE(d.BindSucceeds(pod, "n1"));
  const std::string text = Inspect(*d.ledger, "");
  EXPECT_THAT(text, HasSubstr(R"({"nodes":[{"name":"n1","totalGPU":160,"usedGPU":8,"devs":[)"
                              R"({"id":0,"totalGPU":80,"usedGPU":)"));
  EXPECT_THAT(text, HasSubstr(R"("pods":[{"name":"a","namespace":"ns","usedGPU":8}])"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("cpu")));
  EXPECT_EQ(Inspect(*d.ledger, "n1"), text);
  EXPECT_EQ(Inspect(*d.ledger, "ghost"), R"({"nodes":[],"error":"there is no node \"ghost\""})");
}

}  // namespace
}  // namespace tessera::scheduler
