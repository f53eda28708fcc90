// SPDX-License-Identifier: Apache-2.0
// Tests --binding=allocate: the calls from the kubelet's Allocate to its PreStartContainer.
#include "src/agent/grants/allocation_grants.h"

#include <gmock/gmock.h>

#include "src/agent/grants/testing/allocation_fixture.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class AllocationGrantsTest : public AllocationFixture {};

TEST_F(AllocationGrantsTest, EqualPodsGetTheirAssignedGpusInAnyOrder) {
  for (int i = 0; i < 4; ++i) AssignMem(std::to_string(i), 8, "GPU-" + std::to_string(i));
  std::map<std::string, Ids> ids;
  for (const int i : {2, 0, 3, 1}) {
    const std::string pod = std::to_string(i);
    ids[pod] = NewIds(8);
    EXPECT_EQ(AdmitMem(pod, ids[pod]), "GPU-" + pod);
  }
  RestartAll();
  for (const auto& [pod, pod_ids] : ids) {
    EXPECT_TRUE(PreStart(kMem, pod_ids).ok());
    EXPECT_TRUE(PreStart(kMem, pod_ids).ok()) << "the container starts again";
  }
  EXPECT_EQ(metrics_.starts_refused.value(), 0u);
}

TEST_F(AllocationGrantsTest, TheGrantIsInTheLedgerBeforeTheAnswer) {
  AssignMem("a", 8, "GPU-2");
  kubelet_.Admit("a");
  size_t records = 0;
  allocation_->Allocate(kMem, NewIds(8), [&](Result<grant::Grant> grant) {
    EXPECT_TRUE(grant.ok());
    EXPECT_EQ(grant->env.at("ALIYUN_COM_GPU_MEM_IDX"), "2");
    records = log_.records.size();
  });
  runner_.RunUntilIdle();
  EXPECT_EQ(records, 1u);
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(use_->accounts.UseOf("GPU-2").memory, GiB(8));
}

TEST_F(AllocationGrantsTest, BothVcudaResourcesOfAContainerGetTheSameGpu) {
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}),
         {{"main", {"GPU-3"}}});
  Assign(FakeApiPods::Make("b", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}),
         {{"main", {"GPU-1"}}});
  kubelet_.Admit("b");
  const Ids blocks = NewIds(20), core = NewIds(30);
  EXPECT_EQ(Allocate(kBlocks, blocks), "GPU-1");
  Hold("b", kBlocks, blocks);
  EXPECT_EQ(Allocate(kCore, core), "GPU-1");
  Hold("b", kCore, core);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_TRUE(PreStart(kCore, core).ok());
  EXPECT_TRUE(PreStart(kBlocks, blocks).ok());
}

TEST_F(AllocationGrantsTest, WholeGpusFollowTheAssignmentAlsoBesideAMemoryRequest) {
  Assign(FakeApiPods::Make("a", {{"main", {{kGpu, "2"}}}}), {{"main", {"GPU-3", "GPU-2"}}});
  kubelet_.Admit("a");
  EXPECT_EQ(Allocate(kGpu, {"GPU-0", "GPU-1"}), "GPU-3,GPU-2");
  Hold("a", kGpu, {"GPU-0", "GPU-1"});
  EXPECT_TRUE(PreStart(kGpu, {"GPU-0", "GPU-1"}).ok());
  EXPECT_EQ(metrics_.named_other_gpus.value(), 1u);
  Assign(FakeApiPods::Make("b", {{"main", {{kCore, "100"}, {kBlocks, "7"}}}}),
         {{"main", {"GPU-1"}}});
  kubelet_.Admit("b");
  EXPECT_EQ(Allocate(kBlocks, NewIds(7)), "GPU-1");
  EXPECT_EQ(Allocate(kCore, NewIds(100)), "GPU-1");
}

TEST_F(AllocationGrantsTest, WaitsForAPodThatTheApiServerHasNotShownYet) {
  AssignMem("other", 8, "GPU-0");
  kubelet_.Admit("late");
  const auto answer = Start(kMem, NewIds(8));
  runner_.AdvanceTimeAndRun(1s);
  ASSERT_FALSE(answer->has_value()) << "the kubelet has not allocated for pod other";
  AssignMem("late", 8, "GPU-2");
  runner_.AdvanceTimeAndRun(AllocationGrants::kRetryPause);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(Visible(**answer), "GPU-2");
}

