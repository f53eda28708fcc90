// SPDX-License-Identifier: Apache-2.0
// Memory errors and their repairs agree in all views.
#include <unistd.h>

#include <array>

#include "src/sim/nvml/nvml_fixture.h"

namespace tessera::nvml {
namespace {

constexpr unsigned kCorrected = 0, kUncorrected = 1;
constexpr unsigned kVolatile = 0, kAggregate = 1;
constexpr unsigned kDram = 2, kSram = 7;

class ErrorsTest : public NvmlTest {
 protected:
  FieldValue Field(unsigned gpu, unsigned id, unsigned scope = 0) {
    FieldValue field = {};
    field.field_id = id;
    field.scope_id = scope;
    EXPECT_EQ(NVML(nvmlDeviceGetFieldValues)(Handle(gpu), 1, &field), Return::kSuccess);
    return field;
  }
  std::uint64_t Total(unsigned type, unsigned counter) {
    std::uint64_t count = 99;
    EXPECT_EQ(NVML(nvmlDeviceGetTotalEccErrors)(Handle(0), type, counter, &count),
              Return::kSuccess);
    return count;
  }
};

TEST_F(ErrorsTest, CountersOfOneErrorAgreeInAllViews) {
  Init();
  node_.state().gpu_state(0).ecc_uncorrected_volatile = 3;
  node_.state().gpu_state(0).ecc_uncorrected_aggregate = 8;
  EXPECT_EQ(Total(kUncorrected, kVolatile), 3u);
  EXPECT_EQ(Total(kUncorrected, kAggregate), 8u);
  EXPECT_EQ(Total(kCorrected, kVolatile), 0u);
  EccErrorCounts counts;
  ASSERT_EQ(NVML(nvmlDeviceGetDetailedEccErrors)(Handle(0), kUncorrected, kAggregate, &counts),
            Return::kSuccess);
  EXPECT_EQ(counts.device_memory, 8u);
  std::uint64_t count = 0;
  ASSERT_EQ(
      NVML(nvmlDeviceGetMemoryErrorCounter)(Handle(0), kUncorrected, kVolatile, kDram, &count),
      Return::kSuccess);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(Field(0, kFieldEccDbeVolatile).value.ull, 3u);
  EXPECT_EQ(Field(0, kFieldEccDbeAggregateDevice).value.ull, 8u);
}

TEST_F(ErrorsTest, RootClearsCountersOfOneKind) {
  if (geteuid() != 0) GTEST_SKIP() << "only root may clear counters";
  Init();
  node_.state().gpu_state(0).ecc_corrected_volatile = 3;
  node_.state().gpu_state(0).ecc_corrected_aggregate = 8;
  ASSERT_EQ(NVML(nvmlDeviceClearEccErrorCounts)(Handle(0), kVolatile), Return::kSuccess);
  EXPECT_EQ(Total(kCorrected, kVolatile), 0u);
  EXPECT_EQ(Total(kCorrected, kAggregate), 8u);
  EXPECT_EQ(NVML(nvmlDeviceClearEccErrorCounts)(Handle(0), 2), Return::kInvalidArgument);
}

TEST_F(ErrorsTest, AmpereRemapsRowsInsteadOfRetiringPages) {
  Init();
  sim::SimGpuState& gpu_state = node_.state().gpu_state(1);
  gpu_state.remapped_corrected = 2;
  gpu_state.remapped_uncorrected = 1;
  gpu_state.remapped_pending = 1;
  std::array<unsigned, 4> rows;
  ASSERT_EQ(NVML(nvmlDeviceGetRemappedRows)(Handle(1), &rows[0], &rows[1], &rows[2], &rows[3]),
            Return::kSuccess);
  EXPECT_EQ(rows, (std::array<unsigned, 4>{2, 1, 1, 0}));
  EXPECT_EQ(Field(1, kFieldRemappedUncorrectable).value.ui, 1u);
  EXPECT_EQ(Field(1, kFieldRemappedPending).value.ui, 1u);
  RowRemapperHistogram banks;
  ASSERT_EQ(NVML(nvmlDeviceGetRowRemapperHistogram)(Handle(1), &banks), Return::kSuccess);
  EXPECT_EQ(banks.max, 637u);
  EXPECT_EQ(banks.high, 3u);
  unsigned count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetRetiredPages)(Handle(1), 0, &count, nullptr), Return::kNotSupported);
  EXPECT_EQ(Field(1, kFieldRetiredDbe).result, Return::kNotSupported);
}

