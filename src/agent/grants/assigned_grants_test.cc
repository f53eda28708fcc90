// SPDX-License-Identifier: Apache-2.0
// Grants by assignment, and by the agent's choice for pods that bypass the scheduler.
#include "src/agent/grants/holdings.h"
#include "src/agent/grants/start_waits.h"
#include "src/agent/grants/testing/grants_fixture.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

class AssignedGrantsTest : public GrantsFixture {};

TEST_F(AssignedGrantsTest, FollowsTheAssignmentWhateverTheKubeletNamed) {
  Assign(FakeApiPods::Make("a", {{"main", {{kGpu, "2"}}}}), {{"main", {"GPU-3", "GPU-2"}}});
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 2)}), "GPU-3,GPU-2");
}

TEST_F(AssignedGrantsTest, CountsGrantsOfOtherGpusThanTheKubeletNamed) {
  Assign(FakeApiPods::Make("a", {{"main", {{kGpu, "2"}}}}), {{"main", {"GPU-1", "GPU-0"}}});
  ASSERT_TRUE(RequestGrant("a", {Token(kGpu, 2)}).ok());
  EXPECT_EQ(metrics_.named_other_gpus.value(), 0u) << "the same GPUs in another order";
  Assign(FakeApiPods::Make("b", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-3"}}});
  const auto token = Token(kGpu, 1);
  ASSERT_TRUE(RequestGrant("b", {token}).ok());
  ASSERT_TRUE(RequestGrant("b", {token}).ok());
  Assign(FakeApiPods::Make("c", {{"main", {{kMem, "1"}}}}), {{"main", {"GPU-2"}}});
  ASSERT_TRUE(RequestGrant("c", {Token(kMem, 1)}).ok());
  EXPECT_EQ(metrics_.named_other_gpus.value(), 1u);
}

TEST_F(AssignedGrantsTest, PodsOfTheSameSizeGetTheirAssignedGpusInAnyOrder) {
  for (int i = 0; i < 4; ++i) {
    Assign(FakeApiPods::Make(std::to_string(i), {{"main", {{kMem, "8"}}}}),
           {{"main", {"GPU-" + std::to_string(i)}}});
  }
  for (const int i : {2, 0, 3, 1}) {
    EXPECT_EQ(GpuOf(std::to_string(i), {Token(kMem, 8)}), "GPU-" + std::to_string(i));
  }
}

TEST_F(AssignedGrantsTest, GrantCarriesTheLimits) {
  Assign(FakeApiPods::Make("a", {{"main", {{kCore, "30"}, {kBlocks, "20"}}}}),
         {{"main", {"GPU-1"}}});
  const auto grant = RequestGrant("a", {Token(kBlocks, 20), Token(kCore, 30)});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  ASSERT_EQ(grant->devices.size(), 1u);
  EXPECT_EQ(grant->devices[0].milli, 300);
  EXPECT_EQ(grant->devices[0].bytes, GiB(5).count());
}

TEST_F(AssignedGrantsTest, SetsTheVariablesOfGpushareForOldImages) {
  service_->SetIsolationDisabled(true);
  Assign(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}, {"side", {{kMem, "2"}}}}),
         {{"main", {"GPU-3"}}, {"side", {"GPU-3"}}});
  const auto token = Token(kMem, 6);
  const auto first = RequestGrant("a", {token});
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->env.at("ALIYUN_COM_GPU_MEM_IDX"), "3");
  EXPECT_EQ(first->env.at("ALIYUN_COM_GPU_MEM_POD"), "8");
  EXPECT_EQ(first->env.at("ALIYUN_COM_GPU_MEM_CONTAINER"), "6");
  EXPECT_EQ(first->env.at("ALIYUN_COM_GPU_MEM_DEV"), "16");
  EXPECT_EQ(first->env.at("CGPU_DISABLE"), "true");
  service_->SetIsolationDisabled(false);
  Restart();
  const auto again = RequestGrant("a", {token});
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, *first) << "the same answer, also after a crash";
}