TEST_F(AllocationGrantsTest, PodThatBypassesTheSchedulerGetsTheTightestGpuAndIsAnnotated) {
  AssignMem("first", 10, "GPU-2");
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}));
  kubelet_.Admit("a");
  const auto answer = Start(kMem, NewIds(6));
  ASSERT_TRUE(answer->has_value()) << "the pod is known, so there is nothing to wait for";
  EXPECT_EQ(Visible(**answer), "GPU-2");
  EXPECT_TRUE(pods_.written["a"].contains(names::kAnnotationAssignment));
}

TEST_F(AllocationGrantsTest, FindsThePodOfUnknownIdsWhenItsContainerStarts) {
  kubelet_.Admit("a");
  const Ids ids = NewIds(6);
  EXPECT_EQ(Allocate(kMem, ids), "GPU-0")
      << "after the longest wait, Allocate chooses the GPU from the IDs alone";
  Hold("a", kMem, ids);
  const Status early = PreStart(kMem, ids);
  EXPECT_EQ(early.code(), Code::kUnavailable) << early.ToString();
  EXPECT_THAT(early.message(), HasSubstr("default/a is not known"));
  RestartAll();
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}));
  EXPECT_TRUE(PreStart(kMem, ids).ok());
  EXPECT_EQ(ledger_->entries().begin()->first, GrantLedger::Key(Uid("uid-a"), "main"));
  EXPECT_TRUE(pods_.written["a"].contains(names::kAnnotationAssignment));
  const auto entries = ledger_->entries();
  RestartAll();
  EXPECT_EQ(ledger_->entries(), entries);
  EXPECT_NE(ledger_->ChosenFor(Uid("uid-a")), nullptr);
  EXPECT_TRUE(PreStart(kMem, ids).ok());
}

TEST_F(AllocationGrantsTest, AnOwnerWithAnotherAssignmentDoesNotStart) {
  kubelet_.Admit("a");
  const Ids ids = NewIds(6);
  EXPECT_EQ(Allocate(kMem, ids), "GPU-0");
  Hold("a", kMem, ids);
  AssignMem("a", 6, "GPU-3");
  const Status status = PreStart(kMem, ids);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("container main of pod default/a has GPU-0"));
  EXPECT_THAT(status.message(), HasSubstr("it was assigned GPU-3"));
  EXPECT_THAT(status.message(), HasSubstr("delete pod default/a"));
  EXPECT_EQ(metrics_.starts_refused.value(), 1u);
}

// Without the kubelet's list Allocate has only the order of arrival.
TEST_F(AllocationGrantsTest, PodsWithSwappedGpusDoNotStart) {
  AssignMem("a", 8, "GPU-1");
  AssignMem("b", 8, "GPU-2");
  kubelet_.last_error = Status(Code::kUnavailable, "connection refused");
  const Ids first = NewIds(8), second = NewIds(8);
  EXPECT_EQ(AdmitMem("b", first), "GPU-1") << "pod a arrived on the node first";
  EXPECT_EQ(AdmitMem("a", second), "GPU-2");
  const Status unknown = PreStart(kMem, first);
  EXPECT_EQ(unknown.code(), Code::kUnavailable);
  EXPECT_THAT(unknown.message(), HasSubstr("connection refused"));
  kubelet_.last_error = Status::Ok();
  for (const Ids& ids : {first, second}) {
    EXPECT_EQ(PreStart(kMem, ids).code(), Code::kFailedPrecondition);
  }
  EXPECT_THAT(PreStart(kMem, first).message(),
              HasSubstr("container main of pod default/b has GPU-1, which Allocate gave it for "
                        "container main of pod default/a; it was assigned GPU-2"));
  RestartAll();
  EXPECT_EQ(PreStart(kMem, first).code(), Code::kFailedPrecondition);
}

TEST_F(AllocationGrantsTest, APodThatGotTheGpusOfADeletedPodDoesNotStart) {
  for (const std::string name : {"a", "b"}) {
    Assign(FakeApiPods::Make(name, {{"main", {{kGpu, "1"}}}}),
           {{"main", {name == "a" ? "GPU-1" : "GPU-2"}}});
  }
  kubelet_.last_error = Status(Code::kUnavailable, "connection refused");
  kubelet_.Admit("b");
  EXPECT_EQ(Allocate(kGpu, {"GPU-2"}), "GPU-1") << "this GPU is assigned to pod a";
  Hold("b", kGpu, {"GPU-2"});
  kubelet_.last_error = Status::Ok();
  EXPECT_EQ(PreStart(kGpu, {"GPU-2"}).code(), Code::kFailedPrecondition);
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(10min);
  EXPECT_TRUE(ledger_->entries().empty());
  EXPECT_EQ(PreStart(kGpu, {"GPU-2"}).code(), Code::kFailedPrecondition)
      << "the kubelet names the assigned GPU, and Allocate named another";
}

