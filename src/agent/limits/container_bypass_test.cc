// SPDX-License-Identifier: Apache-2.0
// Processes that use the GPU without the limiter.
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "api/names.h"
#include "src/agent/limits/testing/container_usage_fixture.h"
#include "src/agent/limits/testing/paused_process.h"

namespace tessera::agent {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

TEST_F(ContainerUsageTest, ReportsAProcessWithoutALimiterAfterTwoRounds) {
  AddProcess(71, "aa");
  AddProcess(75, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  AdvanceSeconds(5);
  EXPECT_EQ(Use().bypassing, 0);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}, {.pid = 75, .memory = Bytes(400 * kMebi)}});
  AdvanceSeconds(1);
  EXPECT_TRUE(events_.empty()) << "it may be about to get its limiter";
  AdvanceSeconds(3);
  EXPECT_EQ(Use().bypassing, 1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_EQ(events_[0].message,
            "process 75 (python) of container main uses " + uuid_ +
                " without the limiter, so its share is not enforced: the process has loaded "
                "/opt/own/libcuda.so.1, which is not the node's driver; remove that library from "
                "the image or from its search path");
  AdvanceSeconds(290);
  EXPECT_EQ(events_.size(), 1u);
  AdvanceSeconds(15);
  EXPECT_EQ(events_.size(), 2u) << "the bypass continues";
  file.Hold(3, 0);
  file.usage().pids[3] = OwnPid(75);
  AdvanceSeconds(2);
  EXPECT_EQ(Use().bypassing, 0);
  file.End(3);
  AdvanceSeconds(2);
  EXPECT_EQ(Use().bypassing, 1) << "the slot is that of a process that has ended";
}

