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

TEST(HealthTrackerTest, AnXidNeedsQuietAndGoodPolls) {
  HealthTracker tracker(kRules);
  tracker.OnXid(74, At(0));
  EXPECT_EQ(tracker.health().reason, "XID 74: NVLink error");
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(58));
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(59));
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(59));
  EXPECT_FALSE(tracker.health().ok()) << "not quiet for long enough";
  tracker.OnXid(74, At(59));
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(119));
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(120));
  EXPECT_FALSE(tracker.health().ok()) << "two good polls are not three";
  tracker.OnAnswer(kUnknown, std::nullopt, At(121));
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(122));
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(123));
  EXPECT_FALSE(tracker.health().ok()) << "a bad poll starts the count again";
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(124));
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, ADriverThatAsksForAResetIsWaitedFor) {
  HealthTracker tracker(kRules);
  for (int second = 100; second < 110; ++second) {
    tracker.OnAnswer(Status::Ok(), RecoveryAction::kResetGpu, At(second));
  }
  EXPECT_EQ(tracker.health().reason, "the driver asks for a reset of the GPU");
  tracker.OnAnswer(Status::Ok(), std::nullopt, At(110));
  EXPECT_FALSE(tracker.health().ok()) << "the question was not asked";
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(111));
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AGpuThatWasLostOrResetSinceTheXidNeedsNoQuiet) {
  HealthTracker lost(kRules);
  lost.OnXid(79, At(0));
  lost.OnAnswer(kLost, std::nullopt, At(1));
  HealthTracker reset(kRules);
  reset.OnXid(48, At(0));
  reset.OnAnswer(Status::Ok(), RecoveryAction::kResetGpu, At(1));
  for (int second = 2; second < 5; ++second) {
    EXPECT_FALSE(lost.health().ok());
    EXPECT_FALSE(reset.health().ok());
    lost.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(second));
    reset.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(second));
  }
  EXPECT_TRUE(lost.health().ok());
  EXPECT_TRUE(reset.health().ok());
}

TEST(HealthTrackerTest, AnXidIsNamedBeforeTheFailuresThatFollowFromIt) {
  HealthTracker tracker(kRules);
  tracker.OnAnswer(kLost, std::nullopt, At(0));
  tracker.OnXid(79, At(1));
  tracker.OnAnswer(kLost, std::nullopt, At(2));
  tracker.OnHang(NvmlCall::kName);
  EXPECT_EQ(tracker.health().reason, "XID 79: GPU has fallen off the bus");
  tracker.OnDriverReloaded();
  EXPECT_EQ(tracker.health().reason, "NVML call nvmlDeviceGetName did not return");
}

TEST(HealthTrackerTest, ADriverLoadedAnewForgetsXids) {
  HealthTracker tracker(kRules);
  tracker.OnXid(48, At(0));
  tracker.OnDriverReloaded();
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AHangIsNamedAndEndsWithAnAnswer) {
  HealthTracker tracker(kRules);
  tracker.OnHang(NvmlCall::kName);
  EXPECT_EQ(tracker.health().reason, "NVML call nvmlDeviceGetName did not return");
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kNone, At(1));
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, AMissingGpuComesBackWithAnAnswer) {
  HealthTracker tracker(kRules);
  tracker.OnMissing();
  EXPECT_EQ(tracker.health().reason, "the driver does not report this GPU any more");
  tracker.OnAnswer(Status::Ok(), std::nullopt, At(1));
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, UnwatchedEventsAreAReason) {
  HealthTracker tracker(kRules);
  tracker.OnEventsWatched(Status(Code::kUnknown, "nvmlDeviceRegisterEvents: unknown error"));
  EXPECT_EQ(tracker.health().reason,
            "XIDs cannot be watched: nvmlDeviceRegisterEvents: unknown error");
  tracker.OnEventsWatched(Status::Ok());
  EXPECT_TRUE(tracker.health().ok());
}

TEST(HealthTrackerTest, ProbesDoNotCountWhereAllChecksAreOff) {
  HealthRules rules = kRules;
  rules.probes_count = rules.recovery_counts = false;
  HealthTracker tracker(rules);
  tracker.OnAnswer(kLost, std::nullopt, At(1));
  tracker.OnHang(NvmlCall::kName);
  tracker.OnAnswer(Status::Ok(), RecoveryAction::kReboot, At(2));
  EXPECT_TRUE(tracker.health().ok());
}

}  // namespace
}  // namespace tessera::gpu