TEST_F(AllocationGrantsTest, AnEmptyListOfTheKubeletReleasesNothing) {
  AssignMem("a", 8, "GPU-1");
  const Ids ids = NewIds(8);
  EXPECT_EQ(AdmitMem("a", ids), "GPU-1");
  const PodDevices before = *kubelet_.answer;
  kubelet_.answer = PodDevices();  // the kubelet restarted while the API server is unreachable
  runner_.AdvanceTimeAndRun(10min);
  kubelet_.answer = before;
  EXPECT_TRUE(PreStart(kMem, ids).ok());
}

TEST_F(AllocationGrantsTest, AWrongGuessDoesNotAffectTheNextPod) {
  AssignMem("a", 8, "GPU-1");
  AssignMem("b", 8, "GPU-2");
  kubelet_.last_error = Status(Code::kUnavailable, "connection refused");
  const Ids first = NewIds(8), second = NewIds(8);
  EXPECT_EQ(AdmitMem("b", first), "GPU-1");
  kubelet_.last_error = Status::Ok();
  EXPECT_EQ(AdmitMem("a", second), "GPU-1") << "the kubelet lists no devices of pod a";
  EXPECT_TRUE(PreStart(kMem, second).ok());
  EXPECT_EQ(PreStart(kMem, first).code(), Code::kFailedPrecondition);
  // b is deleted and created again.
  kubelet_.End("b");
  pods_.Remove(Uid("uid-b"));
  Assign(FakeApiPods::Make("b", {{"main", {{kMem, "8"}}}}, Uid("uid-b2")), {{"main", {"GPU-2"}}});
  const Ids third = first;  // free since b was deleted
  EXPECT_EQ(AdmitMem("b", third), "GPU-2");
  EXPECT_TRUE(PreStart(kMem, third).ok());
}

TEST_F(AllocationGrantsTest, ARecreatedPodWhoseDeletionWasMissedDoesNotStart) {
  AssignMem("web-0", 8, "GPU-1");
  const Ids ids = NewIds(8);
  EXPECT_EQ(AdmitMem("web-0", ids), "GPU-1") << "the GPU of the deleted pod";
  pods_.Remove(Uid("uid-web-0"));
  EXPECT_EQ(PreStart(kMem, ids).code(), Code::kUnavailable);
  Assign(FakeApiPods::Make("web-0", {{"main", {{kMem, "8"}}}}, Uid("uid-new")),
         {{"main", {"GPU-2"}}});
  const Status status = PreStart(kMem, ids);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition) << status.ToString();
  EXPECT_THAT(status.message(), HasSubstr("for an earlier pod of the same name"));
}

// A kubelet can lose the IDs that it is allocating, and allocate them twice.
TEST_F(AllocationGrantsTest, TwoContainersWithTheSameIdsBothStart) {
  AssignMem("a", 4, "GPU-1");
  AssignMem("b", 4, "GPU-2");
  const Ids first = {"m1", "m2", "m3", "m4"}, second = {"m0", "m1", "m2", "m5"};
  EXPECT_EQ(AdmitMem("a", first), "GPU-1");
  EXPECT_EQ(AdmitMem("b", second), "GPU-2");
  EXPECT_TRUE(PreStart(kMem, first).ok());
  EXPECT_TRUE(PreStart(kMem, second).ok());
  AssignMem("c", 4, "GPU-3");
  EXPECT_EQ(AdmitMem("c", first), "GPU-3");
  EXPECT_EQ(PreStart(kMem, first).code(), Code::kFailedPrecondition)
      << "the IDs may belong to a or to c";
}

