// SPDX-License-Identifier: Apache-2.0
// Settings of root change getters, clocks and power.
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <vector>

#include "src/sim/nvml/nvml_fixture.h"

namespace tessera::nvml {
namespace {

class SettingsTest : public NvmlTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root may change settings";
    Init();
  }
  unsigned Clock(unsigned type) {
    unsigned mhz = 0;
    EXPECT_EQ(NVML(nvmlDeviceGetClockInfo)(Handle(0), type, &mhz), Return::kSuccess);
    return mhz;
  }
  std::uint64_t Reasons() {
    std::uint64_t reasons = 0;
    EXPECT_EQ(NVML(nvmlDeviceGetCurrentClocksEventReasons)(Handle(0), &reasons), Return::kSuccess);
    return reasons;
  }
  void MakeBusy() { node_.state().gpu_state(0).utilization_gpu = 100; }
};

TEST_F(SettingsTest, APowerLimitHoldsOnlyWithinTheConstraints) {
  unsigned limit = 0;
  EXPECT_EQ(NVML(nvmlDeviceSetPowerManagementLimit)(Handle(0), 99999), Return::kInvalidArgument);
  EXPECT_EQ(NVML(nvmlDeviceSetPowerManagementLimit)(Handle(0), 400001), Return::kInvalidArgument);
  ASSERT_EQ(NVML(nvmlDeviceSetPowerManagementLimit)(Handle(0), 250000), Return::kSuccess);
  for (const char* getter :
       {"nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetEnforcedPowerLimit"}) {
    ASSERT_EQ(Function<fn::nvmlDeviceGetEnforcedPowerLimit>(getter)(Handle(0), &limit),
              Return::kSuccess);
    EXPECT_EQ(limit, 250000u) << getter;
  }
  ASSERT_EQ(NVML(nvmlDeviceGetPowerManagementDefaultLimit)(Handle(0), &limit), Return::kSuccess);
  EXPECT_EQ(limit, 400000u);
  MakeBusy();
  unsigned draw = 0;
  ASSERT_EQ(NVML(nvmlDeviceGetPowerUsage)(Handle(0), &draw), Return::kSuccess);
  EXPECT_LT(draw, 250000u);
  PowerValue value = {VersionOf<PowerValue>(2), 0, 300000};
  ASSERT_EQ(NVML(nvmlDeviceSetPowerManagementLimit_v2)(Handle(0), &value), Return::kSuccess);
  ASSERT_EQ(NVML(nvmlDeviceGetPowerManagementLimit)(Handle(0), &limit), Return::kSuccess);
  EXPECT_EQ(limit, 300000u);
}

TEST_F(SettingsTest, LockedClocksApplyToBusyAndIdleGpus) {
  ASSERT_EQ(NVML(nvmlDeviceSetGpuLockedClocks)(Handle(0), 900, 1000), Return::kSuccess);
  EXPECT_EQ(Clock(kClockSm), 900u);
  MakeBusy();
  EXPECT_EQ(Clock(kClockSm), 1000u);
  EXPECT_EQ(Clock(kClockMem), 1593u);
  ASSERT_EQ(NVML(nvmlDeviceResetGpuLockedClocks)(Handle(0)), Return::kSuccess);
  EXPECT_EQ(Clock(kClockSm), 1410u);
  EXPECT_EQ(NVML(nvmlDeviceSetGpuLockedClocks)(Handle(0), 1000, 900), Return::kInvalidArgument);
}

TEST_F(SettingsTest, ApplicationClocksLimitABusyGpuWithAReason) {
  EXPECT_EQ(NVML(nvmlDeviceSetApplicationsClocks)(Handle(0), 1234, 1005), Return::kInvalidArgument);
  ASSERT_EQ(NVML(nvmlDeviceSetApplicationsClocks)(Handle(0), 1593, 1005), Return::kSuccess);
  EXPECT_EQ(Reasons(), kReasonGpuIdle);
  MakeBusy();
  EXPECT_EQ(Clock(kClockGraphics), 1005u);
  EXPECT_EQ(Reasons(), kReasonApplicationsClocks);
  unsigned mhz = 0;
  ASSERT_EQ(NVML(nvmlDeviceGetApplicationsClock)(Handle(0), kClockGraphics, &mhz),
            Return::kSuccess);
  EXPECT_EQ(mhz, 1005u);
  ASSERT_EQ(NVML(nvmlDeviceGetDefaultApplicationsClock)(Handle(0), kClockGraphics, &mhz),
            Return::kSuccess);
  EXPECT_EQ(mhz, 1410u);
  ASSERT_EQ(NVML(nvmlDeviceResetApplicationsClocks)(Handle(0)), Return::kSuccess);
  EXPECT_EQ(Reasons(), 0u);
}