TEST_F(AssignedGrantsTest, APodCannotDisableItsOwnIsolation) {
  Assign(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}), {{"main", {"GPU-3"}}});
  const auto grant = RequestGrant("a", {Token(kMem, 6)});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  EXPECT_EQ(grant->env.at("CGPU_DISABLE"), "false") << "it replaces the value in the pod's spec";
}

TEST_F(AssignedGrantsTest, HoldingsShowAnInitContainerUntilItHasEnded) {
  PodInfo pod = FakeApiPods::Make("a", {{"init", {{kGpu, "1"}}}, {"main", {{kGpu, "2"}}}});
  Assign(pod, {{"init", {"GPU-0"}}, {"main", {"GPU-0", "GPU-1"}}});
  ASSERT_TRUE(RequestGrant("a", {Token(kGpu, 1)}, "init").ok());
  EXPECT_EQ(HoldingsOf(*ledger_, &pods_).containers.size(), 1u);
  ASSERT_TRUE(RequestGrant("a", {Token(kGpu, 2)}).ok());
  pod = *pods_.pods().at(Uid("uid-a"));
  pod.ended_containers = {"init", "main"};
  pods_.Set(pod);
  const Holdings shown = HoldingsOf(*ledger_, &pods_);
  ASSERT_EQ(shown.containers.size(), 1u);
  EXPECT_EQ(shown.containers[0].holder.container, "main")
      << "it holds its GPUs while its pod lives";
  EXPECT_TRUE(shown.containers[0].ended);
}

TEST_F(AssignedGrantsTest, TheAnswerStaysTheSameAfterACrashAndAChangedAnnotation) {
  const PodInfo pod = FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}});
  Assign(pod, {{"main", {"GPU-1"}}});
  const auto token = Token(kMem, 8);
  ASSERT_EQ(GpuOf("a", {token}), "GPU-1");
  Assign(pod, {{"main", {"GPU-2"}}});
  EXPECT_EQ(GpuOf("a", {token}), "GPU-1");
  Restart();
  EXPECT_EQ(GpuOf("a", {token}), "GPU-1");
}

TEST_F(AssignedGrantsTest, ForgedAssignmentGivesNoMoreThanThePodRequests) {
  PodInfo pod = FakeApiPods::Make("a", {{"main", {{kMem, "1"}}}});
  device::Assignment forged;
  forged.containers["main"] = {{.uuid = "GPU-1", .compute = kWholeGpu, .memory = GiB(16)}};
  pod.annotations[std::string(names::kAnnotationAssignment)] = *device::EncodeAssignment(forged);
  pods_.Set(pod);
  const auto grant = RequestGrant("a", {Token(kMem, 1)});
  EXPECT_EQ(grant.status().code(), Code::kInvalidArgument) << grant.status().ToString();
  pod.annotations[std::string(names::kAnnotationAssignment)] = "{";
  pods_.Set(pod);
  EXPECT_EQ(RequestGrant("a", {Token(kMem, 1)}).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(AssignedGrantsTest, WaitsForAPodThatTheApiServerHasNotShownYet) {
  const auto answer = Start("a", {Token(kMem, 8)});
  runner_.AdvanceTimeAndRun(1s);
  ASSERT_FALSE(answer->has_value());
  Assign(FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}}), {{"main", {"GPU-2"}}});
  runner_.RunUntilIdle();
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((**answer)->env.at("NVIDIA_VISIBLE_DEVICES"), "GPU-2");
}

TEST_F(AssignedGrantsTest, ARequestIsAnsweredOnceAndOnlyByAnEventOfItsPod) {
  int answers = 0;
  service_->Handle({.pod_uid = Uid("uid-a"),
                    .pod_namespace = "default",
                    .pod_name = "a",
                    .container = "main",
                    .tokens = {Token(kMem, 8)}},
                   [&](const Result<grant::Grant>& reply) {
                     ++answers;
                     EXPECT_TRUE(reply.ok()) << reply.status().ToString();
                   });
  pods_.Set(FakeApiPods::Make("b", {{"main", {{kMem, "8"}}}}));
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(answers, 0);
  Assign(FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}}), {{"main", {"GPU-2"}}});
  Assign(FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}}), {{"main", {"GPU-2"}}});
  runner_.AdvanceTimeAndRun(2 * kGrantWait);
  EXPECT_EQ(answers, 1);
}

