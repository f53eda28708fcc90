// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>

#include "src/sim/nvml/nvml_fixture.h"

namespace tessera::nvml {
namespace {

constexpr unsigned kGraphics = 1, kDramBandwidth = 10, kPcieTx = 20, kUnknownMetric = 333;

class GpmTest : public NvmlTest {
 protected:
  void SetUp() override {
    SetArchitecture(kArchHopper);
    Init();
    for (GpmSample* sample : {&earlier_, &later_}) {
      ASSERT_EQ(NVML(nvmlGpmSampleAlloc)(sample), Return::kSuccess);
    }
  }
  ~GpmTest() override {
    NVML(nvmlGpmSampleFree)(earlier_);
    NVML(nvmlGpmSampleFree)(later_);
  }
  // Reads metrics between the two samples in one call.
  Return ReadMetrics(std::array<unsigned, 4> ids) {
    static_assert(sizeof(buffer_) >= sizeof(GpmMetrics) + 3 * sizeof(GpmMetric));
    std::memset(buffer_, 0, sizeof(buffer_));
    GpmMetrics& metrics = answer();
    metrics.version = 1;
    metrics.count = ids.size();
    metrics.earlier = earlier_;
    metrics.later = later_;
    for (size_t i = 0; i < ids.size(); ++i) metric(i).id = ids[i];
    return NVML(nvmlGpmMetricsGet)(&metrics);
  }
  GpmMetrics& answer() { return *reinterpret_cast<GpmMetrics*>(buffer_); }
  GpmMetric& metric(size_t i) {
    return *reinterpret_cast<GpmMetric*>(buffer_ + offsetof(GpmMetrics, metrics) +
                                         i * sizeof(GpmMetric));
  }

  GpmSample earlier_ = nullptr, later_ = nullptr;
  alignas(8) char buffer_[512] = {};
};

TEST_F(GpmTest, MetricsAreTheBusyTimeBetweenTwoSamples) {
  const std::uint64_t before = sim::MonotonicNs();
  ASSERT_EQ(NVML(nvmlGpmSampleGet)(Handle(1), earlier_), Return::kSuccess);
  const std::uint64_t start = sim::MonotonicNs();
  timespec pause = {0, 20'000'000};
  nanosleep(&pause, nullptr);
  const std::uint64_t busy = (sim::MonotonicNs() - start) / 2;
  node_.state().gpu_state(1).turns.busy_ns += busy;
  ASSERT_EQ(NVML(nvmlGpmSampleGet)(Handle(1), later_), Return::kSuccess);
  const std::uint64_t most = sim::MonotonicNs() - before;  // between the samples
  ASSERT_EQ(ReadMetrics({kGraphics, kDramBandwidth, kPcieTx, kUnknownMetric}), Return::kSuccess);
  EXPECT_GE(metric(0).value, 100 * double(busy) / double(most) - 1);
  EXPECT_LE(metric(0).value, 51);
  EXPECT_STREQ(metric(0).short_name, "gract");
  EXPECT_DOUBLE_EQ(metric(1).value, metric(0).value / 2);
  EXPECT_EQ(metric(2).result, Return::kSuccess);
  EXPECT_STREQ(metric(2).unit, "MiB/s");
  EXPECT_EQ(metric(3).result, Return::kNotSupported);
}

TEST_F(GpmTest, InjectedUtilizationIsReported) {
  ASSERT_EQ(NVML(nvmlGpmSampleGet)(Handle(1), earlier_), Return::kSuccess);
  ASSERT_EQ(NVML(nvmlGpmSampleGet)(Handle(1), later_), Return::kSuccess);
  node_.state().gpu_state(1).utilization_gpu = 73;
  ASSERT_EQ(ReadMetrics({kGraphics, kGraphics, kGraphics, kGraphics}), Return::kSuccess);
  EXPECT_DOUBLE_EQ(metric(0).value, 73);
}

TEST_F(GpmTest, SamplesOfTwoGpusAreRefused) {
  ASSERT_EQ(NVML(nvmlGpmSampleGet)(Handle(1), earlier_), Return::kSuccess);
  EXPECT_EQ(ReadMetrics({kGraphics}), Return::kInvalidArgument);
  ASSERT_EQ(NVML(nvmlGpmSampleGet)(Handle(2), later_), Return::kSuccess);
  EXPECT_EQ(ReadMetrics({kGraphics}), Return::kInvalidArgument);
}

TEST_F(NvmlTest, AmpereHasNoPerformanceMonitoring) {
  Init();
  GpmSupport support = {1, 9};
  ASSERT_EQ(NVML(nvmlGpmQueryDeviceSupport)(Handle(0), &support), Return::kSuccess);
  EXPECT_EQ(support.is_supported, 0u);
  GpmSample sample = nullptr;
  ASSERT_EQ(NVML(nvmlGpmSampleAlloc)(&sample), Return::kSuccess);
  EXPECT_EQ(NVML(nvmlGpmSampleGet)(Handle(0), sample), Return::kNotSupported);
  EXPECT_EQ(NVML(nvmlGpmSampleFree)(sample), Return::kSuccess);
}

}  // namespace
}  // namespace tessera::nvml