TEST_F(ContainerUsageTest, AProcessWithoutALimiterThatEndsAtOnceIsReported) {
  AddProcess(71, "aa");
  AddProcess(75, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Start();
  AdvanceSeconds(5);
  UseGpuForASecond(75);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_TRUE(events_[0].message.starts_with("process 75 (python) of container main used " + uuid_ +
                                             " without the limiter"))
      << events_[0].message;
}

// A process that lives for kInterval exists during at least one comparison, if the comparison reads
// the driver's list anew. Here a monitoring system also reads the list, between the comparisons.
TEST_F(ContainerUsageTest, ABypassThatLastsOneIntervalIsAlwaysReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  for (Duration begin = 0ms; begin < 1s; begin += 100ms) {
    events_.clear();
    Start();
    AdvanceSeconds(4);
    for (Duration now = 0ms; now < 5s; now += 100ms) {
      if (now == begin) {
        AddProcess(75, "aa");
        Report({{.pid = 75, .memory = Bytes(400 * kMebi)}});
      }
      if (now == begin + ContainerUsage::kInterval) {
        Report({});
        EndProcess(75);
      }
      if (now % 1s == 600ms) reader_.Read([](const auto&) {});
      runner_.AdvanceTimeAndRun(100ms);
    }
    EXPECT_EQ(events_.size(), 1u) << begin / 1ms << " ms after a comparison";
  }
}

TEST_F(ContainerUsageTest, AProcessThatExecutesAnotherProgramIsNoBypass) {
  AddProcess(71, "aa");
  AddProcess(75, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Start();
  AdvanceSeconds(5);
  // The process executes another program after the driver's report, before the agent looks for its
  // limiter.
  Report({{.pid = 75, .memory = Bytes(400 * kMebi)}});
  AdvanceSeconds(1);
  Report({});
  AdvanceSeconds(3);
  EXPECT_TRUE(events_.empty());
}

TEST_F(ContainerUsageTest, NamesADamagedUsageFileAsTheCause) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  AdvanceSeconds(5);
  EXPECT_TRUE(events_.empty());
  file.usage().header.magic = 0;
  AdvanceSeconds(3);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_NE(events_[0].message.find("the container has damaged the file in which its processes"),
            std::string::npos)
      << events_[0].message;
}

// The container's limit is 30 hundredths. A process keeps ComputeCharge::charged at 0.
TEST_F(ContainerUsageTest, AContainerThatUsesFarMoreComputeThanItsLimitIsReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Start();
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  const auto load = [this](int percent) { loader_->driver->gpus[0].loads = {{71, percent}}; };
  load(54);
  AdvanceSeconds(200);
  EXPECT_TRUE(events_.empty()) << "a program that the meter measures badly may use as much";
  // A kernel of 25 seconds.
  load(100);
  AdvanceSeconds(25);
  load(0);
  AdvanceSeconds(60);
  EXPECT_TRUE(events_.empty()) << "a kernel cannot be interrupted";
  load(98);
  AdvanceSeconds(55);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_NE(events_[0].message.find("uses far more of the GPU's time than its limit"),
            std::string::npos)
      << events_[0].message;
  EXPECT_EQ(Use().bypassing, 1);
}

TEST_F(ContainerUsageTest, NamesADamagedUsageFileAlsoIfTheProcessHasEnded) {
  AddProcess(71, "aa");
  AddProcess(75, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Start();
  AdvanceSeconds(5);
  ASSERT_EQ(::ftruncate(file.fd(), 100), 0);
  UseGpuForASecond(75);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find("ended within two seconds: the container has damaged the file"),
            std::string::npos)
      << events_[0].message;
}

TEST_F(ContainerUsageTest, AProcessIsReportedIfItsUsageFileIsASymbolicLink) {
  AddProcess(71, "aa");
  fs::create_symlink("/etc/hostname", UsagePath("aa"));
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  AdvanceSeconds(5);
  EXPECT_EQ(Use().bypassing, 1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find("usage is not a regular file"), std::string::npos)
      << events_[0].message;
}

// The container is never found: none of its processes sees its limits.
TEST_F(ContainerUsageTest, AContainerThatMountsOverItsLimitsIsReported) {
  AddProcess(71, "aa");
  CoverLimits("aa", /*with_own_file=*/true);
  UsageTestFile forged(UsagePath("aa"));
  forged.Hold(0, 64 * kMebi);
  forged.usage().pids[0] = OwnPid(71);
  Report({{.pid = 71, .memory = Bytes(3536 * kMebi)}});
  Start();
  AdvanceSeconds(1);
  EXPECT_TRUE(events_.empty()) << "one round alone is no evidence";
  AdvanceSeconds(9);
  EXPECT_TRUE(Use().is_read);
  EXPECT_EQ(Use().bypassing, 1);
  EXPECT_EQ(Use().processes, 1);
  EXPECT_EQ(Use().reported, Bytes(3536 * kMebi));
  EXPECT_EQ(Use().unaccounted, Bytes(3024 * kMebi));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_NE(events_[0].message.find("the limits of the container are not visible to process 71: "
                                    "/dev/tessera/limits is unmounted or covered"),
            std::string::npos)
      << events_[0].message;
  Report({});
  AdvanceSeconds(2);
  EXPECT_EQ(Use().bypassing, 0);
}

TEST_F(ContainerUsageTest, AContainerThatUnmountsItsLimitsIsReported) {
  AddProcess(71, "aa");
  CoverLimits("aa", /*with_own_file=*/false);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  AdvanceSeconds(5);
  EXPECT_EQ(Use().bypassing, 1);
  EXPECT_EQ(events_.size(), 1u);
}

// Process 72 covers the limits, and counts in the true usage file. Process 71 sees the limits.
TEST_F(ContainerUsageTest, AProcessThatMountsOverTheLimitsForItselfIsReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  file.usage().pids[0] = OwnPid(71);
  Start();
  AdvanceSeconds(3);
  AddProcess(72, "aa");
  fs::create_directories(temp_.path() + "/root-own");
  fs::remove(temp_.path() + "/proc/72/root");
  fs::create_directory_symlink(temp_.path() + "/root-own", temp_.path() + "/proc/72/root");
  file.Hold(1, 64 * kMebi);
  file.usage().pids[1] = OwnPid(72);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}, {.pid = 72, .memory = Bytes(400 * kMebi)}});
  AdvanceSeconds(4);
  EXPECT_EQ(Use().bypassing, 1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find("not visible to process 72"), std::string::npos);
}

// The process has called chroot after its limiter was loaded.
TEST_F(ContainerUsageTest, AProcessThatHasMappedTheLimitsIsNotReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  file.usage().pids[0] = OwnPid(71);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  AdvanceSeconds(3);
  struct stat info {};
  ASSERT_EQ(::stat(LimitsPath(limits_dir_, {Uid(kUid), "main"}).c_str(), &info), 0);
  CoverLimits("aa", /*with_own_file=*/false);
  const std::string line =
      fmt::format("7f00-7f01 r--s 00000000 {:02x}:{:02x} {}   /dev/tessera/limits/limits\n",
                  major(info.st_dev), minor(info.st_dev), info.st_ino);
  ASSERT_TRUE(WriteFileAtomically(temp_.path() + "/proc/71/maps", line, 0644).ok());
  AdvanceSeconds(5);
  EXPECT_EQ(Use().bypassing, 0);
  EXPECT_TRUE(events_.empty());
}