TEST_F(AllocationGrantsTest, InitContainersStartIfTheirPodWasKnownAtAllocate) {
  const auto make = [](const std::string& name) {
    return FakeApiPods::Make(name, {{"init", {{kMem, "4"}}}, {"main", {{kMem, "2"}}}});
  };
  Assign(make("a"), {{"init", {"GPU-1"}}, {"main", {"GPU-1"}}});
  kubelet_.Admit("a");
  const Ids init = NewIds(4);
  const Ids main(init.begin(), init.begin() + 2);  // the kubelet uses them again
  EXPECT_EQ(Allocate(kMem, init), "GPU-1");
  EXPECT_TRUE(PreStart(kMem, init).ok())
      << "the kubelet does not list the IDs of the init container";
  EXPECT_EQ(Allocate(kMem, main), "GPU-1");
  Hold("a", kMem, main);
  EXPECT_TRUE(PreStart(kMem, init).ok());
  EXPECT_TRUE(PreStart(kMem, main).ok());

  Assign(make("b"), {{"init", {"GPU-2"}}, {"main", {"GPU-2"}}});
  kubelet_.last_error = Status(Code::kUnavailable, "connection refused");
  const Ids guessed = NewIds(4);
  EXPECT_EQ(Allocate(kMem, guessed), "GPU-2");
  kubelet_.last_error = Status::Ok();
  kubelet_.Admit("b");
  RestartAll();
  const Status status = PreStart(kMem, guessed);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("does not list them for this container"));
}

TEST_F(AllocationGrantsTest, RejectsAnUnhealthyGpuAtAllocateAndAtEachStart) {
  AssignMem("a", 8, "GPU-1");
  const Ids ids = NewIds(8);
  EXPECT_EQ(AdmitMem("a", ids), "GPU-1");
  SetHealthOfGpu1(device::Health::Unhealthy("XID 79"));
  const Status status = PreStart(kMem, ids);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("XID 79"));
  AssignMem("b", 8, "GPU-1");
  kubelet_.Admit("b");
  EXPECT_THAT(Allocate(kMem, NewIds(8)), HasSubstr("XID 79"));
  SetHealthOfGpu1(device::Health::Healthy());
  EXPECT_TRUE(PreStart(kMem, ids).ok());
}

TEST_F(AllocationGrantsTest, AKubeletThatForgotItsDevicesGetsTheSameGpusForNewIds) {
  AssignMem("a", 8, "GPU-1");
  EXPECT_EQ(AdmitMem("a", NewIds(8)), "GPU-1");
  kubelet_.answer->held_devices.clear();
  const Ids ids = NewIds(8);
  EXPECT_EQ(Allocate(kMem, ids), "GPU-1");
  Hold("a", kMem, ids);
  EXPECT_TRUE(PreStart(kMem, ids).ok());
}

TEST_F(AllocationGrantsTest, WithoutAnApiServerTheNumberOfIdsIsTheRequest) {
  RestartAll(kWithoutApiServer);
  kubelet_.Admit("a");
  const Ids blocks = NewIds(20), core = NewIds(30), mem = NewIds(15);
  EXPECT_EQ(Allocate(kCore, core), "") << "no GPU is chosen before both requests are known";
  EXPECT_EQ(Allocate(kBlocks, blocks), "GPU-0");
  Hold("a", kCore, core);
  Hold("a", kBlocks, blocks);
  EXPECT_TRUE(PreStart(kBlocks, blocks).ok());
  EXPECT_TRUE(PreStart(kCore, core).ok());
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_EQ(ledger_->entries().begin()->second.holder.PodText(), "default/a");
  EXPECT_EQ(AdmitMem("b", mem), "GPU-1");
  EXPECT_TRUE(PreStart(kMem, mem).ok());
  kubelet_.Admit("c");
  EXPECT_EQ(Allocate(kGpu, {"GPU-3"}), "GPU-3");
  Hold("c", kGpu, {"GPU-3"});
  RestartAll(kWithoutApiServer);
  EXPECT_TRUE(PreStart(kGpu, {"GPU-3"}).ok());
  EXPECT_EQ(ledger_->entries().size(), 3u);
  runner_.AdvanceTimeAndRun(10min);
  EXPECT_EQ(ledger_->entries().size(), 3u) << "all three pods still run";
  kubelet_.End("b");
  runner_.AdvanceTimeAndRun(10min);
  EXPECT_EQ(ledger_->entries().size(), 2u);
}

