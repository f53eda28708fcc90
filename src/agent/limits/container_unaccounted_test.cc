// SPDX-License-Identifier: Apache-2.0
// Memory that only the driver reports.
#include "api/names.h"
#include "src/agent/limits/testing/container_usage_fixture.h"

namespace tessera::agent {
namespace {

namespace fs = std::filesystem;

TEST_F(ContainerUsageTest, ThePeakIncludesUnaccountedMemory) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  Report({{.pid = 71, .memory = Bytes(3536 * kMebi)}});
  Start();
  AdvanceSeconds(10);
  EXPECT_GT(Use().unaccounted, Bytes(0));
  EXPECT_EQ(Use().peak, Use().used());
}

TEST_F(ContainerUsageTest, MemoryThatOnlyTheDriverReportsCountsAgainstTheLimit) {
  AddProcess(71, "aa");
  AddProcess(72, "bb");  // another container of the pod
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  Report({{.pid = 0, .memory = Bytes(9999 * kMebi)},
          {.pid = 71, .memory = Bytes(3536 * kMebi)},
          {.pid = 99, .memory = Bytes(9999 * kMebi)}});
  Start();
  AdvanceSeconds(10);
  EXPECT_EQ(Use().unaccounted, Bytes(2000 * kMebi));
  EXPECT_EQ(UnaccountedInFile(), 2000);
  Report({});
  AdvanceSeconds(1);
  EXPECT_EQ(UnaccountedInFile(), 0) << "the process has ended";
}

TEST_F(ContainerUsageTest, AUsageFileThatIsRemovedOrClearedFreesNoMemory) {
  AddProcess(71, "aa");
  std::optional<UsageTestFile> file(UsagePath("aa"));
  file->Hold(0, 3072 * kMebi);
  Report({{.pid = 71, .memory = Bytes(3472 * kMebi)}});
  Start();
  AdvanceSeconds(8);
  EXPECT_EQ(UnaccountedInFile(), 0);
  file->Hold(0, 0);
  AdvanceSeconds(6);
  EXPECT_EQ(UnaccountedInFile(), 3472 - 512) << "its numbers are 0";
  file->Hold(0, 3072 * kMebi);
  AdvanceSeconds(2);
  EXPECT_EQ(UnaccountedInFile(), 0);
  fs::remove(UsagePath("aa"));
  UsageTestFile fresh(UsagePath("aa"));
  AdvanceSeconds(8);
  EXPECT_EQ(UnaccountedInFile(), 3472 - 512) << "the file is a new one";
  EXPECT_EQ(Use().bypassing, 1);
}

TEST_F(ContainerUsageTest, AProcessThatClearsItsNumbersAgainAndAgainBypassesTheLimiter) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 0);
  Report({{.pid = 71, .memory = Bytes(130'000 * kMebi)}});
  Start();
  AdvanceSeconds(10);
  EXPECT_EQ(Use().bypassing, 1);
  const auto found = std::ranges::find(events_, names::kReasonLimiterBypassed, &PodEvent::reason);
  ASSERT_NE(found, events_.end());
  const std::string& event = found->message;
  EXPECT_NE(event.find("process 71"), std::string::npos) << event;
  EXPECT_NE(event.find("changed the numbers in /dev/tessera/usage"), std::string::npos) << event;
}

TEST_F(ContainerUsageTest, CountsProcessesThatOnlyTheDriverKnows) {
  AddProcess(71, "aa");
  AddProcess(73, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  Report({{.pid = 71, .memory = Bytes(1400 * kMebi)}, {.pid = 73, .memory = Bytes(400 * kMebi)}});
  Start();
  AdvanceSeconds(3);
  EXPECT_EQ(Use().processes, 2) << "a process with a context counts, too";
}

TEST_F(ContainerUsageTest, NoMemoryIsUnaccountedWhileTheDriverHangs) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  Report({{.pid = 71, .memory = Bytes(3536 * kMebi)}});
  Start();
  AdvanceSeconds(10);
  ASSERT_EQ(UnaccountedInFile(), 2000);
  loader_->driver->faults[{gpu::NvmlCall::kComputeProcesses, 0}] = {};
  AdvanceSeconds(30);
  EXPECT_EQ(UnaccountedInFile(), 0);
  file.Hold(0, 7 * kMebi);
  AdvanceSeconds(2);
  EXPECT_EQ(Use().held, Bytes(7 * kMebi)) << "the limiter's own numbers go on";
  EXPECT_EQ(Use().reported, std::nullopt);
}

TEST_F(ContainerUsageTest, MemoryBeyondTheLimitThatNoLimiterCountsIsReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  Report({{.pid = 71, .memory = Bytes(5632 * kMebi)}});
  Start();
  AdvanceSeconds(4);
  EXPECT_TRUE(events_.empty());
  AdvanceSeconds(4);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonMemoryLimitBelowUse);
  EXPECT_NE(events_[0].message.find("may use 4096 MiB of " + uuid_ +
                                    " and has 5120 MiB, of which no limiter counts 4096 MiB"),
            std::string::npos)
      << events_[0].message;
  AdvanceSeconds(100);
  EXPECT_EQ(events_.size(), 1u);
}

}  // namespace
}  // namespace tessera::agent