// The container has put a file system that does not answer where a check looks for its limits.
TEST_F(ContainerUsageTest, AContainersUsageIsPublishedWhileItsVisibilityCheckHangs) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  file.usage().pids[0] = OwnPid(71);
  Report({{.pid = 71, .memory = Bytes(1536 * kMebi)}});
  caller_.Hang("usage-visibility");
  Start();
  AdvanceSeconds(20);
  EXPECT_EQ(caller_.stuck(), 1u) << "one check for each container, and no second beside it";
  file.Hold(0, 7 * kMebi);
  AdvanceSeconds(2);
  EXPECT_EQ(Use().held, Bytes(7 * kMebi));
  EXPECT_EQ(Use().bypassing, 0) << "another process of the container sees its limits";
  EXPECT_TRUE(events_.empty());
}

TEST_F(ContainerUsageTest, AContainerWhoseVisibilityCheckHangsIsReported) {
  AddProcess(71, "aa");
  CoverLimits("aa", /*with_own_file=*/false);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  caller_.Hang("usage-visibility");
  Start();
  AdvanceSeconds(5);
  EXPECT_TRUE(events_.empty()) << "the check is within its deadline";
  AdvanceSeconds(5);
  EXPECT_EQ(Use().bypassing, 1);
  EXPECT_EQ(events_.size(), 1u);
  EndProcess(71);
  Report({});
  caller_.Release();
  AdvanceSeconds(3);
  EXPECT_EQ(caller_.stuck(), 0u);
  EXPECT_EQ(Use().bypassing, 0);
}

TEST_F(ContainerUsageTest, ReportsOnlyTheContainerThatMountsOverItsLimits) {
  GrantLedger::Entry entry{.holder = {Uid(kUid), "ml", "train", "side"},
                           .shares = {{uuid_, MilliGpu(300), Bytes(4096 * kMebi)}}};
  device::NodeInventory gpus;
  gpus.gpus.push_back({.uuid = uuid_, .memory = GiB(16)});
  ASSERT_TRUE(ledger_.Bind(entry, nullptr, gpus, {}).ok());
  ASSERT_TRUE(
      limits_.Write(entry.holder, {{.uuid = uuid_, .milli = 300, .bytes = 4096 * kMebi}}).ok());
  AddProcess(71, "aa");
  CoverLimits("aa", /*with_own_file=*/false);
  AddProcess(72, "bb");
  UsageTestFile file(UsagePath("bb"));
  file.Hold(0, 64 * kMebi);
  file.usage().pids[0] = OwnPid(72);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}, {.pid = 72, .memory = Bytes(400 * kMebi)}});
  Start();
  AdvanceSeconds(5);
  EXPECT_TRUE(events_.empty()) << "it is not known which container that is";
  known_ids_["side"] = "aa";
  AdvanceSeconds(5);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find("process 71 (python) of container side"), std::string::npos);
}

// A process of the container that has no limiter.
class StopBypassTest : public ContainerUsageTest {
 protected:
  void SetUp() override {
    AddProcess(child_.pid(), "aa");
    file_.emplace(UsagePath("aa"));
    Report({{.pid = child_.pid(), .memory = Bytes(400 * kMebi)}});
  }

  PausedProcess child_;
  std::optional<UsageTestFile> file_;
};

TEST_F(StopBypassTest, KillsProcessesWithoutALimiterInTheNamedNamespaces) {
  stop_bypass_ = std::set<std::string>{"other", "ml"};
  Start();
  AdvanceSeconds(5);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find(". --limits-stop-bypass: 1 killed"), std::string::npos)
      << events_[0].message;
  EXPECT_EQ(child_.Signal(), SIGKILL);
}

TEST_F(StopBypassTest, KillsProcessesOfAContainerThatMountsOverItsLimits) {
  CoverLimits("aa", /*with_own_file=*/true);
  stop_bypass_ = std::set<std::string>{"ml"};
  Start();
  AdvanceSeconds(5);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find(". --limits-stop-bypass: 1 killed"), std::string::npos)
      << events_[0].message;
  EXPECT_EQ(child_.Signal(), SIGKILL);
}