TEST_F(AllocationGrantsTest, ReleasesAGrantThatNeverStartedWhenTheKubeletForgetsIt) {
  RestartAll(kWithoutApiServer);
  AdmitMem("a", NewIds(8));
  runner_.AdvanceTimeAndRun(10min);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  kubelet_.End("a");
  runner_.AdvanceTimeAndRun(10min);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(AllocationGrantsTest, MemoryIdsOfAWholeGpuPodAreIgnored) {
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "100"}, {kBlocks, "7"}}}}),
         {{"main", {"GPU-1"}}});
  kubelet_.Admit("a");
  const Ids core = NewIds(100), blocks = NewIds(7);
  ASSERT_EQ(Allocate(kCore, core), "GPU-1");
  Hold("a", kCore, core);
  Hold("a", kBlocks, blocks);
  EXPECT_TRUE(PreStart(kBlocks, blocks).ok());
  EXPECT_TRUE(PreStart(kCore, core).ok());
  EXPECT_EQ(metrics_.starts_refused.value(), 0u);
}

TEST_F(AllocationGrantsTest, AContainerWithAWholeGpuDoesNotStartWithOtherIds) {
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "100"}, {kBlocks, "7"}}}}),
         {{"main", {"GPU-1"}}});
  kubelet_.Admit("a");
  ASSERT_EQ(Allocate(kCore, NewIds(100)), "GPU-1");
  const Ids core = NewIds(100);
  Hold("a", kCore, core);
  EXPECT_EQ(PreStart(kCore, core).code(), Code::kFailedPrecondition);
  EXPECT_EQ(metrics_.starts_refused.value(), 1u);
}

TEST_F(AllocationGrantsTest, AShareDoesNotStartWithOtherMemoryIds) {
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}),
         {{"main", {"GPU-1"}}});
  kubelet_.Admit("a");
  ASSERT_EQ(Allocate(kBlocks, NewIds(20)), "GPU-1");
  const Ids blocks = NewIds(20);
  Hold("a", kBlocks, blocks);
  EXPECT_EQ(PreStart(kBlocks, blocks).code(), Code::kFailedPrecondition);
}

TEST_F(AllocationGrantsTest, AContainerWithOnlyMemoryIdsDoesNotStartOnAnothersWholeGpu) {
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "100"}, {kBlocks, "7"}}}}),
         {{"main", {"GPU-1"}}});
  kubelet_.Admit("a");
  kubelet_.Admit("b");
  ASSERT_EQ(Allocate(kCore, NewIds(100)), "GPU-1");
  const Ids sidecar = NewIds(7), other = NewIds(7);
  kubelet_.answer->held_devices.push_back({"default", "a", "sidecar", kBlocks, sidecar});
  EXPECT_EQ(PreStart(kBlocks, sidecar).code(), Code::kFailedPrecondition);
  Hold("b", kBlocks, other);
  EXPECT_EQ(PreStart(kBlocks, other).code(), Code::kFailedPrecondition);
}

TEST_F(AllocationGrantsTest, TheOwnTimeOfAllocateExcludesWaits) {
  allocation_.emplace(&runner_, &*service_, &*ledger_, &pods_, device::MemoryUnit::kGiB, &metrics_);
  AssignMem("a", 8, "GPU-0");
  kubelet_.Admit("a");
  const auto answer = Start(kMem, NewIds(8));
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(metrics_.allocate_own.bucket(0), 1u);
  // The wait for a pod that is not known yet does not count as own time.
  kubelet_.Admit("late");
  const auto late = Start(kMem, NewIds(5));
  runner_.AdvanceTimeAndRun(1s);
  AssignMem("late", 5, "GPU-2");
  runner_.AdvanceTimeAndRun(AllocationGrants::kRetryPause);
  ASSERT_TRUE(late->has_value());
  EXPECT_EQ(metrics_.allocate_own.bucket(0), 2u);
}

TEST_F(AllocationGrantsTest, AContainerWithVcudaCoreButNoVcudaMemoryDoesNotStart) {
  RestartAll(kWithoutApiServer);
  kubelet_.Admit("a");
  const Ids core = NewIds(30);
  EXPECT_EQ(Allocate(kCore, core), "");
  Hold("a", kCore, core);
  const Status status = PreStart(kCore, core);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("no grant for its IDs of tencent.com/vcuda-core"));
}

