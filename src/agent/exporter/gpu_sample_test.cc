// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/gpu_sample.h"

#include <gtest/gtest.h>

#include "src/gpu/testing/fake_nvml.h"

namespace tessera::agent {
namespace {

class GpuReaderTest : public ::testing::Test {
 protected:
  GpuReaderTest() {
    driver_->gpus[1].bus_id = "0000:0f:00.0";
    EXPECT_TRUE(nvml_.Init().ok());
  }
  gpu::testing::FakeTelemetry& telemetry() { return driver_->gpus[1].telemetry; }
  void Use(std::string_view counters) {
    counters_ = std::make_shared<const CounterSpecs>(*ParseCounters(counters, "test"));
    reader_ = std::make_unique<GpuReader>(&nvml_, 1, counters_);
  }
  void UseDefault() {
    counters_ = std::make_shared<const CounterSpecs>(DefaultCounters());
    reader_ = std::make_unique<GpuReader>(&nvml_, 1, counters_);
  }
  std::optional<double> Number(const GpuSample& sample, std::string_view name) {
    for (size_t i = 0; i < counters_->size(); ++i) {
      if ((*counters_)[i].name == name) return sample.numbers[i];
    }
    ADD_FAILURE() << name;
    return std::nullopt;
  }
  void Fail(gpu::NvmlCall call, Code code) {
    driver_->faults[{call, 1}].status = Status(code, "test");
  }

  const std::shared_ptr<gpu::testing::FakeDriver> driver_ = gpu::testing::FakeDriver::WithGpus(2);
  gpu::testing::FakeNvml nvml_{driver_};
  std::shared_ptr<const CounterSpecs> counters_;
  std::unique_ptr<GpuReader> reader_;
};

TEST_F(GpuReaderTest, ValuesAreInTheUnitsOfDcgm) {
  UseDefault();
  telemetry().fields = {{82, 45}, {83, 1234567}, {138, 1000}, {139, 24}, {143, 2}};
  const auto sample = reader_->Read();
  ASSERT_TRUE(sample.ok()) << sample.status().ToString();
  EXPECT_EQ(sample->uuid, driver_->gpus[1].uuid);
  EXPECT_EQ(sample->pci_bus_id, "00000000:0F:00.0");
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_SM_CLOCK"), 1410);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_MEM_CLOCK"), 1593);
  EXPECT_DOUBLE_EQ(*Number(*sample, "DCGM_FI_DEV_POWER_USAGE"), 62.123);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_GPU_UTIL"), 50);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_MEM_COPY_UTIL"), 20);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_FB_USED"), 9 * 1024);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_FB_FREE"), 70 * 1024);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_FB_RESERVED"), 1024);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_MEMORY_TEMP"), 45);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), 1234567);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"), 1024);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"), 2);
  EXPECT_EQ(driver_->calls[gpu::NvmlCall::kFieldValues], 1) << "all fields in one call";
}

