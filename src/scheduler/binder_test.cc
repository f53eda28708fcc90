// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/binder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/random.h"
#include "src/ledger/testing/objects.h"
#include "src/scheduler/testing/scheduler_harness.h"

namespace tessera::scheduler {
namespace {

using namespace std::chrono_literals;
using ledger::testing::GpuNode;
using ledger::testing::Whole;
using testing::SchedulerHarness;
using Outcome = testing::FakeBindingApi::Outcome;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class BinderTest : public ::testing::Test {
 protected:
  void SetUp() override { d.AddNode(GpuNode("n1", 1)); }
  // Nothing is held for `pod`, because the feed does not show it.
  bool RoomFor(const kube::PodObject& pod) {
    return !d.extender->Filter(d.Args(pod)).fitting.empty();
  }
  SchedulerHarness d;
};

TEST_F(BinderTest, WritesNodeAndAssignmentInOneRequest) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  EXPECT_TRUE(d.BindSucceeds(pod, d.Choose(pod)));
  EXPECT_EQ(d.api.requests(), 1);
  EXPECT_EQ(d.api.Find("ns/a")->node_name, "n1");
  EXPECT_EQ(d.AssignedGpus().milli().at("GPU-n1-0"), 1000);
  // The GPU stays held without end while the feed is late.
  d.Advance(1h);
  EXPECT_FALSE(RoomFor(Whole("b")));
  d.RemovePod(pod);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, BindsAPodThatTheFeedHasNotSeenYet) {
  const kube::PodObject pod = Whole("a");
  d.api.Put(pod);
  EXPECT_TRUE(d.BindSucceeds(pod, d.Choose(pod)));
}

TEST_F(BinderTest, RejectsAnUnknownPodAndAnotherPodOfTheSameName) {
  const kube::PodObject pod = Whole("a");
  EXPECT_EQ(d.BindAsKubeScheduler(pod, "n1")->code(), Code::kNotFound);
  d.AddPod(pod);
  kube::PodObject other = pod;
  other.meta.uid = Uid("uid-other");
  const auto status = d.BindAsKubeScheduler(other, "n1");
  EXPECT_EQ(status->code(), Code::kNotFound);
  EXPECT_THAT(status->message(), HasSubstr("another"));
  EXPECT_EQ(d.api.requests(), 0);
}

TEST_F(BinderTest, RejectsAPodThatIsBoundOrBeingDeleted) {
  const kube::PodObject bound = Whole("a");
  d.AddPod(bound);
  EXPECT_TRUE(d.BindSucceeds(bound, "n1"));
  EXPECT_EQ(d.Bind(bound, "n1")->code(), Code::kAborted);
  d.Feed(bound);
  EXPECT_EQ(d.Bind(bound, "n1")->code(), Code::kAborted);
  EXPECT_THAT(d.Filter(bound).error, HasSubstr("already bound to node n1"));
  kube::PodObject leaving = Whole("b");
  leaving.meta.deleting = true;
  d.AddPod(leaving);
  EXPECT_EQ(d.Bind(leaving, "n1")->code(), Code::kAborted);
  EXPECT_EQ(d.api.requests(), 1);
}

TEST_F(BinderTest, ARejectionByTheApiServerFreesTheGpusAtOnce) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kForbidden);
  EXPECT_EQ(d.Bind(pod, "n1")->code(), Code::kPermissionDenied);
  EXPECT_TRUE(RoomFor(Whole("b")));
  // Another component was faster, and the hold of the query has ended.
  d.Advance(10s);
  d.api.SetOutcome(Outcome::kBinds);
  kube::PodObject taken = pod;
  taken.node_name = "n2";
  d.api.Put(taken);
  EXPECT_EQ(d.Bind(pod, "n1")->code(), Code::kAborted);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, WithoutAResponseTheGpusStayAssumedUntilTheStateIsClear) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kBindsWithoutResponse);
  const auto status = d.Bind(pod, "n1");
  EXPECT_EQ(status->code(), Code::kDeadlineExceeded);
  EXPECT_THAT(status->message(), HasSubstr("unclear"));
  // kube-scheduler filters again; this must not free GPUs on which the pod may already run.
  EXPECT_THAT(d.Filter(pod).error, HasSubstr("may be bound"));
  EXPECT_FALSE(RoomFor(Whole("b")));
  // The binder reads the API server before the feed shows the pod.
  d.Advance(3s);
  EXPECT_THAT(d.Filter(pod).error, HasSubstr("already bound to node n1"));
  d.Advance(1h);
  EXPECT_FALSE(RoomFor(Whole("b")));
  EXPECT_THAT(d.Filter(pod).error, HasSubstr("already bound to node n1"));
}

TEST_F(BinderTest, APodDeletedBeforeTheFeedShowsItHoldsNothing) {
  const kube::PodObject pod = Whole("a");
  d.api.Put(pod);
  d.api.SetOutcome(Outcome::kBindsWithoutResponse);
  EXPECT_EQ(d.Bind(pod, d.Choose(pod))->code(), Code::kDeadlineExceeded);
  d.Advance(3s);
  EXPECT_FALSE(RoomFor(Whole("b")));
  d.api.Remove("ns/a");
  d.Advance(1min);
  EXPECT_TRUE(RoomFor(Whole("b")));
  EXPECT_EQ(d.binder->pending_count(), 0u);
}

