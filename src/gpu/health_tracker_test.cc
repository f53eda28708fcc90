// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/health_tracker.h"

#include <gtest/gtest.h>

namespace tessera::gpu {
namespace {

using std::chrono::seconds;

constexpr HealthRules kRules{.xid_quiet = seconds(60), .good_polls_after_xid = 3};
const Status kLost(Code::kDataLoss, "nvmlDeviceGetMemoryInfo: GPU is lost");

const Status kUnknown(Code::kUnknown, "nvmlDeviceGetMemoryInfo: unknown error");

MonotonicTime At(int second) { return MonotonicTime(seconds(second)); }

TEST(HealthTrackerTest, AFailureLastsUntilTheNextGoodAnswer) {
  HealthTracker tracker(kRules);
  EXPECT_TRUE(tracker.health().ok());
  tracker.OnAnswer(kLost, std::nullopt, At(1));
  EXPECT_EQ(tracker.health().reason, "nvmlDeviceGetMemoryInfo: GPU is lost");
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(2));
  EXPECT_TRUE(tracker.health().ok());
}

using State = device::Health::State;

void AnswerOk(HealthTracker* tracker, int second) {
  tracker->OnAnswer(Status::Ok(), RecoveryAction::kNone, At(second));
}

TEST(HealthTrackerTest, AnXidThatNeedsAResetStaysUntilTheRepair) {
  HealthTracker tracker(kRules);
  tracker.OnXid(48, XidEffect::kUntilRepaired, At(0));
  EXPECT_EQ(tracker.health().reason, "XID 48: Double-bit ECC error; to do: reset the GPU");
  for (int second = 10; second < 10000; second += 10) {
    AnswerOk(&tracker, second);
    tracker.OnNoRecoveryAction();
  }
  EXPECT_EQ(tracker.health().state, State::kUnhealthy)
      << "time without errors does not repair the GPU";
  EXPECT_EQ(tracker.unrepaired_xid(), 48u);
}

TEST(HealthTrackerTest, AnUnknownXidIsClearedByAQuietTimeAndGoodPolls) {
  HealthTracker tracker(kRules);
  tracker.OnXid(4242, XidEffect::kUntilQuiet, At(0));
  EXPECT_EQ(tracker.health().reason, "XID 4242");
  for (const int second : {58, 59, 59}) AnswerOk(&tracker, second);
  EXPECT_FALSE(tracker.health().ok()) << "too little time without errors";
  tracker.OnXid(4242, XidEffect::kUntilQuiet, At(59));
  for (const int second : {119, 120}) AnswerOk(&tracker, second);
  EXPECT_FALSE(tracker.health().ok()) << "three good polls are needed";
  tracker.OnAnswer(kUnknown, std::nullopt, At(121));
  for (const int second : {122, 123}) AnswerOk(&tracker, second);
  EXPECT_FALSE(tracker.health().ok()) << "a failed poll resets the count";
  AnswerOk(&tracker, 124);
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AGpuWithAnApplicationsXidIsSuspectButStillOffered) {
  HealthTracker tracker(kRules);
  tracker.OnXid(31, XidEffect::kSuspect, At(0));
  EXPECT_EQ(tracker.health().state, State::kSuspect);
  EXPECT_TRUE(tracker.health().ok());
  EXPECT_EQ(tracker.health().reason, "XID 31: GPU memory page fault");
  AnswerOk(&tracker, 59);
  EXPECT_EQ(tracker.health().state, State::kSuspect);
  AnswerOk(&tracker, 60);
  EXPECT_EQ(tracker.health(), device::Health::Healthy());
}

TEST(HealthTrackerTest, AnXidThatNeedsARepairIsNotReplacedByAHarmlessOne) {
  HealthTracker tracker(kRules);
  tracker.OnXid(48, XidEffect::kUntilRepaired, At(0));
  tracker.OnXid(4242, XidEffect::kUntilQuiet, At(1));
  tracker.OnXid(31, XidEffect::kSuspect, At(2));
  tracker.OnXid(154, XidEffect::kNone, At(3));
  for (int second = 100; second < 110; ++second) AnswerOk(&tracker, second);
  EXPECT_EQ(tracker.unrepaired_xid(), 48u);
  EXPECT_FALSE(tracker.health().ok());
}

TEST(HealthTrackerTest, ARememberedXidIsRepairedIfTheDriverRequestsNoAction) {
  HealthTracker without_actions(kRules);
  HealthTracker with_actions(kRules);
  without_actions.RestoreXid(48);
  with_actions.RestoreXid(48);
  EXPECT_FALSE(with_actions.health().ok());
  for (int second = 1; second < 5; ++second) {
    AnswerOk(&without_actions, second);
    AnswerOk(&with_actions, second);
    with_actions.OnNoRecoveryAction();
  }
  EXPECT_FALSE(without_actions.health().ok());
  EXPECT_TRUE(with_actions.health().ok());
}

TEST(HealthTrackerTest, AGpuIsUnhealthyUntilItsMigModeIsOff) {
  HealthTracker tracker(kRules);
  tracker.OnMigMode(true);
  EXPECT_TRUE(tracker.mig());
  EXPECT_NE(tracker.health().reason.find("MIG mode is on"), std::string::npos);
  tracker.OnMigMode(false);
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, ARequestedResetMakesTheGpuUnhealthyUntilDone) {
  HealthTracker tracker(kRules);
  for (int second = 100; second < 110; ++second) {
    tracker.OnAnswer(Status::Ok(), RecoveryAction::kResetGpu, At(second));
  }
  EXPECT_EQ(tracker.health().reason, "the driver requests a reset of the GPU");
  tracker.OnAnswer(Status::Ok(), std::nullopt, At(110));
  EXPECT_FALSE(tracker.health().ok()) << "the recovery action was not queried";
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(111));
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AGpuThatWasLostOrResetSinceTheXidRecovers) {
  HealthTracker lost(kRules);
  lost.OnXid(79, XidEffect::kUntilRepaired, At(0));
  lost.OnAnswer(kLost, std::nullopt, At(1));
  HealthTracker reset(kRules);
  reset.OnXid(48, XidEffect::kUntilRepaired, At(0));
  reset.OnAnswer(Status::Ok(), RecoveryAction::kResetGpu, At(1));
  EXPECT_EQ(lost.health().state, State::kUnhealthy);
  EXPECT_EQ(reset.health().state, State::kUnhealthy);
  for (int second = 2; second < 5; ++second) {
    EXPECT_FALSE(lost.health().ok());
    EXPECT_FALSE(reset.health().ok());
    AnswerOk(&lost, second);
    AnswerOk(&reset, second);
    if (second == 4) continue;
    EXPECT_EQ(lost.health().state, State::kRecovering);
    EXPECT_EQ(reset.health().reason, "recovering from XID 48: Double-bit ECC error");
  }
  EXPECT_TRUE(lost.health().ok());
  EXPECT_TRUE(reset.health().ok());
  EXPECT_EQ(reset.unrepaired_xid(), std::nullopt);
}