// An agent sends an annotation and dies. The annotation arrives after that of the next agent.
TEST_F(AssignedGrantsTest, AnOlderAnnotationThatArrivesLateIsOverwritten) {
  pods_.Sync();
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}, {"second", {{kGpu, "1"}}}}));
  const auto assignment = [&] {
    return pods_.pods().at(Uid("uid-a"))->annotations.at(std::string(names::kAnnotationAssignment));
  };
  ASSERT_TRUE(RequestGrant("a", {Token(kGpu, 1)}).ok());
  runner_.RunUntilIdle();
  const std::string older = assignment();
  ASSERT_TRUE(RequestGrant("a", {Token(kGpu, 1)}, "second").ok());
  runner_.RunUntilIdle();
  const std::string both = assignment();
  ASSERT_NE(both, older);
  PodInfo late = *pods_.pods().at(Uid("uid-a"));
  late.annotations[std::string(names::kAnnotationAssignment)] = older;
  pods_.Set(std::move(late));
  runner_.RunUntilIdle();
  EXPECT_EQ(assignment(), both);
}

TEST_F(AssignedGrantsTest, WithoutAnApiServerAPodThatFindsNoRoomGetsTheGpuOfAPodThatIsGone) {
  Restart(kWithoutApiServer);
  for (const char* name : {"a", "b", "c", "d"}) {
    kubelet_.Admit(name);
    ASSERT_TRUE(RequestGrant(name, {Token(kMem, 16)}).ok());
    kubelet_.Hold(name, kMem, "m000" + std::to_string(next_id_ - 1));
  }
  kubelet_.Admit("e");
  EXPECT_EQ(RequestGrant("e", {Token(kMem, 16)}).status().code(), Code::kResourceExhausted);
  const std::string uuid_of_c =
      ledger_->Find({Uid("uid-c"), "default", "c", "main"})->shares[0].uuid;
  kubelet_.End("c");
  EXPECT_EQ(GpuOf("e", {Token(kMem, 16)}), uuid_of_c);
}

TEST_F(AssignedGrantsTest, RejectsAPodThatStaysUnknownWithTheReason) {
  pods_.last_error_ = Status(Code::kUnavailable, "connection refused");
  const auto answer = Start("a", {Token(kMem, 8)});
  runner_.AdvanceTimeAndRun(kGrantWait);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->status().code(), Code::kUnavailable);
  EXPECT_NE((*answer)->status().message().find("connection refused"), std::string::npos);
}

TEST_F(AssignedGrantsTest, PodThatBypassesTheSchedulerGetsTheTightestGpuAndIsAnnotated) {
  Assign(FakeApiPods::Make("first", {{"main", {{kMem, "10"}}}}), {{"main", {"GPU-2"}}});
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}, {"side", {{kMem, "1"}}}}));
  EXPECT_EQ(GpuOf("a", {Token(kMem, 6)}), "GPU-0") << "6 and 1 do not fit beside 10";
  EXPECT_EQ(GpuOf("a", {Token(kMem, 1)}, "side"), "GPU-0") << "one GPU for the pod";
  const auto& written = pods_.written["a"];
  const auto assignment =
      device::DecodeAssignment(written.at(std::string(names::kAnnotationAssignment)));
  ASSERT_TRUE(assignment.ok());
  EXPECT_EQ(assignment->containers.at("side")[0].uuid, "GPU-0");
  EXPECT_EQ(written.at(std::string(names::kAnnotationGpuMemAssigned)), "true");
  pods_.Set(FakeApiPods::Make("b", {{"main", {{kMem, "6"}}}}));
  EXPECT_EQ(GpuOf("b", {Token(kMem, 6)}), "GPU-2")
      << "the assigned GPU counts before its pod starts";
}