TEST_F(SettingsTest, HeatAndPowerLowerTheClocks) {
  MakeBusy();
  node_.state().gpu_state(0).temperature_c = 89;
  EXPECT_EQ(Reasons(), kReasonHwSlowdown | kReasonHwThermal);
  EXPECT_EQ(Clock(kClockSm), 705u);
  node_.state().gpu_state(0).temperature_c = 88;
  EXPECT_EQ(Reasons(), 0u);
  node_.state().gpu_state(0).power_mw = 400000;
  EXPECT_EQ(Reasons(), kReasonSwPowerCap);
  EXPECT_LT(Clock(kClockSm), 1410u);
}

TEST_F(SettingsTest, ViolationTimesCountThrottling) {
  node_.state().gpu_state(0).thermal_throttling_before_ns = 7000;
  node_.state().gpu_state(0).power_mw = 300000;
  ViolationTime time{};
  ASSERT_EQ(NVML(nvmlDeviceGetViolationStatus)(Handle(0), 1, &time), Return::kSuccess);
  EXPECT_EQ(time.violation_time, 7000u);
  ASSERT_EQ(NVML(nvmlDeviceSetPowerManagementLimit)(Handle(0), 300000), Return::kSuccess);
  EXPECT_EQ(Reasons() & kReasonSwPowerCap, kReasonSwPowerCap);
  ASSERT_EQ(NVML(nvmlDeviceGetViolationStatus)(Handle(0), 0, &time), Return::kSuccess);
  EXPECT_GT(time.violation_time, 0u);
  FieldValue field = {};
  field.field_id = kFieldHwThermalSlowdown;
  ASSERT_EQ(NVML(nvmlDeviceGetFieldValues)(Handle(0), 1, &field), Return::kSuccess);
  EXPECT_EQ(field.value.ull, 7000u);
}

TEST_F(SettingsTest, AnEccModeWaitsForTheNextBoot) {
  unsigned current = 9, pending = 9;
  ASSERT_EQ(NVML(nvmlDeviceSetEccMode)(Handle(0), kFeatureDisabled), Return::kSuccess);
  ASSERT_EQ(NVML(nvmlDeviceGetEccMode)(Handle(0), &current, &pending), Return::kSuccess);
  EXPECT_EQ(current, kFeatureEnabled);
  EXPECT_EQ(pending, kFeatureDisabled);
}

TEST_F(SettingsTest, RootOfAContainerWithoutSysAdminChangesNothing) {
  const int status = InChild([this] {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    if (syscall(SYS_capset, &header, none) != 0 || geteuid() != 0) return 1;
    const Return result = NVML(nvmlDeviceSetPowerManagementLimit)(Handle(0), 250000);
    return result == Return::kNoPermission ? 0 : 2;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(SettingsTest, WithoutRootNothingChanges) {
  const int status = InChild([this] {
    if (setuid(65534) != 0) return 1;
    const std::vector<Return> results = {
        NVML(nvmlDeviceSetPowerManagementLimit)(Handle(0), 250000),
        NVML(nvmlDeviceSetGpuLockedClocks)(Handle(0), 900, 1000),
        NVML(nvmlDeviceSetMemoryLockedClocks)(Handle(0), 1593, 1593),
        NVML(nvmlDeviceSetApplicationsClocks)(Handle(0), 1593, 1005),
        NVML(nvmlDeviceSetEccMode)(Handle(0), 0),
        NVML(nvmlDeviceSetPersistenceMode)(Handle(0), 1),
        NVML(nvmlDeviceSetComputeMode)(Handle(0), kComputeProhibited),
        NVML(nvmlDeviceClearEccErrorCounts)(Handle(0), 0)};
    for (const Return result : results) {
      if (result != Return::kNoPermission) return 2;
    }
    return 0;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(node_.state().gpu_state(0).power_limit_mw.load(), 0u);
}

TEST_F(NvmlTest, ATuringGpuHasTwoMemoryClocksAndTwoPerformanceStates) {
  for (std::uint32_t gpu = 0; gpu < 4; ++gpu) Facts(gpu).clock_mem_idle = 405;
  SetArchitecture(kArchTuring);
  Init();
  unsigned count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetSupportedMemoryClocks)(Handle(0), &count, nullptr),
            Return::kInsufficientSize);
  ASSERT_EQ(count, 2u);
  unsigned clocks[2];
  ASSERT_EQ(NVML(nvmlDeviceGetSupportedMemoryClocks)(Handle(0), &count, clocks), Return::kSuccess);
  EXPECT_EQ(clocks[1], 405u);
  unsigned states[3];
  ASSERT_EQ(NVML(nvmlDeviceGetSupportedPerformanceStates)(Handle(0), states, sizeof(states)),
            Return::kSuccess);
  EXPECT_EQ(states[0], 0u);
  EXPECT_EQ(states[1], 8u);
  EXPECT_EQ(states[2], 32u);
}

}  // namespace
}  // namespace tessera::nvml
