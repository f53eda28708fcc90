// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/holds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/ledger/testing/objects.h"
#include "src/scheduler/testing/scheduler_harness.h"

namespace tessera::scheduler {
namespace {

using namespace std::chrono_literals;
using ledger::testing::GpuNode;
using ledger::testing::GpuPod;
using ledger::testing::Whole;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SchedulerHarness;
using ::testing::SizeIs;

// The pod with condition PodScheduled of an earlier attempt.
kube::PodObject Failed(kube::PodObject pod, uint64_t attempt = 7) {
  pod.failed_attempt_hash = attempt;
  return pod;
}
kube::PodObject Nominated(kube::PodObject pod, const std::string& node) {
  pod.nominated_node = node;
  return pod;
}

// One node with one GPU, which was chosen for pod "a".
class HoldsTest : public ::testing::Test {
 protected:
  HoldsTest() { d.AddNode(GpuNode("n1", 1)); }
  // Whether another pod would get the GPU.
  bool IsFree() { return !d.Filter(Whole("b")).fitting.empty(); }
  // The API server shows the pod like this from now on.
  void Show(const kube::PodObject& pod) { d.AddPod(pod); }

  SchedulerHarness d;
};

TEST_F(HoldsTest, AFirstAttemptHoldsGpusUntilItsFailureIsShown) {
  ASSERT_THAT(d.Filter(Whole("a")).fitting, SizeIs(1));
  d.Advance(20min);  // in Permit: the other pods of its group have no nodes yet
  EXPECT_FALSE(IsFree());
  Show(Failed(Whole("a")));
  EXPECT_TRUE(IsFree());
}

TEST_F(HoldsTest, ALongAttemptEndsWithItsBinding) {
  ASSERT_EQ(d.Choose(Whole("a")), "n1");
  d.Advance(20min);
  EXPECT_TRUE(d.BindAsKubeScheduler(Whole("a"), "n1")->ok());
  d.Feed(Whole("a"));
  d.Advance(1h);
  EXPECT_FALSE(IsFree());
}

TEST_F(HoldsTest, NoHoldOutlastsItsLimit) {
  d.Filter(Whole("a"));
  d.Advance(26min);
  EXPECT_TRUE(IsFree());
  EXPECT_EQ(d.metrics.expired_holds.value(), 1u);
}

// kube-scheduler does not write an equal condition again, so the failure of this attempt cannot be
// seen.
TEST_F(HoldsTest, ALaterAttemptWithoutANominatedNodeHoldsGpusForSeconds) {
  Show(Failed(Whole("a")));
  d.Filter(Failed(Whole("a")));
  d.Advance(4s);
  EXPECT_FALSE(IsFree());
  d.Advance(2s);
  EXPECT_TRUE(IsFree());
}

TEST_F(HoldsTest, ANominatedNodeShowsThatTheAttemptContinues) {
  Show(Failed(Whole("a")));
  d.Filter(Failed(Whole("a")));
  d.Advance(1s);
  Show(Nominated(Failed(Whole("a")), "n1"));
  d.Advance(10min);
  EXPECT_FALSE(IsFree());
  Show(Failed(Whole("a")));  // cleared: the attempt was given up
  EXPECT_TRUE(IsFree());
}

TEST_F(HoldsTest, ADifferentFailureReleasesTheGpusAtOnce) {
  Show(Failed(Whole("a")));
  d.Filter(Failed(Whole("a")));
  Show(Failed(Whole("a")));  // other changes of the pod do not end its attempt
  EXPECT_FALSE(IsFree());
  Show(Failed(Whole("a"), 9));
  EXPECT_TRUE(IsFree());
}

TEST_F(HoldsTest, AFailureShownLateBelongsToTheEarlierAttempt) {
  Show(Whole("a"));
  d.Filter(Failed(Whole("a")));  // kube-scheduler receives the failure first
  Show(Failed(Whole("a")));
  EXPECT_FALSE(IsFree());
}

TEST_F(HoldsTest, TheHoldFollowsTheNodeThatKubeSchedulerChose) {
  d.AddNode(GpuNode("n2", 1));
  const std::string best = d.Choose(Whole("a"));
  const std::string other = best == "n1" ? "n2" : "n1";
  Show(Nominated(Whole("a"), other));
  const auto fits = [&](const std::string& node) {
    return !d.extender->Filter(d.Args(Whole("b"), {node})).fitting.empty();
  };
  EXPECT_TRUE(fits(best));
  EXPECT_FALSE(fits(other));
}

TEST_F(HoldsTest, APodThatIsGoneHoldsNothing) {
  d.Filter(Whole("a"));
  d.RemovePod(Whole("a"));
  EXPECT_TRUE(IsFree());
}

TEST_F(HoldsTest, APodWithAnUnknownUidHoldsNothing) {
  d.AddPod(Whole("a"));
  kube::PodObject invented = Whole("a");
  invented.meta.uid = Uid("invented");
  EXPECT_THAT(d.extender->Filter(d.Args(invented)).fitting, SizeIs(1));
  EXPECT_THAT(d.extender->Filter(d.Args(Whole("unknown"))).fitting, SizeIs(1));
  EXPECT_TRUE(IsFree());
}

TEST_F(HoldsTest, APodHoldsGpusOnceTheWatchShowsThePod) {
  EXPECT_THAT(d.extender->Filter(d.Args(Whole("a"))).fitting, SizeIs(1));
  Show(Whole("a"));
  EXPECT_FALSE(IsFree());
}

TEST_F(HoldsTest, TheLimitCountsFromFilterEvenIfThePodIsShownLate) {
  d.extender->Filter(d.Args(Whole("a")));
  d.Advance(10min);
  Show(Whole("a"));
  d.Advance(14min);
  EXPECT_FALSE(IsFree());
  d.Advance(1min);
  EXPECT_TRUE(IsFree());
}

class BindTest : public HoldsTest {};

TEST_F(BindTest, TakesOnlyNodesThatFilterNamed) {
  d.AddNode(GpuNode("n2", 1));
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  Status status = d.BindAsKubeScheduler(pod, "n2").value();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("pod ns/a: filter did not name node n2"));
  d.extender->Filter(d.Args(pod, {"n1"}));  // as limited by the pod's node selector
  status = d.BindAsKubeScheduler(pod, "n2").value();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(d.api.requests(), 0);
  EXPECT_TRUE(d.BindAsKubeScheduler(pod, "n1")->ok());
}

// A leader does not know the filters of the previous leader; kube-scheduler filters again after the
// error.
TEST_F(BindTest, ANewLeaderRequiresANewFilter) {
  const kube::PodObject pod = Whole("a");
  const std::string node = d.Choose(pod);
  d.Restart();
  EXPECT_EQ(d.BindAsKubeScheduler(pod, node)->code(), Code::kFailedPrecondition);
  EXPECT_EQ(d.Choose(pod), node);
  EXPECT_TRUE(d.BindAsKubeScheduler(pod, node)->ok());
}

TEST_F(BindTest, FilterAnswerIsUsedForOneBindingOnly) {
  const kube::PodObject pod = Whole("a");
  const std::string node = d.Choose(pod);
  d.api.SetOutcome(testing::FakeBindingApi::Outcome::kForbidden);
  EXPECT_EQ(d.BindAsKubeScheduler(pod, node)->code(), Code::kPermissionDenied);
  d.api.SetOutcome(testing::FakeBindingApi::Outcome::kBinds);
  EXPECT_EQ(d.BindAsKubeScheduler(pod, node)->code(), Code::kFailedPrecondition);
}

TEST_F(BindTest, DoesNotBindAPodWithoutGpus) {
  const kube::PodObject pod = GpuPod("a", {{"cpu", "2"}});
  d.AddPod(pod);
  d.extender->Filter(d.Args(pod));
  const Status status = d.BindAsKubeScheduler(pod, "n1").value();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("requests no GPU"));
  EXPECT_EQ(d.api.requests(), 0);
}