TEST_F(AssignedGrantsTest, ChoiceForAllContainersSurvivesACrash) {
  pods_.apply_annotations = false;
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}, {"side", {{kMem, "1"}}}}));
  ASSERT_EQ(GpuOf("a", {Token(kMem, 6)}), "GPU-0");
  Assign(FakeApiPods::Make("b", {{"main", {{kMem, "2"}}}}), {{"main", {"GPU-0"}}});
  pods_.written.clear();
  Restart();
  pods_.Sync();
  EXPECT_TRUE(pods_.written.contains("a")) << "the annotation is written after the crash";
  EXPECT_EQ(GpuOf("a", {Token(kMem, 1)}, "side"), "GPU-0");
}

TEST_F(AssignedGrantsTest, WholeGpusFollowTheKubeletUnlessAnotherPodHoldsThem) {
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}}));
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-0");
  Assign(FakeApiPods::Make("b", {{"main", {{kMem, "1"}}}}), {{"main", {"GPU-1"}}});
  pods_.Set(FakeApiPods::Make("c", {{"main", {{kGpu, "1"}}}}));
  const grant::Token token{grant::TokenVariable(kGpu),
                           signer_.Sign(kGpu, {"GPU-1"}, runner_.clock().WallNow())};
  EXPECT_EQ(GpuOf("c", {token}), "GPU-2");
}

TEST_F(AssignedGrantsTest, AContainerGetsTheGpusOfItsInitContainer) {
  Assign(FakeApiPods::Make("b", {{"main", {{kMem, "1"}}}}), {{"main", {"GPU-1"}}});
  pods_.Set(FakeApiPods::Make("a", {{"init", {{kGpu, "2"}}}, {"main", {{kGpu, "2"}}}}));
  const std::string of_init = GpuOf("a", {Token(kGpu, 2)}, "init");
  ASSERT_EQ(of_init, "GPU-0,GPU-2") << "the kubelet named GPU-0 and GPU-1, but GPU-1 is held";
  pods_.Remove(Uid("uid-b"));
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 2)}), of_init) << "although GPU-1 is free now";
  EXPECT_TRUE(ledger_->Accounts().UseOf("GPU-1").idle());
  EXPECT_TRUE(ledger_->Accounts().UseOf("GPU-3").idle());
}

