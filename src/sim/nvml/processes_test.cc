// SPDX-License-Identifier: Apache-2.0
// The utilization of processes, as the driver samples it.
#include <gtest/gtest.h>

#include "src/sim/nvml/nvml_fixture.h"

namespace tessera::nvml {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

class ProcessUseTest : public NvmlTest {
 protected:
  // Sets the use of the process in the newest samples and in the next samples.
  void SetUse(int pid, unsigned percent) {
    sim::ProcessView views[8];
    const std::uint32_t count = node_.state().Processes(1, views, 8);
    for (std::uint32_t i = 0; i < count && i < 8; ++i) {
      if (views[i].pid != pid) continue;
      for (std::uint64_t index = views[i].sample_index;
           index < views[i].sample_index + sim::kProcessTimeSamples; ++index) {
        sim::ProcessTimeSample& sample =
            node_.state().file().slots[views[i].slot].gpus[1].samples[index %
                                                                      sim::kProcessTimeSamples];
        sample.index = index;
        sample.busy_ns = sim::kSamplePeriodNs * percent / 100;
      }
    }
  }
  static std::uint64_t NowUs() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return std::uint64_t(now.tv_sec) * 1'000'000 + std::uint64_t(now.tv_nsec) / 1000;
  }
  // Later than the samples that the driver makes while the test runs.
  static std::uint64_t InAMinute() { return NowUs() + 60'000'000; }
};

TEST_F(ProcessUseTest, TheNewestSampleHasTheUseOfEachProcess) {
  Init();
  const GpuUser busy(node_.root() + "/run/simgpu", 1, kMiB),
      idle(node_.root() + "/run/simgpu", 1, kMiB);
  ProcessUtilizationSample samples[4];
  unsigned count = 4;
  EXPECT_EQ(NVML(nvmlDeviceGetProcessUtilization)(Handle(1), samples, &count, 0), Return::kNotFound)
      << "no process has used the GPU";
  SetUse(busy.pid(), 40);
  count = 0;
  EXPECT_EQ(NVML(nvmlDeviceGetProcessUtilization)(Handle(1), nullptr, &count, 0),
            Return::kInsufficientSize);
  EXPECT_EQ(count, 1u) << "the idle process has no sample";
  ASSERT_EQ(NVML(nvmlDeviceGetProcessUtilization)(Handle(1), samples, &count, 0), Return::kSuccess);
  EXPECT_EQ(samples[0].pid, unsigned(busy.pid()));
  EXPECT_EQ(samples[0].sm, 40u);
  EXPECT_EQ(samples[0].memory, 20u);
  const std::uint64_t age = NowUs() - samples[0].timestamp;
  EXPECT_GE(age, 199'000u) << "the driver shows a sample late";
  EXPECT_LE(age, 5'000'000u);
}

TEST_F(ProcessUseTest, ASampleIsReadOnce) {
  Init();
  const GpuUser busy(node_.root() + "/run/simgpu", 1, kMiB);
  SetUse(busy.pid(), 100);
  ProcessUtilizationSample first{}, second{};
  unsigned count = 1;
  ASSERT_EQ(NVML(nvmlDeviceGetProcessUtilization)(Handle(1), &first, &count, 0), Return::kSuccess);
  // Polls until the next sample, which a busy machine may delay.
  Return result = Return::kNotFound;
  int misses = 0;
  while (result == Return::kNotFound && misses < 100'000) {
    result = NVML(nvmlDeviceGetProcessUtilization)(Handle(1), &second, &count, first.timestamp);
    if (result == Return::kNotFound) {
      ++misses;
      timespec pause = {0, 1'000'000};
      nanosleep(&pause, nullptr);
    }
  }
  ASSERT_EQ(result, Return::kSuccess);
  EXPECT_EQ(second.sm, 100u);
  EXPECT_EQ((second.timestamp - first.timestamp) % 167'000, 0u);
  EXPECT_EQ(NVML(nvmlDeviceGetProcessUtilization)(Handle(1), &second, &count, InAMinute()),
            Return::kNotFound);
}

TEST_F(ProcessUseTest, BothUtilizationFunctionsAnswerAlike) {
  Init();
  const GpuUser busy(node_.root() + "/run/simgpu", 1, kMiB);
  SetUse(busy.pid(), 33);
  ProcessUtilizationInfo entry{};
  ProcessesUtilizationInfo info{};
  info.version = sizeof(info) | 1 << 24;
  info.count = 1;
  info.entries = &entry;
  ASSERT_EQ(NVML(nvmlDeviceGetProcessesUtilizationInfo)(Handle(1), &info), Return::kSuccess);
  EXPECT_EQ(entry.sm, 33u);
  EXPECT_EQ(entry.pid, unsigned(busy.pid()));
  info.last_seen_timestamp = InAMinute();
  EXPECT_EQ(NVML(nvmlDeviceGetProcessesUtilizationInfo)(Handle(1), &info), Return::kNotFound);
}

}  // namespace
}  // namespace tessera::nvml
