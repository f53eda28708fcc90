// SPDX-License-Identifier: Apache-2.0
// Tests when the GPUs of a deleted pod are released, including pods whose processes do not exit.
#include "src/agent/grants/ended_pods.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/agent/grants/start_waits.h"
#include "src/agent/grants/testing/grants_fixture.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

class FakeProcesses final : public PodProcesses {
 public:
  explicit FakeProcesses(TaskRunner* runner) : runner_(runner) {}
  void Read(Done done) override {
    ++reads;
    runner_->Post([this, done = std::move(done)] { done(seen); });
  }
  void Run(const std::string& pod, char state = 'S') {
    seen.by_pod[Uid("uid-" + pod)] = {{4711, state}};
  }
  void End(const std::string& pod) { seen.by_pod.erase(Uid("uid-" + pod)); }

  ProcessSnapshot seen;
  int reads = 0;

 private:
  TaskRunner* const runner_;
};

class EndedPodsTest : public GrantsFixture {
 protected:
  EndedPodsTest() {
    release_ = {.processes = &processes_,
                .timeout = 30s,
                .on_withheld = [this](const WithheldGpus& now) { withheld_ = now; }};
    Restart();
    pods_.Sync();
  }

  void StartOn(const std::string& name, const std::string& gpu) {
    Assign(FakeApiPods::Make(name, {{"main", {{kGpu, "1"}}}}), {{"main", {gpu}}});
    kubelet_.Admit(name);
    ASSERT_EQ(GpuOf(name, {Token(kGpu, 1)}), gpu);
    processes_.Run(name);
  }
  // Deleted by force: API server and kubelet do not list it, and its container still runs.
  void ForceDelete(const std::string& name) {
    kubelet_.End(name);
    pods_.Remove(Uid("uid-" + name));
    runner_.AdvanceTimeAndRun(1s);
  }

  FakeProcesses processes_{&runner_};
  WithheldGpus withheld_;
};

TEST_F(EndedPodsTest, AGpuIsReleasedOnlyWhenTheProcessesOfItsPodHaveLeft) {
  StartOn("a", "GPU-1");
  ForceDelete("a");
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_EQ(metrics_.leaving_containers, 1u);
  processes_.End("a");
  runner_.AdvanceTimeAndRun(3s);
  EXPECT_TRUE(ledger_->entries().empty());
  EXPECT_EQ(metrics_.leaving_containers, 0u);
  EXPECT_TRUE(withheld_.empty());
}