TEST_F(AssignedGrantsTest, AContainerKeepsItsInitContainersGpuAlsoIfAnotherPodWasAssignedIt) {
  pods_.Set(FakeApiPods::Make("a", {{"init", {{kGpu, "1"}}}, {"main", {{kGpu, "1"}}}}));
  ASSERT_EQ(GpuOf("a", {Token(kGpu, 1)}, "init"), "GPU-0");
  // A scheduler assigns GPU-0 without knowing about the grant.
  Assign(FakeApiPods::Make("b", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-0"}}});
  EXPECT_FALSE(RequestGrant("b", {Token(kGpu, 1)}).ok());
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-0");
}

TEST_F(AssignedGrantsTest, AContainerThatRequestsFewerGpusGetsGpusOfItsInitContainer) {
  pods_.Set(FakeApiPods::Make("a", {{"init", {{kGpu, "3"}}}, {"main", {{kGpu, "1"}}}}));
  const grant::Token three{
      grant::TokenVariable(kGpu),
      signer_.Sign(kGpu, {"GPU-1", "GPU-2", "GPU-3"}, runner_.clock().WallNow())};
  ASSERT_EQ(GpuOf("a", {three}, "init"), "GPU-1,GPU-2,GPU-3");
  EXPECT_NE(GpuOf("a", {Token(kGpu, 1)}), "GPU-0")
      << "the kubelet named GPU-0, which the init container does not hold";
  EXPECT_TRUE(ledger_->Accounts().UseOf("GPU-0").idle());
}

TEST_F(AssignedGrantsTest, AContainerThatRequestsMoreGpusKeepsThoseOfItsInitContainer) {
  pods_.Set(FakeApiPods::Make("a", {{"init", {{kGpu, "1"}}}, {"main", {{kGpu, "2"}}}}));
  const grant::Token last{grant::TokenVariable(kGpu),
                          signer_.Sign(kGpu, {"GPU-3"}, runner_.clock().WallNow())};
  ASSERT_EQ(GpuOf("a", {last}, "init"), "GPU-3");
  const auto grant = RequestGrant("a", {Token(kGpu, 2)});
  ASSERT_TRUE(grant.ok()) << grant.status().ToString();
  ASSERT_EQ(grant->devices.size(), 2u);
  EXPECT_TRUE(grant->devices[0].uuid == "GPU-3" || grant->devices[1].uuid == "GPU-3");
}

TEST_F(AssignedGrantsTest, AnInitContainersGpuPassesToTheContainerOfItsGroup) {
  pods_.Set(FakeApiPods::Make(
      "a", {{"init", {{kGpu, "1"}}}, {"main", {{kGpu, "1"}}}, {"second", {{kGpu, "1"}}}}));
  ASSERT_EQ(GpuOf("a", {Token(kGpu, 1)}, "init"), "GPU-0");
  EXPECT_NE(GpuOf("a", {Token(kGpu, 1)}, "second"), "GPU-0");
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-0");
}

TEST_F(AssignedGrantsTest, AContainerTakesAnInitContainersGpuIfNoOtherIsFree) {
  Assign(FakeApiPods::Make("b", {{"main", {{kMem, "1"}}}}), {{"main", {"GPU-3"}}});
  pods_.Set(FakeApiPods::Make(
      "a", {{"init", {{kGpu, "3"}}}, {"main", {{kGpu, "1"}}}, {"second", {{kGpu, "1"}}}}));
  ASSERT_EQ(GpuOf("a", {Token(kGpu, 3)}, "init"), "GPU-0,GPU-1,GPU-2");
  ASSERT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-0");
  const std::string second = GpuOf("a", {Token(kGpu, 1)}, "second");
  EXPECT_TRUE(second == "GPU-1" || second == "GPU-2") << second;
}

TEST_F(AssignedGrantsTest, APodWithoutRoomForAllOfItsContainersTakesNoGpu) {
  Assign(FakeApiPods::Make("b", {{"main", {{kGpu, "3"}}}}),
         {{"main", {"GPU-1", "GPU-2", "GPU-3"}}});
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}, {"second", {{kGpu, "1"}}}}));
  EXPECT_EQ(RequestGrant("a", {Token(kGpu, 1)}).status().code(), Code::kResourceExhausted);
  EXPECT_TRUE(ledger_->entries().empty());
  EXPECT_FALSE(pods_.written.contains("a"));
  pods_.Remove(Uid("uid-b"));
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-0");
  EXPECT_NE(GpuOf("a", {Token(kGpu, 1)}, "second"), "GPU-0");
}

TEST_F(AssignedGrantsTest, ContainersThatRunOneAfterTheOtherShareOneGpu) {
  Assign(FakeApiPods::Make("b", {{"main", {{kCore, "50"}, {kBlocks, "4"}}}}),
         {{"main", {"GPU-2"}}});
  pods_.Set(FakeApiPods::Make("a", {{"init", {{kCore, "30"}, {kBlocks, "20"}}},
                                    {"main", {{kCore, "60"}, {kBlocks, "4"}}}}));
  const std::string of_init = GpuOf("a", {Token(kBlocks, 20), Token(kCore, 30)}, "init");
  EXPECT_EQ(of_init, "GPU-0") << "GPU-2 has room for one of them only";
  EXPECT_EQ(GpuOf("a", {Token(kBlocks, 4), Token(kCore, 60)}), of_init);
}