TEST(HealthTrackerTest, ReportsAnXidInsteadOfTheFailuresThatItCauses) {
  HealthTracker tracker(kRules);
  tracker.OnAnswer(kLost, std::nullopt, At(0));
  tracker.OnXid(79, XidEffect::kUntilRepaired, At(1));
  EXPECT_EQ(tracker.health().reason, "XID 79: GPU has fallen off the bus; to do: reboot the node");
  tracker.OnAnswer(kLost, std::nullopt, At(2));
  tracker.OnHang(NvmlCall::kName);
  EXPECT_EQ(tracker.health().reason, "XID 79: GPU has fallen off the bus; to do: reboot the node")
      << "the advice stays while the GPU is lost";
}

TEST(HealthTrackerTest, AReloadedDriverIsARepair) {
  HealthTracker tracker(kRules);
  tracker.OnXid(48, XidEffect::kUntilRepaired, At(0));
  AnswerOk(&tracker, 1);
  tracker.OnDriverReloaded();
  for (int second = 2; second < 5; ++second) {
    EXPECT_EQ(tracker.health().state, State::kRecovering);
    AnswerOk(&tracker, second);
  }
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AHangIsReportedUntilAnAnswer) {
  HealthTracker tracker(kRules);
  tracker.OnHang(NvmlCall::kName);
  EXPECT_EQ(tracker.health().reason, "NVML call nvmlDeviceGetName did not return");
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(1));
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AMissingGpuComesBackWithAnAnswer) {
  HealthTracker tracker(kRules);
  tracker.OnMissing();
  EXPECT_EQ(tracker.health().reason, "the driver no longer reports this GPU");
  tracker.OnAnswer(Status::Ok(), std::nullopt, At(1));
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AGpuWhoseXidsCannotBeWatchedIsUnhealthy) {
  HealthTracker tracker(kRules);
  tracker.OnEventsWatched(Status(Code::kUnknown, "nvmlDeviceRegisterEvents: unknown error"));
  EXPECT_EQ(tracker.health().reason, "cannot watch XIDs: nvmlDeviceRegisterEvents: unknown error");
  tracker.OnEventsWatched(Status::Ok());
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, FailedProbesAreIgnoredIfHealthChecksAreOff) {
  HealthRules rules = kRules;
  rules.failed_probe_is_unhealthy = rules.recovery_action_is_unhealthy = false;
  HealthTracker tracker(rules);
  tracker.OnAnswer(kLost, std::nullopt, At(1));
  tracker.OnHang(NvmlCall::kName);
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kReboot, At(2));
  EXPECT_TRUE(tracker.health().ok());
}

}  // namespace
}  // namespace tessera::gpu