TEST_F(BinderTest, ABoundPodThatTheFeedDoesNotShowIsReadAfterHalfAMinute) {
  for (const Outcome outcome : {Outcome::kBinds, Outcome::kBindsWithoutResponse}) {
    const kube::PodObject pod = Whole("a");
    d.api.Put(pod);
    d.api.SetOutcome(outcome);
    const bool answered = d.Bind(pod, d.Choose(pod))->ok();
    EXPECT_EQ(answered, outcome == Outcome::kBinds);
    if (!answered) d.Advance(2s);  // the read that settles it
    d.api.Remove("ns/a");
    d.Advance(29s);
    EXPECT_FALSE(RoomFor(Whole("b")));
    d.Advance(1s);
    EXPECT_TRUE(RoomFor(Whole("b")));
  }
}

TEST_F(BinderTest, AnUnclearBindingIsReadAfterTwoSeconds) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kBindsWithoutResponse);
  EXPECT_FALSE(d.Bind(pod, "n1")->ok());
  d.Advance(1s);
  EXPECT_THAT(d.Filter(pod).error, HasSubstr("may be bound"));
  d.Advance(1s);
  EXPECT_THAT(d.Filter(pod).error, HasSubstr("is already bound to node n1"));
}

TEST_F(BinderTest, AnotherPodOfTheSameNameEndsAnUnclearBinding) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kLost);
  EXPECT_FALSE(d.Bind(pod, "n1")->ok());
  kube::PodObject another = pod;
  another.meta.uid = Uid("uid-another");
  d.api.Put(another);
  d.Advance(2s);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, ALostRequestIsGivenUpFifteenSecondsAfterItWasSent) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kLost);
  EXPECT_FALSE(d.Bind(pod, "n1")->ok());
  d.Advance(15s);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, GivesUpALostRequestOnceItCannotArrive) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kLost);
  EXPECT_EQ(d.Bind(pod, "n1")->code(), Code::kDeadlineExceeded);
  d.Advance(3s);
  EXPECT_FALSE(RoomFor(Whole("b")));
  for (int i = 0; i < 10; ++i) d.Advance(3s);
  EXPECT_TRUE(RoomFor(Whole("b")));
  d.Advance(1min);
  d.api.SetOutcome(Outcome::kBinds);
  EXPECT_TRUE(d.BindSucceeds(pod, d.Choose(pod)));
}

TEST_F(BinderTest, PodBoundAndDeletedBeforeTheFeedShowsItReleasesItsGpus) {
  const kube::PodObject pod = Whole("a");
  d.api.Put(pod);
  EXPECT_TRUE(d.BindSucceeds(pod, d.Choose(pod)));
  d.api.Remove("ns/a");
  EXPECT_FALSE(RoomFor(Whole("b")));
  d.Advance(31s);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, AFormerLeaderWritesNothing) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.may_write = false;
  EXPECT_EQ(d.Bind(pod, d.Choose(pod))->code(), Code::kUnavailable);
  EXPECT_EQ(d.api.requests(), 0);
}

// The client answers like this if the Lease is lost, or the deadline passes, while a request waits
// in the queue.
TEST_F(BinderTest, ABindingThatWasNeverSentFreesTheGpusAtOnce) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kNotSent);
  EXPECT_EQ(d.Bind(pod, "n1")->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(d.binder->pending_count(), 0u);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, LeadershipIsCheckedWhenABindingIsSent) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.Hold();
  std::optional<Status> answer;
  d.binder->Bind(pod, "n1", [&](const Status& status) { answer = status; });
  EXPECT_EQ(answer, std::nullopt);
  d.may_write = false;
  d.api.Release();
  EXPECT_EQ(answer->code(), Code::kUnavailable);
  EXPECT_EQ(d.api.requests(), 0);
  EXPECT_TRUE(d.api.Find("ns/a")->node_name.empty());
  d.may_write = true;
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, ABindingIsAnsweredAndNotSentIfItsPodIsDeletedMeanwhile) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.Hold();
  std::optional<Status> answer;
  d.binder->Bind(pod, "n1", [&](const Status& status) { answer = status; });
  d.RemovePod(pod);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->code(), Code::kAborted);
  EXPECT_EQ(answer->message(), "pod ns/a was deleted while it was being bound");
  d.api.Release();
  EXPECT_EQ(d.api.requests(), 0);
  EXPECT_EQ(d.binder->pending_count(), 0u);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

// kUnclearLimit counts from the sending of the request, not from its entry into the queue.
TEST_F(BinderTest, TheLimitOfALostRequestCountsFromItsSending) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kLost);
  d.api.Hold();
  d.binder->Bind(pod, "n1", [](const Status&) {});
  d.clock.Advance(10s);
  d.api.Release();
  for (int i = 0; i < 6; ++i) d.Advance(2s);
  EXPECT_FALSE(RoomFor(Whole("b")));
  for (int i = 0; i < 3; ++i) d.Advance(2s);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

