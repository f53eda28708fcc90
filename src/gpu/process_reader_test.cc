// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/process_reader.h"

#include <gtest/gtest.h>

#include "src/gpu/testing/fake_nvml.h"

namespace tessera::gpu {
namespace {

class ProcessReaderTest : public ::testing::Test {
 protected:
  ProcessReaderTest() {
    loader_->driver = testing::FakeDriver::WithGpus(2);
    loader_->driver->gpus[1].processes = {{.pid = 40, .memory = MiB(7)},
                                          {.pid = 8, .memory = GiB(1)}};
    loader_->driver->gpus[1].loads = {{.pid = 40, .percent = 30}, {.pid = 99, .percent = 5}};
  }
  // Null if the answer comes later.
  std::shared_ptr<const ProcessReport> Read() {
    const auto answer = std::make_shared<std::shared_ptr<const ProcessReport>>();
    reader_.Read(
        [answer](std::shared_ptr<const ProcessReport> report) { *answer = std::move(report); });
    runner_.RunUntilIdle();
    return *answer;
  }
  int Calls(NvmlCall call) { return loader_->driver->calls[call]; }

  FakeTaskRunner runner_;
  testing::FakeCaller caller_{&runner_};
  const std::shared_ptr<testing::FakeLoader> loader_ = std::make_shared<testing::FakeLoader>();
  ProcessReader reader_{&runner_, loader_, &caller_};
};

TEST_F(ProcessReaderTest, ReportsMemoryAndLoadByProcess) {
  const auto report = Read();
  ASSERT_TRUE(report->status.ok());
  ASSERT_EQ(report->gpus.size(), 2u);
  EXPECT_TRUE(report->gpus[0].processes.empty());
  EXPECT_EQ(report->gpus[1].uuid, loader_->driver->gpus[1].uuid);
  EXPECT_EQ(report->gpus[1].processes, (std::vector<ProcessUse>{{8, GiB(1), 0}, {40, MiB(7), 30}}));
}

// The driver's timestamps need not agree with the clock of the node, which may be set at any time.
TEST_F(ProcessReaderTest, ALoadCountsForASecondAfterItsSampleWasFirstRead) {
  const auto percent_after = [this](Duration pause, uint64_t end_us, uint64_t other_end_us) {
    loader_->driver->gpus[1].loads = {{.pid = 40, .percent = 30, .end_us = end_us},
                                      {.pid = 8, .percent = 20, .end_us = other_end_us}};
    runner_.AdvanceTimeAndRun(pause);
    const auto report = Read();
    return std::pair(report->gpus[1].processes[1].percent, report->gpus[1].processes[0].percent);
  };
  constexpr uint64_t kSecond = 1'000'000, kLater = 1'000 * kSecond;
  EXPECT_EQ(percent_after(std::chrono::milliseconds(600), kLater, kLater), std::pair(30, 20));
  EXPECT_EQ(percent_after(std::chrono::milliseconds(600), kLater, kLater), std::pair(30, 20))
      << "the driver takes its samples less often than they are read";
  EXPECT_EQ(percent_after(std::chrono::milliseconds(600), kLater, kLater), std::pair(0, 0))
      << "no process was active";
  EXPECT_EQ(percent_after(std::chrono::seconds(1), kLater + 2 * kSecond, kLater), std::pair(30, 0))
      << "only one process is active again";
  EXPECT_EQ(percent_after(std::chrono::seconds(1), kSecond, kSecond), std::pair(30, 20))
      << "the clock was set back";
}

TEST_F(ProcessReaderTest, SimultaneousRequestsShareOneQuery) {
  Read();
  Read();
  EXPECT_EQ(Calls(NvmlCall::kDeviceCount), 1);
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  Read();
  EXPECT_EQ(Calls(NvmlCall::kDeviceCount), 2);
  EXPECT_EQ(Calls(NvmlCall::kInit), 1) << "the session stays";
}

TEST_F(ProcessReaderTest, RefreshClosesTheSessionOfARemovedDriverAndOpensNone) {
  reader_.Refresh();
  runner_.RunUntilIdle();
  EXPECT_EQ(Calls(NvmlCall::kInit), 0) << "there is no session to close";
  Read();
  const auto driver = std::exchange(loader_->driver, nullptr);
  reader_.Refresh();
  runner_.RunUntilIdle();
  EXPECT_FALSE(driver->initialized);
}

TEST_F(ProcessReaderTest, AGpuThatDoesNotAnswerIsLeftOut) {
  loader_->driver->faults[{NvmlCall::kComputeProcesses, 0}].status =
      Status(Code::kDataLoss, "GPU is lost");
  const auto report = Read();
  EXPECT_TRUE(report->status.ok());
  EXPECT_EQ(report->gpus.size(), 1u);
}

TEST_F(ProcessReaderTest, AGpuWithoutLoadsStillShowsMemory) {
  loader_->driver->faults[{NvmlCall::kProcessUtilization, 1}].status =
      Status(Code::kUnimplemented, "not supported");
  EXPECT_EQ(Read()->gpus[1].processes[1], (ProcessUse{40, MiB(7), 0}));
}

TEST_F(ProcessReaderTest, ADriverThatComesLaterOrIsReplacedIsFound) {
  const auto driver = std::exchange(loader_->driver, nullptr);
  EXPECT_EQ(Read()->status.code(), Code::kNotFound);
  loader_->driver = driver;
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  EXPECT_TRUE(Read()->status.ok());
  loader_->fingerprint = "second";
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  EXPECT_TRUE(Read()->status.ok());
  EXPECT_EQ(Calls(NvmlCall::kInit), 2);
}

TEST_F(ProcessReaderTest, ReopensADeadSession) {
  Read();
  loader_->driver->initialized = false;
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  EXPECT_EQ(Read()->status.code(), Code::kFailedPrecondition);
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  EXPECT_TRUE(Read()->status.ok());
}

TEST_F(ProcessReaderTest, AGpuThatHangsIsLeftOutAndDelaysNoOther) {
  loader_->driver->faults[{NvmlCall::kComputeProcesses, 0}] = {};
  std::shared_ptr<const ProcessReport> answer;
  reader_.Read([&](std::shared_ptr<const ProcessReport> report) { answer = std::move(report); });
  runner_.AdvanceTimeAndRun(ProcessReader::kGpuDeadline - std::chrono::milliseconds(1));
  EXPECT_EQ(answer, nullptr);
  runner_.AdvanceTimeAndRun(std::chrono::milliseconds(1));
  ASSERT_NE(answer, nullptr);
  EXPECT_TRUE(answer->status.ok());
  ASSERT_EQ(answer->gpus.size(), 1u);
  EXPECT_EQ(answer->gpus[0].uuid, loader_->driver->gpus[1].uuid);
  // Later queries do not wait for this GPU, and do not query it.
  for (int i = 0; i < 3; ++i) {
    runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
    answer = Read();
    ASSERT_NE(answer, nullptr);
    EXPECT_EQ(answer->gpus.size(), 1u);
  }
  EXPECT_EQ(caller_.stuck(), 1u);
  loader_->driver->faults.clear();
  caller_.Release();
  runner_.RunUntilIdle();
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  answer = Read();
  ASSERT_EQ(answer->gpus.size(), 2u);
  EXPECT_EQ(answer->gpus[0].uuid, loader_->driver->gpus[0].uuid);
}

TEST_F(ProcessReaderTest, AnErrorIsReportedIfNoGpuAnswers) {
  loader_->driver->faults[{NvmlCall::kComputeProcesses, -1}] = {};
  Read();
  runner_.AdvanceTimeAndRun(ProcessReader::kGpuDeadline);
  const auto report = Read();
  ASSERT_NE(report, nullptr);
  EXPECT_EQ(report->status.code(), Code::kDeadlineExceeded);
}

TEST_F(ProcessReaderTest, AGpuThatHangsWhileTheDriverIsReplacedIsQueriedInTheNewSession) {
  loader_->driver->faults[{NvmlCall::kComputeProcesses, 0}] = {};
  Read();
  runner_.AdvanceTimeAndRun(ProcessReader::kGpuDeadline + ProcessReader::kMaxAge);
  loader_->driver->faults.clear();
  loader_->fingerprint = "second";
  EXPECT_EQ(Read()->gpus.size(), 2u);
  caller_.Release();  // the old call returns, and the old session is closed
  runner_.RunUntilIdle();
  loader_->driver->initialized = true;  // NVML counts its sessions, this fake does not
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  EXPECT_EQ(Read()->gpus.size(), 2u);
}

TEST_F(ProcessReaderTest, AHangingDriverIsReportedAndQueriedOnlyOnce) {
  loader_->driver->faults[{NvmlCall::kDeviceCount, -1}] = {};
  std::shared_ptr<const ProcessReport> answer;
  reader_.Read([&](std::shared_ptr<const ProcessReport> report) { answer = std::move(report); });
  runner_.AdvanceTimeAndRun(ProcessReader::kOpenDeadline);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(answer->status.code(), Code::kDeadlineExceeded);
  runner_.AdvanceTimeAndRun(std::chrono::minutes(1));
  EXPECT_EQ(Read()->status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(caller_.stuck(), 1u);
  loader_->driver->faults.clear();
  caller_.Release();
  runner_.RunUntilIdle();
  runner_.AdvanceTimeAndRun(ProcessReader::kMaxAge);
  EXPECT_TRUE(Read()->status.ok());
}

}  // namespace
}  // namespace tessera::gpu