// A loop of kills: each kill is in an Event, and the Events are few.
class KillLoopTest : public ContainerUsageTest {
 protected:
  void SetUp() override {
    stop_bypass_ = std::set<std::string>{"*"};
    AddProcess(71, "aa");
    file_.emplace(UsagePath("aa"));
    file_->Hold(0, 64 * kMebi);
    Start();
    AdvanceSeconds(5);
  }
  // Starts a process that is killed; takes five seconds.
  void KillOne() {
    const PausedProcess child;
    AddProcess(child.pid(), "aa");
    Report({{.pid = child.pid(), .memory = Bytes(400 * kMebi)}});
    AdvanceSeconds(4);  // the driver lists it for two seconds after its end
    EXPECT_EQ(child.Signal(), SIGKILL);
    EndProcess(child.pid());
    Report({});
    AdvanceSeconds(1);
  }
  // The sum of the kills in the Events.
  int ReportedKills() const {
    int sum = 0;
    for (const PodEvent& event : events_) {
      const std::string before = "--limits-stop-bypass: ";
      const size_t at = event.message.find(before);
      EXPECT_NE(at, std::string::npos) << event.message;
      EXPECT_TRUE(event.message.ends_with(" killed")) << event.message;
      if (at != std::string::npos) sum += std::stoi(event.message.substr(at + before.size()));
    }
    return sum;
  }

  std::optional<UsageTestFile> file_;
};

TEST_F(KillLoopTest, ASecondKillIsReportedWithinHalfAMinute) {
  KillOne();
  ASSERT_EQ(events_.size(), 1u);
  KillOne();
  EXPECT_EQ(events_.size(), 1u);
  AdvanceSeconds(25);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_TRUE(events_[1].message.ends_with(". --limits-stop-bypass: 1 killed"))
      << events_[1].message;
  AdvanceSeconds(100);
  EXPECT_EQ(events_.size(), 2u);
  KillOne();
  EXPECT_EQ(events_.size(), 3u) << "at once, because the pause is over";
}

TEST_F(KillLoopTest, ALoopOfKillsGetsFewEventsWithTheirNumber) {
  for (int i = 0; i < 40; ++i) {
    KillOne();
    AdvanceSeconds(10);
  }
  // In ten minutes: after 0, 30, 90, 210 and 450 seconds.
  EXPECT_EQ(events_.size(), 5u);
  AdvanceSeconds(300);
  EXPECT_EQ(events_.size(), 6u);
  EXPECT_EQ(ReportedKills(), 40);
  AdvanceSeconds(600);
  KillOne();
  KillOne();
  AdvanceSeconds(25);
  EXPECT_EQ(events_.size(), 8u) << "after a quiet time the pause is short again";
}

TEST_F(KillLoopTest, TheLastKillsAreReportedWhenThePodEnds) {
  KillOne();
  KillOne();
  ASSERT_EQ(events_.size(), 1u);
  ASSERT_TRUE(ledger_.Release({Uid(kUid), "main"}).ok());
  AdvanceSeconds(2);
  EXPECT_EQ(events_.size(), 2u);
  EXPECT_EQ(ReportedKills(), 2);
}

TEST_F(KillLoopTest, AKillIsReportedAlsoSoonAfterAnotherBypass) {
  AddProcess(75, "aa");
  UseGpuForASecond(75);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find("ended within two seconds"), std::string::npos);
  KillOne();
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_TRUE(events_[1].message.ends_with(". --limits-stop-bypass: 1 killed"))
      << events_[1].message;
}

TEST_F(KillLoopTest, AKilledProcessThatDoesNotEndIsCountedOnce) {
  const PausedProcess child;
  AddProcess(child.pid(), "aa");
  Report({{.pid = child.pid(), .memory = Bytes(400 * kMebi)}});
  AdvanceSeconds(60);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(ReportedKills(), 1);
  AdvanceSeconds(300);
  ASSERT_EQ(events_.size(), 2u);
  EXPECT_NE(events_[1].message.find("was killed and has not ended yet"), std::string::npos)
      << events_[1].message;
}

TEST_F(StopBypassTest, OnlyReportsProcessesInOtherNamespaces) {
  stop_bypass_ = std::set<std::string>{"other"};
  Start();
  AdvanceSeconds(5);
  EXPECT_EQ(events_.size(), 1u);
  EXPECT_TRUE(child_.IsAlive());
}

TEST_F(StopBypassTest, LeavesProcessesWithALimiterAlone) {
  stop_bypass_ = std::set<std::string>{"*"};
  file_->Hold(0, kMebi);
  file_->usage().pids[0] = OwnPid(child_.pid());
  Start();
  AdvanceSeconds(5);
  EXPECT_TRUE(events_.empty());
  EXPECT_TRUE(child_.IsAlive());
}

}  // namespace
}  // namespace tessera::agent