TEST_F(EndedPodsTest, AGpuWhoseReleaseCannotBeWrittenIsReleasedLater) {
  StartOn("a", "GPU-1");
  processes_.End("a");
  log_.status = Status(Code::kResourceExhausted, "No space left on device");
  ForceDelete("a");
  runner_.AdvanceTimeAndRun(10s);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  log_.status = Status::Ok();
  runner_.AdvanceTimeAndRun(10s);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(EndedPodsTest, ThePodThatComesNextWaitsForAProcessThatEnds) {
  StartOn("a", "GPU-1");
  ForceDelete("a");
  Assign(FakeApiPods::Make("b", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-1"}}});
  kubelet_.Admit("b");
  const auto answer = Start("b", {Token(kGpu, 1)});
  runner_.AdvanceTimeAndRun(2s);
  EXPECT_FALSE(answer->has_value());
  processes_.End("a");
  runner_.AdvanceTimeAndRun(500ms);
  ASSERT_TRUE(answer->has_value());
  EXPECT_TRUE((*answer)->ok()) << (*answer)->status().ToString();
}

TEST_F(EndedPodsTest, TheNextPodsErrorNamesTheRemainingProcess) {
  StartOn("a", "GPU-1");
  processes_.Run("a", 'D');
  ForceDelete("a");
  Assign(FakeApiPods::Make("b", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-1"}}});
  kubelet_.Admit("b");
  const auto answer = Start("b", {Token(kGpu, 1)});
  runner_.AdvanceTimeAndRun(kGrantWait + 1s);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((*answer)->status().code(), Code::kUnavailable);
  EXPECT_NE(
      (*answer)->status().message().find("GPU-1 is not free yet: pod default/a (uid uid-a) is "
                                         "gone, but its process 4711 (state D)"),
      std::string::npos)
      << (*answer)->status().message();
}

TEST_F(EndedPodsTest, APodThatFindsNoRoomWaitsForAProcessThatEnds) {
  for (const char* name : {"0", "1", "2", "3"}) StartOn(name, "GPU-" + std::string(name));
  ForceDelete("2");
  pods_.Set(FakeApiPods::Make("next", {{"main", {{kMem, "16"}}}}));
  kubelet_.Admit("next");
  const auto answer = Start("next", {Token(kMem, 16)});
  runner_.AdvanceTimeAndRun(2s);
  EXPECT_FALSE(answer->has_value());
  processes_.End("2");
  runner_.AdvanceTimeAndRun(500ms);
  ASSERT_TRUE(answer->has_value());
  ASSERT_TRUE((*answer)->ok()) << (*answer)->status().ToString();
  EXPECT_EQ((**answer)->env.at("NVIDIA_VISIBLE_DEVICES"), "GPU-2");
}

TEST_F(EndedPodsTest, AfterTheTimeoutTheGpuIsWithheldUntilTheProcessIsGone) {
  StartOn("a", "GPU-1");
  processes_.Run("a", 'D');
  ForceDelete("a");
  runner_.AdvanceTimeAndRun(27s);
  EXPECT_TRUE(withheld_.empty());
  runner_.AdvanceTimeAndRun(6s);
  ASSERT_TRUE(withheld_.contains("GPU-1"));
  EXPECT_EQ(withheld_.at("GPU-1"),
            "withheld: pod default/a is gone, but its process 4711 (state D) still exists");
  EXPECT_EQ(metrics_.release_timeouts.value(), 1u);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  processes_.End("a");
  runner_.AdvanceTimeAndRun(5s);
  EXPECT_TRUE(ledger_->entries().empty());
  EXPECT_TRUE(withheld_.empty());
  EXPECT_EQ(metrics_.release_timeouts.value(), 1u);
}

TEST_F(EndedPodsTest, NothingIsReleasedWhileProcessesCannotBeRead) {
  StartOn("a", "GPU-1");
  processes_.seen = {};
  processes_.seen.status = Status(Code::kPermissionDenied, "/proc: Permission denied");
  ForceDelete("a");
  EXPECT_EQ(ledger_->entries().size(), 1u);
  processes_.seen.status = Status::Ok();
  runner_.AdvanceTimeAndRun(5s);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(EndedPodsTest, APodThatTheApiServerReportsAsRunningKeepsItsGpu) {
  StartOn("a", "GPU-1");
  // The kubelet has restarted and not read its containers yet.
  kubelet_.End("a");
  processes_.End("a");
  Assign(FakeApiPods::Make("b", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-1"}}});
  kubelet_.Admit("b");
  const auto grant = RequestGrant("b", {Token(kGpu, 1)});
  EXPECT_EQ(grant.status().code(), Code::kFailedPrecondition);
  EXPECT_NE(grant.status().message().find("default/a"), std::string::npos);
  EXPECT_NE(ledger_->Find({Uid("uid-a"), "default", "a", "main"}), nullptr);
}

TEST_F(EndedPodsTest, ARecreatedPodWaitsForTheProcessesOfItsPredecessor) {
  StartOn("web-0", "GPU-1");
  pods_.Remove(Uid("uid-web-0"));
  PodInfo second = FakeApiPods::Make("web-0", {{"main", {{kGpu, "1"}}}}, Uid("uid-second"));
  Assign(second, {{"main", {"GPU-1"}}});
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_NE(ledger_->Find({Uid("uid-web-0"), "default", "web-0", "main"}), nullptr);
  processes_.End("web-0");
  runner_.AdvanceTimeAndRun(5s);
  EXPECT_EQ(ledger_->Find({Uid("uid-web-0"), "default", "web-0", "main"}), nullptr);
}

TEST_F(EndedPodsTest, AStaticPodKeepsItsGpuWhenItsMirrorIsRecreated) {
  StartOn("a", "GPU-1");
  const PodInfo mirror = *pods_.pods().at(Uid("uid-a"));
  pods_.Remove(Uid("uid-a"));
  kubelet_.End("a");
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(metrics_.leaving_containers, 1u);
  pods_.Set(mirror);
  kubelet_.Admit("a");
  processes_.End("a");
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_EQ(metrics_.leaving_containers, 0u);
}

TEST_F(EndedPodsTest, PollsAKubeletThatStillListsAnEndedPodWithGrowingPauses) {
  StartOn("a", "GPU-1");
  processes_.End("a");
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(700ms);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  kubelet_.End("a");
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_TRUE(ledger_->entries().empty());

  StartOn("b", "GPU-2");
  processes_.End("b");
  pods_.Remove(Uid("uid-b"));
  runner_.AdvanceTimeAndRun(10min);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_EQ(processes_.reads, 1) << "only the processes of pod a are read";
  kubelet_.End("b");
  runner_.AdvanceTimeAndRun(EndedPods::kLongestPause + 1s);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(EndedPodsTest, AnEndedPodThatTheKubeletListsKeepsItsGpu) {
  StartOn("a", "GPU-1");
  PodInfo ended = *pods_.pods().at(Uid("uid-a"));
  ended.ended = true;
  pods_.Set(std::move(ended));
  processes_.End("a");
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  kubelet_.End("a");
  runner_.AdvanceTimeAndRun(EndedPods::kLongestPause);
  EXPECT_TRUE(ledger_->entries().empty());
}

// The kubelet lists names. A listed name belongs to a successor only if the API server has another
// pod of that name.
TEST_F(EndedPodsTest, OnlyAPodOfTheSameNamespaceAndNameIsANamesake) {
  StartOn("a", "GPU-1");
  processes_.End("a");
  PodInfo elsewhere = FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}}, Uid("uid-elsewhere"));
  elsewhere.ns = "elsewhere";
  pods_.Set(std::move(elsewhere));
  pods_.Set(FakeApiPods::Make("b", {{"main", {{kGpu, "1"}}}}));
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(ledger_->entries().size(), 1u) << "the kubelet still lists it";
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}}, Uid("uid-second")));
  runner_.AdvanceTimeAndRun(EndedPods::kLongestPause);
  EXPECT_TRUE(ledger_->entries().empty()) << "the kubelet lists its successor";
}

TEST_F(EndedPodsTest, APodThatLivesKeepsItsGpuWhileTheKubeletListsNoPod) {
  StartOn("a", "GPU-1");
  kubelet_.End("a");
  processes_.End("a");
  runner_.AdvanceTimeAndRun(10 * EndedPods::kPruneInterval);
  EXPECT_EQ(ledger_->entries().size(), 1u);
}

TEST_F(EndedPodsTest, GpusOfSeveralPodsAreReleasedEachWhenItsOwnProcessesHaveLeft) {
  StartOn("a", "GPU-1");
  StartOn("b", "GPU-2");
  for (const char* name : {"a", "b"}) {
    kubelet_.End(name);
    pods_.Remove(Uid("uid-" + std::string(name)));
  }
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_EQ(metrics_.leaving_containers, 2u);
  processes_.End("b");
  runner_.AdvanceTimeAndRun(40s);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_NE(ledger_->Find({Uid("uid-a"), "default", "a", "main"}), nullptr);
  EXPECT_EQ(metrics_.leaving_containers, 1u);
  EXPECT_TRUE(withheld_.contains("GPU-1"));
  EXPECT_FALSE(withheld_.contains("GPU-2"));
}

class UnsyncedPodsTest : public GrantsFixture {};

TEST_F(UnsyncedPodsTest, NoPodIsConsideredDeletedBeforeAllPodsAreKnown) {
  Assign(FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-1"}}});
  ASSERT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-1");
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(1min);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  pods_.Sync();
  runner_.AdvanceTimeAndRun(1s);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(UnsyncedPodsTest, AGpuIsReleasedIfNeitherTheKubeletNorTheApiServerKnowsItsPod) {
  Assign(FakeApiPods::Make("a", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-1"}}});
  ASSERT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-1");
  pods_.Remove(Uid("uid-a"));
  Assign(FakeApiPods::Make("b", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-1"}}});
  kubelet_.Admit("b");
  kubelet_.Admit("a");
  EXPECT_THAT(GpuOf("b", {Token(kGpu, 1)}), ::testing::HasSubstr("GPU-1 is still held by"));
  kubelet_.End("a");
  EXPECT_EQ(GpuOf("b", {Token(kGpu, 1)}), "GPU-1");
}

TEST_F(EndedPodsTest, WithoutAnApiServerProcessesOfAnUnlistedPodAreFollowedToo) {
  Restart(kWithoutApiServer);
  kubelet_.Admit("a");
  ASSERT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-0");
  processes_.Run("a");
  kubelet_.End("a");
  runner_.AdvanceTimeAndRun(2 * EndedPods::kPruneInterval);
  EXPECT_EQ(metrics_.leaving_containers, 1u);
  processes_.End("a");
  runner_.AdvanceTimeAndRun(5s);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(EndedPodsTest, TokensThatAreTooOldAreForgottenAlsoWhereNothingIsGranted) {
  StartOn("a", "GPU-1");
  processes_.End("a");
  ForceDelete("a");
  ASSERT_TRUE(ledger_->entries().empty());
  runner_.AdvanceTimeAndRun(GrantLedger::kTokenLifetime - 1h);
  EXPECT_EQ(ledger_->spent_count(), 1u);
  runner_.AdvanceTimeAndRun(2h);
  EXPECT_EQ(ledger_->spent_count(), 0u);
}

TEST_F(EndedPodsTest, ARestartedAgentForgetsTokensThatAreTooOld) {
  StartOn("a", "GPU-1");
  processes_.End("a");
  ForceDelete("a");
  Restart();
  EXPECT_EQ(ledger_->spent_count(), 1u);
  runner_.AdvanceTimeAndRun(GrantLedger::kTokenLifetime + 1h);
  EXPECT_EQ(ledger_->spent_count(), 0u);
}

TEST(WithholdTest, HealthyGpusAreWithheldWithTheReasonAndOthersStayAsTheyAre) {
  auto inventory = std::make_shared<device::NodeInventory>(FourGpus()->inventory());
  inventory->gpus[2].health = device::Health::Unhealthy("XID 79");
  const auto withheld =
      Withhold(inventory, {{"GPU-1", "pod a is gone"}, {"GPU-2", "pod b is gone"}});
  EXPECT_TRUE(withheld->gpus[0].health.ok());
  EXPECT_EQ(withheld->gpus[1].health.state, device::Health::State::kWithheld);
  EXPECT_EQ(withheld->gpus[1].health.reason, "pod a is gone");
  EXPECT_EQ(withheld->gpus[2].health.reason, "XID 79");
  EXPECT_TRUE(inventory->gpus[1].health.ok())
      << "the original inventory is shared and must not change";
}

TEST(WithholdTest, NothingToWithholdCopiesNothing) {
  const auto inventory = std::make_shared<const device::NodeInventory>(FourGpus()->inventory());
  EXPECT_EQ(Withhold(inventory, {}), inventory);
  EXPECT_EQ(Withhold(nullptr, {{"GPU-1", "pod a is gone"}}), nullptr);
}

TEST_F(EndedPodsTest, ProcessesAreReadOnlyWhenAPodIsGone) {
  StartOn("a", "GPU-1");
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_EQ(processes_.reads, 0);
}

}  // namespace
}  // namespace tessera::agent