// The process is suspended between a read and its response. Meanwhile the binding may take effect.
TEST_F(BinderTest, AnOldAnswerDoesNotSettleABinding) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.api.SetOutcome(Outcome::kLost);
  EXPECT_FALSE(d.Bind(pod, "n1")->ok());
  d.clock.Advance(3s);
  d.binder->Tick();
  d.clock.Advance(15s);
  d.api.Run();
  EXPECT_FALSE(RoomFor(Whole("b")));
  d.Advance(1s);
  EXPECT_TRUE(RoomFor(Whole("b")));
}

TEST_F(BinderTest, CountsBindingsWithoutAnAnswer) {
  const kube::PodObject pod = Whole("a");
  d.AddPod(pod);
  d.binder->Bind(pod, "n1", [](const Status&) {});
  EXPECT_EQ(d.binder->unanswered_count(), 1u);
  d.api.Run();
  EXPECT_EQ(d.binder->unanswered_count(), 0u);
  EXPECT_EQ(d.binder->pending_count(), 1u);  // not seen by the feed yet
  d.Feed(pod);
  EXPECT_EQ(d.binder->pending_count(), 0u);
  d.AddNode(GpuNode("n2", 1));
  d.api.SetOutcome(Outcome::kBindsWithoutResponse);
  d.AddPod(Whole("b"));
  EXPECT_EQ(d.Bind(Whole("b"), "n2")->code(), Code::kDeadlineExceeded);
  EXPECT_EQ(d.binder->unanswered_count(), 1u);
}

TEST_F(BinderTest, AfterItsHoldHasExpiredAPodMayLoseTheGpuToAnotherPod) {
  kube::PodObject slow = Whole("slow"), quick = Whole("quick");
  slow.failed_attempt_hash = 7;  // so the hold is short
  d.AddPod(slow);
  d.AddPod(quick);
  EXPECT_EQ(d.Choose(slow), "n1");
  d.Advance(10s);
  EXPECT_EQ(d.Choose(quick), "n1");
  EXPECT_EQ(d.Bind(slow, "n1")->code(), Code::kFailedPrecondition);
  EXPECT_TRUE(d.BindSucceeds(quick, "n1"));
  EXPECT_EQ(d.AssignedGpus().Oversubscribed(GiB(80)), "");
}

TEST(BinderRaceTest, AHundredPodsForOneNodeDoNotOversubscribeIt) {
  SchedulerHarness d;
  d.AddNode(GpuNode("n1", 8));
  // Nodes are chosen for all pods before any is bound.
  std::vector<kube::PodObject> pods;
  int chosen = 0;
  for (int i = 0; i < 100; ++i) {
    pods.push_back(Whole(fmt::format("p{}", i)));
    d.AddPod(pods.back());
    chosen += d.Choose(pods.back()) == "n1";
  }
  EXPECT_EQ(chosen, 8);
  // A caller that binds without a filter gets no more GPUs either.
  int bound = 0;
  for (const kube::PodObject& pod : pods) {
    bound += d.BindSucceeds(pod, "n1");
  }
  EXPECT_EQ(bound, 8);
  EXPECT_THAT(d.AssignedGpus().milli(), SizeIs(8));
  EXPECT_EQ(d.AssignedGpus().Oversubscribed(GiB(80)), "");
}

// No GPU is oversubscribed under loss, delay and restarts.
TEST(BinderRaceTest, NoHistoryOversubscribesAGpu) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    SchedulerHarness d;
    for (int n = 0; n < 3; ++n) d.AddNode(GpuNode(fmt::format("n{}", n), 2));
    std::vector<kube::PodObject> pods;
    for (int step = 0; step < 200; ++step) {
      const uint64_t event = random.Below(100);
      if (event < 25 || pods.empty()) {
        pods.push_back(Whole(fmt::format("p{}", step), 1 + static_cast<int>(random.Below(2))));
        random.Below(4) == 0 ? d.api.Put(pods.back()) : d.AddPod(pods.back());
        continue;
      }
      const kube::PodObject pod = pods[random.Below(pods.size())];
      if (event < 60) {
        constexpr Outcome kOutcomes[] = {Outcome::kBinds, Outcome::kBinds,
                                         Outcome::kBindsWithoutResponse, Outcome::kLost};
        d.api.SetOutcome(kOutcomes[random.Below(4)]);
        const std::string node = d.Choose(pod);
        if (!node.empty()) (void)d.Bind(pod, node);
      } else if (event < 75) {
        d.Feed(pod);
      } else if (event < 85) {
        d.RemovePod(pod);
      } else if (event < 97) {
        d.Advance(std::chrono::milliseconds(random.Below(8000)));
      } else {
        // A new leader lists the cluster.
        for (const kube::PodObject& known : pods) d.Feed(known);
        d.Restart();
      }
      ASSERT_EQ(d.AssignedGpus().Oversubscribed(GiB(80)), "")
          << "seed " << seed << " step " << step;
    }
  }
}

}  // namespace
}  // namespace tessera::scheduler