TEST_F(ErrorsTest, TuringRetiresPagesInsteadOfRemappingRows) {
  SetArchitecture(kArchTuring);
  node_.state().gpu_state(0).retired_uncorrected = 2;
  node_.state().gpu_state(0).retired_pending = 1;
  Init();
  unsigned count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetRetiredPages)(Handle(0), 1, &count, nullptr),
            Return::kInsufficientSize);
  ASSERT_EQ(count, 2u);
  std::uint64_t pages[2] = {1, 1};
  ASSERT_EQ(NVML(nvmlDeviceGetRetiredPages)(Handle(0), 1, &count, pages), Return::kSuccess);
  EXPECT_NE(pages[0], pages[1]);
  EXPECT_EQ(pages[0] % 4096, 0u);
  EXPECT_EQ(NVML(nvmlDeviceGetRetiredPages)(Handle(0), 0, &count, nullptr), Return::kSuccess);
  EXPECT_EQ(count, 0u);
  unsigned pending = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetRetiredPagesPendingStatus)(Handle(0), &pending), Return::kSuccess);
  EXPECT_EQ(pending, 1u);
  EXPECT_EQ(Field(0, kFieldRetiredDbe).value.ull, 2u);
  EXPECT_EQ(Field(0, kFieldRemappedCorrectable).result, Return::kNotSupported);
  RowRemapperHistogram banks;
  EXPECT_EQ(NVML(nvmlDeviceGetRowRemapperHistogram)(Handle(0), &banks), Return::kNotSupported);
  std::uint64_t errors = 9;
  EXPECT_EQ(NVML(nvmlDeviceGetMemoryErrorCounter)(Handle(0), kCorrected, kVolatile, kSram, &errors),
            Return::kSuccess);
}

TEST_F(ErrorsTest, FieldsOfLinksNeedNvLink) {
  Facts(3).nvlink_count = 0;
  Init();
  constexpr unsigned kReplayTotal = 52;
  EXPECT_EQ(Field(0, kReplayTotal).result, Return::kSuccess);
  EXPECT_EQ(Field(3, kReplayTotal).result, Return::kNotSupported);
  EXPECT_EQ(Field(0, kFieldNvLinkSpeedFirst).value.ui, 25000u);
  EXPECT_EQ(Field(0, kFieldNvLinkSpeedFirst + 5).value.ui, 0u);  // the link is not connected
  EXPECT_EQ(Field(0, kFieldNvLinkRemoteLink, 2).value.ui, 2u);
  EXPECT_EQ(Field(0, kFieldNvLinkRemoteLink, 7).result, Return::kInvalidArgument);
}

TEST_F(ErrorsTest, ResetStatusFollowsTheRecoveryAction) {
  Init();
  EXPECT_EQ(Field(0, kFieldResetStatus).value.ui, 0u);
  node_.state().gpu_state(0).recovery_action = kRecoveryResetGpu;
  EXPECT_EQ(Field(0, kFieldResetStatus).value.ui, 1u);
  EXPECT_EQ(Field(0, kFieldDrainAndResetStatus).value.ui, 0u);
}

TEST_F(ErrorsTest, InforomVersionsAreThoseOfTheProfile) {
  std::snprintf(Facts(0).inforom_image, 16, "G506.0210.00.04");
  std::snprintf(Facts(0).inforom_ecc, 16, "6.16");
  Init();
  char text[16];
  ASSERT_EQ(NVML(nvmlDeviceGetInforomImageVersion)(Handle(0), text, 16), Return::kSuccess);
  EXPECT_STREQ(text, "G506.0210.00.04");
  ASSERT_EQ(NVML(nvmlDeviceGetInforomVersion)(Handle(0), 1, text, 16), Return::kSuccess);
  EXPECT_STREQ(text, "6.16");
  EXPECT_EQ(NVML(nvmlDeviceGetInforomVersion)(Handle(0), 2, text, 16), Return::kNotSupported);
  EXPECT_EQ(NVML(nvmlDeviceValidateInforom)(Handle(0)), Return::kSuccess);
  EXPECT_EQ(NVML(nvmlDeviceValidateInforom)(Handle(1)), Return::kNotSupported);
}

TEST_F(ErrorsTest, HopperInAFabricIsHealthy) {
  SetArchitecture(kArchHopper);
  Facts(0).fabric_state = kFabricCompleted;
  Init();
  FabricInfoV3 info{};
  info.version = VersionOf<FabricInfoV3>(3);
  ASSERT_EQ(NVML(nvmlDeviceGetGpuFabricInfoV)(Handle(0), &info), Return::kSuccess);
  EXPECT_EQ(info.state, kFabricCompleted);
  EXPECT_EQ(info.health_summary, kFabricSummaryHealthy);
  ASSERT_EQ(NVML(nvmlDeviceGetGpuFabricInfoV)(Handle(1), &info), Return::kSuccess);
  EXPECT_EQ(info.health_summary, 0u);
}

}  // namespace
}  // namespace tessera::nvml