TEST_F(BindTest, WaitsAMomentForTheWatchToShowThePod) {
  const kube::PodObject pod = Whole("a");
  const auto bind = [&](std::optional<Status>* answer) {
    d.extender->Filter(d.Args(pod));
    d.extender->Bind({"a", "ns", pod.meta.uid, "n1"},
                     [answer](const Status& status) { *answer = status; });
    d.api.Run();
  };
  std::optional<Status> late, gone, received;
  bind(&late);
  EXPECT_FALSE(late.has_value());
  d.Advance(3s);
  ASSERT_TRUE(late.has_value());
  EXPECT_EQ(late->code(), Code::kUnavailable);
  bind(&gone);
  d.Restart();  // another replica leads
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->code(), Code::kUnavailable);
  bind(&received);
  d.AddPod(pod);
  d.api.Run();
  ASSERT_TRUE(received.has_value());
  EXPECT_TRUE(received->ok()) << received->ToString();
}

TEST_F(BindTest, ABindingThatWaitsForTheWatchIsAnsweredOnceAfterHalfASecond) {
  const kube::PodObject pod = Whole("a");
  d.extender->Filter(d.Args(pod));
  std::vector<Status> answers;
  d.extender->Bind({"a", "ns", pod.meta.uid, "n1"},
                   [&](const Status& status) { answers.push_back(status); });
  d.Advance(499ms);
  EXPECT_TRUE(answers.empty());
  d.Advance(1ms);
  d.Advance(1s);
  d.AddPod(pod);
  d.api.Run();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].code(), Code::kUnavailable);
  EXPECT_EQ(d.api.requests(), 0);
}

TEST_F(BindTest, APodThatIsShownTooLateIsNotBound) {
  const kube::PodObject pod = Whole("a");
  d.extender->Filter(d.Args(pod));
  std::optional<Status> answer;
  d.extender->Bind({"a", "ns", pod.meta.uid, "n1"}, [&](const Status& status) { answer = status; });
  d.clock.Advance(500ms);
  d.AddPod(pod);
  d.api.Run();
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), Code::kUnavailable);
  EXPECT_EQ(d.api.requests(), 0);
}

}  // namespace
}  // namespace tessera::scheduler