TEST_F(AllocationGrantsTest, WholeGpusOfAnEarlierPluginEnterTheLedger) {
  PodInfo old = FakeApiPods::Make("old", {{"main", {{kGpu, "1"}}}});
  pods_.Set(old);
  kubelet_.Admit("old");
  Hold("old", kGpu, {"GPU-2"});
  EXPECT_EQ(PreStart(kGpu, {"GPU-2"}).code(), Code::kFailedPrecondition) << "it never ran";
  old.container_ids["main"] = "containerd://1";
  pods_.Set(old);
  EXPECT_TRUE(PreStart(kGpu, {"GPU-2"}).ok());
  EXPECT_TRUE(ledger_->Accounts().UseOf("GPU-2").whole);
  Assign(FakeApiPods::Make("wrong", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-0"}}});
  kubelet_.Admit("wrong");
  Hold("wrong", kGpu, {"GPU-3"});
  EXPECT_EQ(PreStart(kGpu, {"GPU-3"}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(ledger_->entries().size(), 1u);
}

TEST_F(AllocationGrantsTest, RetriesABusyKubeletInsteadOfGuessing) {
  AssignMem("a", 8, "GPU-1");
  AssignMem("b", 8, "GPU-2");
  kubelet_.last_error = Status(Code::kResourceExhausted, "rejected by rate limit");
  kubelet_.Admit("b");
  const auto answer = Start(kMem, NewIds(8));
  runner_.AdvanceTimeAndRun(1s);
  ASSERT_FALSE(answer->has_value());
  kubelet_.last_error = Status::Ok();
  runner_.AdvanceTimeAndRun(AllocationGrants::kListPause);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(Visible(**answer), "GPU-2");
}

TEST_F(AllocationGrantsTest, AStartWaitsFiveSecondsForABusyKubelet) {
  AssignMem("a", 8, "GPU-1");
  const Ids ids = NewIds(8);
  ASSERT_EQ(AdmitMem("a", ids), "GPU-1");
  const auto check = [&] {
    auto answer = std::make_shared<std::optional<Status>>();
    checks_->Check(kMem, ids, [answer](Status status) { *answer = std::move(status); });
    return answer;
  };
  kubelet_.last_error = Status(Code::kResourceExhausted, "rejected by rate limit");
  const auto given_up = check();
  runner_.AdvanceTimeAndRun(kStartCheckWait - StartChecks::kListPause);
  EXPECT_FALSE(given_up->has_value());
  runner_.AdvanceTimeAndRun(StartChecks::kListPause);
  ASSERT_TRUE(given_up->has_value());
  EXPECT_EQ((*given_up)->code(), Code::kUnavailable);
  const auto answered = check();
  runner_.AdvanceTimeAndRun(1s);
  kubelet_.last_error = Status::Ok();
  runner_.AdvanceTimeAndRun(StartChecks::kListPause);
  ASSERT_TRUE(answered->has_value());
  EXPECT_TRUE((*answered)->ok()) << (*answered)->ToString();
}

TEST_F(AllocationGrantsTest, AContainerThatHoldsMoreIdsIsNotTheStartingContainer) {
  kubelet_.Admit("a");
  Hold("a", kMem, {"m1", "m2"});
  EXPECT_EQ(PreStart(kMem, {"m1"}).code(), Code::kUnavailable);
}

TEST_F(AllocationGrantsTest, WaitsForAPodThatIsStillTerminating) {
  AssignMem("old", 16, "GPU-1");
  AdmitMem("old", NewIds(16));
  pods_.Remove(Uid("uid-old"));
  AssignMem("new", 16, "GPU-1");
  kubelet_.Admit("new");
  const auto answer = Start(kMem, NewIds(16));
  ASSERT_FALSE(answer->has_value()) << "the kubelet would reject the pod for good";
  kubelet_.End("old");
  runner_.AdvanceTimeAndRun(1s);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ(Visible(**answer), "GPU-1");
}

TEST_F(AllocationGrantsTest, AnInvalidRequestIsReported) {
  pods_.Set(FakeApiPods::Make("bad", {{"main", {{kCore, "150"}}}}));
  kubelet_.Admit("bad");
  EXPECT_THAT(Allocate(kCore, NewIds(150)), HasSubstr("pod default/bad"));
  EXPECT_TRUE(ledger_->entries().empty());
  // A running pod is not the pod that is being admitted, whichever plugin gave its GPUs.
  PodInfo runs = *pods_.pods().at(Uid("uid-bad"));
  runs.container_ids["main"] = "containerd://1";
  pods_.Set(runs);
  kubelet_.Admit("unknown");
  EXPECT_EQ(Allocate(kMem, NewIds(1)), "GPU-0");
}

}  // namespace
}  // namespace tessera::agent
