// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/sampler.h"

#include <gtest/gtest.h>

#include "src/base/log.h"
#include "src/gpu/testing/fake_nvml.h"

namespace tessera::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SamplerTest : public ::testing::Test {
 protected:
  SamplerTest() : quiet_([](std::string_view) {}) {
    loader_->driver = gpu::testing::FakeDriver::WithGpus(3);
    sampler_ = std::make_unique<Sampler>(
        &runner_, loader_, &caller_, std::make_shared<const CounterSpecs>(DefaultCounters()),
        seconds(1), [this] { rounds_.push_back(runner_.clock().Now()); });
  }
  void Run(Duration by = Duration::zero()) {
    by == Duration::zero() ? runner_.RunUntilIdle() : runner_.AdvanceTimeAndRun(by);
  }
  bool Answers(size_t gpu) const { return sampler_->gpus()[gpu].sample != nullptr; }
  Duration AgeOf(size_t gpu) { return runner_.clock().Now() - sampler_->gpus()[gpu].answered_at; }
  int Calls(gpu::NvmlCall call) { return loader_->driver->calls[call]; }
  void Hang(gpu::NvmlCall call, int gpu) { loader_->driver->faults[{call, gpu}] = {}; }

  const ScopedLogSinkForTest quiet_;
  FakeTaskRunner runner_;
  gpu::testing::FakeCaller caller_{&runner_};
  const std::shared_ptr<gpu::testing::FakeLoader> loader_ =
      std::make_shared<gpu::testing::FakeLoader>();
  std::vector<MonotonicTime> rounds_;
  std::unique_ptr<Sampler> sampler_;
};

TEST_F(SamplerTest, ReadsAllGpusAtOnceAndThenInEachInterval) {
  sampler_->Start();
  Run();
  ASSERT_EQ(sampler_->gpus().size(), 3u);
  EXPECT_TRUE(Answers(0) && Answers(1) && Answers(2));
  Run(seconds(5));
  EXPECT_EQ(Calls(gpu::NvmlCall::kTemperature), 3 * 6);
  EXPECT_EQ(Calls(gpu::NvmlCall::kInit), 1);
  EXPECT_EQ(AgeOf(0), Duration::zero());
}

TEST_F(SamplerTest, AGpuThatHangsDelaysNoOther) {
  sampler_->Start();
  Run();
  Hang(gpu::NvmlCall::kPowerUsage, 1);
  rounds_.clear();
  Run(seconds(1));
  EXPECT_TRUE(rounds_.empty()) << "the round waits kRoundDeadline for the hanging GPU";
  Run(Sampler::kRoundDeadline);
  ASSERT_EQ(rounds_.size(), 1u);
  EXPECT_EQ(AgeOf(0), Sampler::kRoundDeadline);
  EXPECT_TRUE(Answers(1)) << "its last sample stands until the deadline";
  Run(Sampler::kReadDeadline);
  EXPECT_FALSE(Answers(1));
  EXPECT_EQ(sampler_->gpus()[1].late_queries, 1u);
  EXPECT_TRUE(Answers(0) && Answers(2));
  rounds_.clear();
  Run(seconds(10));
  EXPECT_EQ(rounds_.size(), 10u) << "no round waits for a GPU that is known to hang";
  EXPECT_GT(AgeOf(1), seconds(12));
  EXPECT_LE(AgeOf(0), seconds(1));
  EXPECT_EQ(caller_.stuck(), 1u) << "a GPU that hangs is not queried again";

  loader_->driver->faults.clear();
  caller_.Release();
  Run();
  EXPECT_TRUE(Answers(1));
}

TEST_F(SamplerTest, AnErrorOfOneGpuOmitsOnlyTheSampleOfThatGpu) {
  sampler_->Start();
  Run();
  for (const auto call :
       {gpu::NvmlCall::kTemperature, gpu::NvmlCall::kPowerUsage, gpu::NvmlCall::kClockInfo,
        gpu::NvmlCall::kUtilization, gpu::NvmlCall::kEncoderUtilization,
        gpu::NvmlCall::kDecoderUtilization, gpu::NvmlCall::kMemoryInfoV2,
        gpu::NvmlCall::kPcieReplays, gpu::NvmlCall::kFieldValues}) {
    loader_->driver->faults[{call, 2}].status = Status(Code::kDataLoss, "GPU is lost");
  }
  Run(seconds(1));
  EXPECT_TRUE(Answers(1));
  EXPECT_FALSE(Answers(2));
}

TEST_F(SamplerTest, FollowsADriverThatIsInstalledRemovedAndReplaced) {
  const auto driver = std::exchange(loader_->driver, nullptr);
  sampler_->Start();
  Run(seconds(3));
  EXPECT_TRUE(sampler_->gpus().empty());
  EXPECT_FALSE(rounds_.empty()) << "rounds go on without a driver";

  loader_->driver = driver;
  Run(seconds(1));
  ASSERT_EQ(sampler_->gpus().size(), 3u);
  EXPECT_TRUE(Answers(0));

  loader_->driver = nullptr;
  sampler_->RefreshDriver();
  Run();
  EXPECT_TRUE(sampler_->gpus().empty());
  EXPECT_FALSE(driver->initialized) << "the session is closed, so that modules can be unloaded";

  loader_->driver = gpu::testing::FakeDriver::WithGpus(1);
  loader_->fingerprint = "second";
  Run(seconds(1));
  EXPECT_EQ(sampler_->gpus().size(), 1u);
}

TEST_F(SamplerTest, ASessionThatDiedIsOpenedAgain) {
  sampler_->Start();
  Run();
  loader_->driver->initialized = false;
  Run(seconds(2));
  EXPECT_EQ(Calls(gpu::NvmlCall::kInit), 2);
  EXPECT_EQ(Calls(gpu::NvmlCall::kShutdown), 0) << "a dead session is not closed";
  EXPECT_TRUE(Answers(0));
}

TEST_F(SamplerTest, QueriesAHangingDriverOnceAndUsesItWhenItReturns) {
  Hang(gpu::NvmlCall::kInit, -1);
  sampler_->Start();
  Run(seconds(5));
  EXPECT_TRUE(sampler_->gpus().empty());
  EXPECT_EQ(Calls(gpu::NvmlCall::kInit), 1);
  loader_->driver->faults.clear();
  caller_.Release();
  Run();
  EXPECT_EQ(sampler_->gpus().size(), 3u);
}

}  // namespace
}  // namespace tessera::agent