TEST_F(AssignedGrantsTest, AContainerWaitsForAnUnhealthyGpuOfItsInitContainer) {
  pods_.Set(FakeApiPods::Make("a", {{"init", {{kGpu, "1"}}}, {"main", {{kGpu, "1"}}}}));
  const grant::Token last{grant::TokenVariable(kGpu),
                          signer_.Sign(kGpu, {"GPU-3"}, runner_.clock().WallNow())};
  ASSERT_EQ(GpuOf("a", {last}, "init"), "GPU-3");
  const auto healthy = devices_.Get();
  device::NodeInventory inventory = healthy->inventory();
  inventory.gpus[3].health = device::Health::Unhealthy("XID 79");
  devices_.Set(std::make_shared<const DeviceSet>(
      std::make_shared<const device::NodeInventory>(std::move(inventory))));
  const auto refused = RequestGrant("a", {Token(kGpu, 1)});
  EXPECT_NE(refused.status().message().find("XID 79"), std::string::npos)
      << refused.status().ToString();
  devices_.Set(healthy);
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-3");
}

TEST_F(AssignedGrantsTest, RejectsAPodUntilOthersEnd) {
  pods_.Sync();
  for (const std::string name : {"a", "b", "c", "d"}) {
    pods_.Set(FakeApiPods::Make(name, {{"main", {{kMem, "10"}}}}));
    const grant::Token token = Token(kMem, 10);
    const std::string id = signer_.Verify(kMem, token.value)->ids[0];
    kubelet_.Admit(name);
    kubelet_.Hold(name, kMem, id);
    ASSERT_TRUE(RequestGrant(name, {token}).ok());
  }
  pods_.Set(FakeApiPods::Make("e", {{"main", {{kMem, "10"}}}}));
  kubelet_.Admit("e");
  const auto token = Token(kMem, 10);
  const auto refused = RequestGrant("e", {token});
  EXPECT_EQ(refused.status().code(), Code::kResourceExhausted) << refused.status().ToString();
  pods_.Remove(Uid("uid-b"));
  runner_.RunUntilIdle();
  EXPECT_FALSE(RequestGrant("e", {token}).ok()) << "the kubelet still has pod b";
  kubelet_.End("b");
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(ledger_->entries().size(), 3u) << "API server and kubelet agree";
  EXPECT_TRUE(RequestGrant("e", {token}).ok());
}

TEST_F(AssignedGrantsTest, PublishesUsageWhenPodsStartAndEnd) {
  pods_.Sync();
  Assign(FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}}), {{"main", {"GPU-1"}}});
  kubelet_.Admit("a");
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(use_->accounts.UseOf("GPU-1").memory, GiB(8)) << "as soon as it is assigned";
  ASSERT_TRUE(RequestGrant("a", {Token(kMem, 8)}).ok());
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(use_->accounts.UseOf("GPU-1").memory, GiB(8)) << "grant and assignment count once";
  kubelet_.End("a");
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_TRUE(use_->accounts.UseOf("GPU-1").idle());
}

TEST_F(AssignedGrantsTest, ARecreatedPodFollowsItsOwnAssignment) {
  pods_.Sync();
  Assign(FakeApiPods::Make("web-0", {{"main", {{kMem, "16"}}}}, Uid("uid-old")),
         {{"main", {"GPU-1"}}});
  kubelet_.Admit("web-0");
  Start("web-0", {Token(kMem, 16)});  // uid-web-0: not known yet
  pods_.Remove(Uid("uid-old"));
  Assign(FakeApiPods::Make("web-0", {{"main", {{kMem, "16"}}}}), {{"main", {"GPU-2"}}});
  runner_.RunUntilIdle();
  EXPECT_EQ(GpuOf("web-0", {Token(kMem, 16)}), "GPU-2");
}

TEST_F(AssignedGrantsTest, AnnotationsOfTheOlderSchedulersAreFollowed) {
  PodInfo pod = FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}});
  pod.annotations = {{"ALIYUN_COM_GPU_MEM_IDX", "2"},
                     {"ALIYUN_COM_GPU_MEM_POD", "8"},
                     {"ALIYUN_COM_GPU_MEM_ASSIGNED", "false"}};
  pods_.Set(pod);
  EXPECT_EQ(GpuOf("a", {Token(kMem, 8)}), "GPU-2");
  EXPECT_EQ(pods_.written["a"], (StringMap{{"ALIYUN_COM_GPU_MEM_ASSIGNED", "true"}}));
}

}  // namespace
}  // namespace tessera::agent