TEST_F(GpuReaderTest, ValuesThatAGpuLacksAreAbsentAndNotZero) {
  UseDefault();
  telemetry().memory.reserved.reset();
  Fail(gpu::NvmlCall::kEncoderUtilization, Code::kUnimplemented);
  Fail(gpu::NvmlCall::kUtilization, Code::kUnimplemented);
  for (int i = 0; i < 2; ++i) {
    const auto sample = reader_->Read();
    ASSERT_TRUE(sample.ok());
    EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_ENC_UTIL"), std::nullopt);
    EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_GPU_UTIL"), std::nullopt);
    EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_FB_RESERVED"), std::nullopt);
    EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_MEMORY_TEMP"), std::nullopt);
    EXPECT_EQ(Number(*sample, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"), std::nullopt);
    EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_VGPU_LICENSE_STATUS"), std::nullopt);
    EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_DEC_UTIL"), 0);
  }
  EXPECT_EQ(driver_->calls[gpu::NvmlCall::kEncoderUtilization], 1) << "queried once";
  EXPECT_EQ(driver_->calls[gpu::NvmlCall::kUtilization], 1);
}

TEST_F(GpuReaderTest, EnergyAndUseAreReadEvenIfNoCounterNeedsThem) {
  Use("DCGM_FI_DEV_GPU_TEMP, gauge, C");
  telemetry().fields = {{83, 1234567}};
  const auto sample = reader_->Read();
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(sample->energy_mj, 1234567u);
  EXPECT_EQ(sample->busy_fraction, 0.5);
  Fail(gpu::NvmlCall::kUtilization, Code::kUnimplemented);
  telemetry().fields.clear();
  EXPECT_EQ(reader_->Read()->energy_mj, std::nullopt);
  EXPECT_EQ(reader_->Read()->busy_fraction, std::nullopt);
}

TEST_F(GpuReaderTest, AnImpossibleMemoryTemperatureIsAbsent) {
  Use("DCGM_FI_DEV_MEMORY_TEMP, gauge, C");
  telemetry().fields = {{82, 65535}};
  EXPECT_EQ(Number(*reader_->Read(), "DCGM_FI_DEV_MEMORY_TEMP"), std::nullopt);
}

TEST_F(GpuReaderTest, ProfilingMetricsNeedTwoReadings) {
  Use("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\nDCGM_FI_PROF_PCIE_TX_BYTES, gauge, b\n"
      "DCGM_FI_PROF_SM_ACTIVE, gauge, c\n");
  telemetry().gpm = {{1, 37.5}, {20, 2}};
  EXPECT_EQ(Number(*reader_->Read(), "DCGM_FI_PROF_GR_ENGINE_ACTIVE"), std::nullopt);
  const auto sample = reader_->Read();
  EXPECT_EQ(Number(*sample, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"), 0.375);
  EXPECT_EQ(Number(*sample, "DCGM_FI_PROF_PCIE_TX_BYTES"), 2 << 20);
  EXPECT_EQ(Number(*sample, "DCGM_FI_PROF_SM_ACTIVE"), std::nullopt);
  EXPECT_EQ(driver_->calls[gpu::NvmlCall::kGpmMetrics], 1) << "all metrics in one call";
}

TEST_F(GpuReaderTest, AnErrorOmitsOnlyTheValueThatCannotBeRead) {
  UseDefault();
  Fail(gpu::NvmlCall::kPowerUsage, Code::kUnknown);
  const auto sample = reader_->Read();
  ASSERT_TRUE(sample.ok());
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_POWER_USAGE"), std::nullopt);
  EXPECT_EQ(Number(*sample, "DCGM_FI_DEV_GPU_TEMP"), 40);
  driver_->faults.clear();
  EXPECT_TRUE(Number(*reader_->Read(), "DCGM_FI_DEV_POWER_USAGE")) << "queried again";
}

TEST_F(GpuReaderTest, AGpuThatAnswersNothingHasNoSample) {
  Use("DCGM_FI_DEV_GPU_TEMP, gauge, C\nDCGM_FI_DEV_POWER_USAGE, gauge, W\n");
  ASSERT_TRUE(reader_->Read().ok());
  Fail(gpu::NvmlCall::kTemperature, Code::kDataLoss);
  Fail(gpu::NvmlCall::kPowerUsage, Code::kDataLoss);
  Fail(gpu::NvmlCall::kUtilization, Code::kDataLoss);
  Fail(gpu::NvmlCall::kFieldValues, Code::kDataLoss);
  EXPECT_EQ(reader_->Read().status().code(), Code::kDataLoss);
}

TEST_F(GpuReaderTest, ADeadSessionIsAnError) {
  UseDefault();
  ASSERT_TRUE(reader_->Read().ok());
  Fail(gpu::NvmlCall::kTemperature, Code::kFailedPrecondition);
  EXPECT_EQ(reader_->Read().status().code(), Code::kFailedPrecondition);
}

TEST_F(GpuReaderTest, VersionsAndSerialNumbersAreReadOnce) {
  Use("DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_DEV_SERIAL, label, s\n"
      "DCGM_FI_DEV_VBIOS_VERSION, label, v\nDCGM_FI_NVML_VERSION, label, n\n");
  ASSERT_TRUE(reader_->Read().ok());
  const auto sample = reader_->Read();
  EXPECT_EQ(sample->texts, (std::vector<std::string>{"550.163.01", "0000000000001",
                                                     "92.00.45.00.03", "12.550.163.01"}));
  EXPECT_EQ(driver_->calls[gpu::NvmlCall::kSerial], 1);
}

}  // namespace
}  // namespace tessera::agent
