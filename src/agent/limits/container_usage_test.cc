// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/container_usage.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>

#include "api/names.h"
#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/testing/grants_fixture.h"
#include "src/agent/limits/testing/paused_process.h"
#include "src/agent/limits/testing/usage_test_file.h"
#include "src/gpu/testing/fake_nvml.h"

namespace tessera::agent {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr int64_t kMebi = 1 << 20;
const std::string kUid = "fd3b355a-665c-4c95-8e7f-61fd2111689f";

// A caller whose jobs with the name `hangs` do not return.
class HangingCaller final : public gpu::BlockingCaller {
 public:
  explicit HangingCaller(TaskRunner* runner) : caller_(runner) {}
  void Start(Job job) override {
    job.work = [this, name = std::string(job.name), work = std::move(job.work)] {
      if (name == hangs_) throw gpu::testing::Hang();
      work();
    };
    caller_.Start(std::move(job));
  }
  void Hang(const std::string& name) { hangs_ = name; }
  void Release() {
    hangs_.clear();
    caller_.Release();
  }
  size_t stuck() const { return caller_.stuck(); }

 private:
  gpu::testing::FakeCaller caller_;
  std::string hangs_;
};

// A node of one GPU with one pod of one limited container. Its /proc and the container's root are
// folders; `limits` is a hard link to the host's file where it is a bind mount otherwise.
class ContainerUsageTest : public ::testing::Test {
 protected:
  ContainerUsageTest() {
    loader_->driver = gpu::testing::FakeDriver::WithGpus(1);
    uuid_ = loader_->driver->gpus[0].uuid;
    GrantLedger::Entry entry{.holder = {Uid(kUid), "ml", "train", "main"},
                             .shares = {{uuid_, MilliGpu(300), Bytes(4096 * kMebi)}}};
    device::NodeInventory gpus;
    gpus.gpus.push_back({.uuid = uuid_, .memory = GiB(16)});
    EXPECT_TRUE(ledger_.Bind(entry, nullptr, gpus, {}).ok());
    WriteLimit(4096);
  }

  void WriteLimit(int64_t mib) {
    EXPECT_TRUE(limits_
                    .Write({Uid(kUid), "ml", "train", "main"},
                           {{.uuid = uuid_, .milli = 300, .bytes = mib * kMebi}})
                    .ok());
  }
  // A process of container `id`, whose root is root-<id>.
  void AddProcess(int pid, const std::string& id) {
    const std::string proc = temp_.path() + "/proc/" + std::to_string(pid);
    const std::string root = temp_.path() + "/root-" + id;
    fs::create_directories(proc);
    fs::create_directories(root + "/dev/tessera/usage");
    fs::create_directories(root + "/dev/tessera/limits");
    std::error_code ignored;
    fs::create_hard_link(LimitsPath(limits_dir_, {Uid(kUid), "main"}),
                         root + "/dev/tessera/limits/limits", ignored);
    fs::create_directory_symlink(root, proc + "/root");
    EXPECT_TRUE(
        WriteFileAtomically(proc + "/cgroup", "0::/kubepods/pod" + kUid + "/" + id, 0644).ok());
    const std::string own = std::to_string(OwnPid(pid));
    EXPECT_TRUE(WriteFileAtomically(proc + "/status",
                                    "Pid:\t" + std::to_string(pid) + "\nNSpid:\t" +
                                        std::to_string(pid) + "\t" + own + "\nThreads:\t1\n",
                                    0644)
                    .ok());
    EXPECT_TRUE(WriteFileAtomically(proc + "/comm", "python\n", 0644).ok());
    EXPECT_TRUE(
        WriteFileAtomically(proc + "/maps", "1-2 r-xp 0 0:1 7  /opt/own/libcuda.so.1\n", 0644)
            .ok());
  }
  // The process has a file of its own, or none, where the container's limits were.
  void CoverLimits(const std::string& id, bool with_own_file) {
    const std::string path = temp_.path() + "/root-" + id + "/dev/tessera/limits/limits";
    fs::remove(path);
    if (with_own_file) {
      limiter::LimitsFile forged;
      EXPECT_EQ(forged.Open(path.c_str()), 0);
    }
  }
  // By which the process of a container knows itself.
  static int OwnPid(int pid) { return pid - 70; }
  void EndProcess(int pid) { fs::remove_all(temp_.path() + "/proc/" + std::to_string(pid)); }
  std::string UsagePath(const std::string& id) {
    return temp_.path() + "/root-" + id + "/dev/tessera/usage/usage";
  }
  void Report(std::vector<gpu::GpuProcess> processes) {
    loader_->driver->gpus[0].processes = std::move(processes);
  }

  void Start() {
    ContainerUsageOptions options;
    options.limits_dir = limits_dir_;
    options.find = {temp_.path() + "/proc", false};
    options.stop_bypass = stop_bypass_;
    options.container_id_of = [this](const ContainerRef& who) {
      return known_ids_.contains(who.container) ? known_ids_.at(who.container) : "";
    };
    options.has_ended = [this](const ContainerRef& who) { return ended_.contains(who.container); };
    usage_.emplace(
        &runner_, options, &ledger_, &reader_, &caller_,
        ContainerUsage::Callbacks{[this](auto uses) { uses_ = std::move(uses); },
                                  [this](const ContainerRef& who, const PodEvent& event) {
                                    EXPECT_EQ(who.PodText(), "ml/train");
                                    events_.push_back(event);
                                  }});
    usage_->Start();
  }
  void Seconds(int count) {
    for (int i = 0; i < count; ++i) runner_.AdvanceTimeAndRun(1s);
  }
  ContainerGpuUse Use() {
    EXPECT_TRUE(uses_ != nullptr && uses_->size() == 1);
    return uses_ != nullptr && uses_->size() == 1 ? uses_->front() : ContainerGpuUse();
  }
  int64_t UnaccountedInFile() {
    limiter::LimitsFile file;
    EXPECT_EQ(file.Open(LimitsPath(limits_dir_, {Uid(kUid), "main"}).c_str()), 0);
    return static_cast<int64_t>(file.limits().gpus[0].unaccounted) / kMebi;
  }

  TempDir temp_;
  const std::string limits_dir_ = temp_.path() + "/limits";
  ContainerLimits limits_{limits_dir_};
  FakeTaskRunner runner_;
  HangingCaller caller_{&runner_};
  std::shared_ptr<gpu::testing::FakeLoader> loader_ = std::make_shared<gpu::testing::FakeLoader>();
  gpu::ProcessReader reader_{&runner_, loader_, &caller_};
  std::string uuid_;
  MemoryLog log_;
  size_t skipped_ = 0;
  GrantLedger ledger_{&log_, {}, &skipped_};
  NamespaceSet stop_bypass_;
  std::set<std::string> ended_;
  std::map<std::string, std::string> known_ids_;  // to the API server, by container
  std::optional<ContainerUsage> usage_;
  std::shared_ptr<const ContainerUses> uses_;
  std::vector<PodEvent> events_;
};

TEST_F(ContainerUsageTest, PublishesMemoryAndLimitOfAContainer) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  file.usage().gpus[0].peak = 2048 * kMebi;
  Report({{.pid = 71, .memory = Bytes(1400 * kMebi)}});
  Start();
  Seconds(3);
  const ContainerGpuUse use = Use();
  EXPECT_EQ(use.held, Bytes(1024 * kMebi));
  EXPECT_EQ(use.limit, Bytes(4096 * kMebi));
  EXPECT_EQ(use.granted, Bytes(4096 * kMebi));
  EXPECT_EQ(use.peak, Bytes(2048 * kMebi));
  EXPECT_EQ(use.reported, Bytes(1400 * kMebi));
  EXPECT_EQ(use.unaccounted, Bytes(0)) << "a context";
  EXPECT_EQ(use.processes, 1);
  EXPECT_TRUE(events_.empty());
}

TEST_F(ContainerUsageTest, AContainerIsPublishedAsUnreadUntilItIsFoundAfterAStart) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  Start();
  EXPECT_FALSE(Use().is_read);
  Seconds(3);
  EXPECT_TRUE(Use().is_read);
}

TEST_F(ContainerUsageTest, ThePeakIncludesUnaccountedMemory) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  Report({{.pid = 71, .memory = Bytes(3536 * kMebi)}});
  Start();
  Seconds(10);
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
  Seconds(10);
  EXPECT_EQ(Use().unaccounted, Bytes(2000 * kMebi));
  EXPECT_EQ(UnaccountedInFile(), 2000);
  Report({});
  Seconds(1);
  EXPECT_EQ(UnaccountedInFile(), 0) << "the process has ended";
}

TEST_F(ContainerUsageTest, AnAccountThatIsRemovedOrClearedGivesNoMemoryAway) {
  AddProcess(71, "aa");
  std::optional<UsageTestFile> file(UsagePath("aa"));
  file->Hold(0, 3072 * kMebi);
  Report({{.pid = 71, .memory = Bytes(3472 * kMebi)}});
  Start();
  Seconds(8);
  EXPECT_EQ(UnaccountedInFile(), 0);
  file->Hold(0, 0);
  Seconds(6);
  EXPECT_EQ(UnaccountedInFile(), 3472 - 512) << "its numbers are 0";
  file->Hold(0, 3072 * kMebi);
  Seconds(2);
  EXPECT_EQ(UnaccountedInFile(), 0);
  fs::remove(UsagePath("aa"));
  UsageTestFile fresh(UsagePath("aa"));
  Seconds(8);
  EXPECT_EQ(UnaccountedInFile(), 3472 - 512) << "the file is a new one";
  EXPECT_EQ(Use().bypassing, 1);
}

TEST_F(ContainerUsageTest, CountsProcessesThatOnlyTheDriverKnows) {
  AddProcess(71, "aa");
  AddProcess(73, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  Report({{.pid = 71, .memory = Bytes(1400 * kMebi)}, {.pid = 73, .memory = Bytes(400 * kMebi)}});
  Start();
  Seconds(3);
  EXPECT_EQ(Use().processes, 2) << "one has a context and has allocated nothing";
}

TEST_F(ContainerUsageTest, ADriverThatHangsKeepsNothingUnaccounted) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  Report({{.pid = 71, .memory = Bytes(3536 * kMebi)}});
  Start();
  Seconds(10);
  ASSERT_EQ(UnaccountedInFile(), 2000);
  loader_->driver->faults[{gpu::NvmlCall::kComputeProcesses, 0}] = {};
  Seconds(30);
  EXPECT_EQ(UnaccountedInFile(), 0);
  file.Hold(0, 7 * kMebi);
  Seconds(2);
  EXPECT_EQ(Use().held, Bytes(7 * kMebi)) << "the limiter's own numbers go on";
  EXPECT_EQ(Use().reported, std::nullopt);
}

TEST_F(ContainerUsageTest, FollowsAContainerThatStartsAgain) {
  AddProcess(71, "aa");
  {
    UsageTestFile file(UsagePath("aa"));
    file.Hold(0, 1024 * kMebi);
    Start();
    Seconds(3);
  }
  EndProcess(71);
  Seconds(2);
  EXPECT_EQ(Use().held, Bytes(0));
  AddProcess(80, "cc");
  UsageTestFile file(UsagePath("cc"));
  file.Hold(0, 5 * kMebi);
  Seconds(10);
  EXPECT_EQ(Use().held, Bytes(5 * kMebi));
  ASSERT_EQ(usage_->files().size(), 1u);
  EXPECT_TRUE(usage_->files()[0].usage != nullptr && usage_->files()[0].usage->valid());
}

TEST_F(ContainerUsageTest, NoLinkOutOfTheContainerIsFollowed) {
  AddProcess(71, "aa");
  UsageTestFile secret(temp_.path() + "/secret");
  secret.Hold(0, 1024 * kMebi);
  fs::create_symlink(temp_.path() + "/secret", UsagePath("aa"));
  Start();
  Seconds(5);
  EXPECT_EQ(Use().held, Bytes(0));
  // Nor is a process believed that does not see the container's own limits.
  fs::remove(UsagePath("aa"));
  fs::remove(temp_.path() + "/root-aa/dev/tessera/limits/limits");
  AddProcess(72, "dd");
  fs::remove(temp_.path() + "/root-dd/dev/tessera/limits/limits");
  fs::create_symlink(LimitsPath(limits_dir_, {Uid(kUid), "main"}),
                     temp_.path() + "/root-dd/dev/tessera/limits/limits");
  EndProcess(71);
  UsageTestFile other(UsagePath("dd"));
  other.Hold(0, 1024 * kMebi);
  Seconds(10);
  EXPECT_EQ(Use().held, Bytes(0));
}

TEST_F(ContainerUsageTest, ARefusedAllocationIsAnEventNowAndThen) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 3072 * kMebi);
  file.Refuse(2048 * kMebi);
  Start();
  Seconds(4);
  EXPECT_TRUE(events_.empty()) << "from before the agent started";
  file.Refuse(2048 * kMebi);
  file.Refuse(1536 * kMebi);
  Seconds(1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonCudaOutOfMemory);
  EXPECT_EQ(events_[0].message, "CUDA out of memory: container main may use 4096 MiB of " + uuid_ +
                                    " and has held up to 3072 MiB; an allocation of 1536.0 MiB was "
                                    "refused, with 1 others: raise "
                                    "the pod's request of device memory, or allocate less");
  file.Refuse(1536 * kMebi);
  Seconds(100);
  EXPECT_EQ(events_.size(), 1u);
  Seconds(250);
  EXPECT_EQ(events_.size(), 2u);
}

TEST_F(ContainerUsageTest, MemoryBeyondTheLimitThatNoLimiterCountsIsReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  Report({{.pid = 71, .memory = Bytes(8192 * kMebi)}});
  Start();
  Seconds(4);
  EXPECT_TRUE(events_.empty());
  Seconds(4);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonMemoryLimitBelowUse);
  EXPECT_NE(events_[0].message.find("may use 4096 MiB of " + uuid_ +
                                    " and has 7680 MiB, of which 6656 MiB"),
            std::string::npos)
      << events_[0].message;
  Seconds(100);
  EXPECT_EQ(events_.size(), 1u);
}

TEST_F(ContainerUsageTest, ALimitBelowUseIsReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 3072 * kMebi);
  Start();
  Seconds(3);
  WriteLimit(3500);
  Seconds(2);
  EXPECT_TRUE(events_.empty());
  WriteLimit(1024);
  Seconds(2);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonMemoryLimitBelowUse);
  EXPECT_EQ(Use().limit, Bytes(1024 * kMebi));
  EXPECT_EQ(Use().held, Bytes(3072 * kMebi));
}

TEST_F(ContainerUsageTest, AContainerThatIsReleasedIsNotShown) {
  AddProcess(71, "aa");
  Start();
  Seconds(2);
  ASSERT_TRUE(ledger_.Release({Uid(kUid), "main"}).ok());
  Seconds(2);
  EXPECT_TRUE(uses_->empty());
}

TEST_F(ContainerUsageTest, ReportsAProcessWithoutALimiterAfterTwoRounds) {
  AddProcess(71, "aa");
  AddProcess(75, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  Seconds(5);
  EXPECT_EQ(Use().bypassing, 0);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}, {.pid = 75, .memory = Bytes(400 * kMebi)}});
  Seconds(1);
  EXPECT_TRUE(events_.empty()) << "it may be about to get its limiter";
  Seconds(3);
  EXPECT_EQ(Use().bypassing, 1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_EQ(events_[0].message,
            "process 75 (python) of container main uses " + uuid_ +
                " without the limiter, so its share is not enforced: it has loaded "
                "/opt/own/libcuda.so.1, which is not the node's driver; remove that library from "
                "the image or from its search path");
  Seconds(290);
  EXPECT_EQ(events_.size(), 1u);
  Seconds(15);
  EXPECT_EQ(events_.size(), 2u) << "it goes on";
  file.Hold(3, 0);
  file.usage().pids[3] = OwnPid(75);
  Seconds(2);
  EXPECT_EQ(Use().bypassing, 0);
  file.End(3);
  Seconds(2);
  EXPECT_EQ(Use().bypassing, 1) << "the slot is that of a process that has ended";
}

TEST_F(ContainerUsageTest, AProcessWithoutALimiterThatEndsAtOnceIsReported) {
  AddProcess(71, "aa");
  AddProcess(75, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Start();
  Seconds(5);
  Report({{.pid = 75, .memory = Bytes(400 * kMebi)}});
  Seconds(1);
  EXPECT_TRUE(events_.empty());
  Report({});
  EndProcess(75);
  Seconds(2);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_TRUE(events_[0].message.starts_with("process 75 (python) of container main used " + uuid_ +
                                             " without the limiter"))
      << events_[0].message;
}

// One that lasts an interval lives during one comparison at least, if that reads the driver's list
// itself. Here a monitoring system reads it, too, between the comparisons.
TEST_F(ContainerUsageTest, ABypassOfAnIntervalIsReportedWheneverItBegins) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  for (Duration begin = 0ms; begin < 1s; begin += 100ms) {
    events_.clear();
    Start();
    Seconds(4);
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
  Seconds(5);
  // The driver reported it, and when its limiter was looked for it had executed another program.
  Report({{.pid = 75, .memory = Bytes(400 * kMebi)}});
  Seconds(1);
  Report({});
  Seconds(3);
  EXPECT_TRUE(events_.empty());
}

TEST_F(ContainerUsageTest, NamesADamagedUsageFileAsTheCause) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  Seconds(5);
  EXPECT_TRUE(events_.empty());
  file.usage().header.magic = 0;
  Seconds(3);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].reason, names::kReasonLimiterBypassed);
  EXPECT_NE(events_[0].message.find("the container has damaged the file in which its processes"),
            std::string::npos)
      << events_[0].message;
}

TEST_F(ContainerUsageTest, ALinkInThePlaceOfTheUsageFileCountsNoProcess) {
  AddProcess(71, "aa");
  fs::create_symlink("/etc/hostname", UsagePath("aa"));
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  Seconds(5);
  EXPECT_EQ(Use().bypassing, 1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find("usage is not a regular file"), std::string::npos)
      << events_[0].message;
}

// The container is never found: none of its processes sees its limits.
TEST_F(ContainerUsageTest, AContainerThatCoversItsLimitsIsReported) {
  AddProcess(71, "aa");
  CoverLimits("aa", /*with_own_file=*/true);
  UsageTestFile forged(UsagePath("aa"));
  forged.Hold(0, 64 * kMebi);
  forged.usage().pids[0] = OwnPid(71);
  Report({{.pid = 71, .memory = Bytes(3536 * kMebi)}});
  Start();
  Seconds(1);
  EXPECT_TRUE(events_.empty()) << "one round alone is no evidence";
  Seconds(9);
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
  Seconds(2);
  EXPECT_EQ(Use().bypassing, 0);
}

TEST_F(ContainerUsageTest, AContainerThatUnmountsItsLimitsIsReported) {
  AddProcess(71, "aa");
  CoverLimits("aa", /*with_own_file=*/false);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  Seconds(5);
  EXPECT_EQ(Use().bypassing, 1);
  EXPECT_EQ(events_.size(), 1u);
}

// Another process of the container sees the limits, and this one counts in the true usage file.
TEST_F(ContainerUsageTest, AProcessThatCoversTheLimitsForItselfIsReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  file.usage().pids[0] = OwnPid(71);
  Start();
  Seconds(3);
  AddProcess(72, "aa");
  fs::create_directories(temp_.path() + "/root-own");
  fs::remove(temp_.path() + "/proc/72/root");
  fs::create_directory_symlink(temp_.path() + "/root-own", temp_.path() + "/proc/72/root");
  file.Hold(1, 64 * kMebi);
  file.usage().pids[1] = OwnPid(72);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}, {.pid = 72, .memory = Bytes(400 * kMebi)}});
  Seconds(4);
  EXPECT_EQ(Use().bypassing, 1);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find("not visible to process 72"), std::string::npos);
}

// It has called chroot after its limiter was loaded.
TEST_F(ContainerUsageTest, AProcessThatHasMappedTheLimitsIsNotReported) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 64 * kMebi);
  file.usage().pids[0] = OwnPid(71);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  Start();
  Seconds(3);
  struct stat info {};
  ASSERT_EQ(::stat(LimitsPath(limits_dir_, {Uid(kUid), "main"}).c_str(), &info), 0);
  CoverLimits("aa", /*with_own_file=*/false);
  const std::string line =
      fmt::format("7f00-7f01 r--s 00000000 {:02x}:{:02x} {}   /dev/tessera/limits/limits\n",
                  major(info.st_dev), minor(info.st_dev), info.st_ino);
  ASSERT_TRUE(WriteFileAtomically(temp_.path() + "/proc/71/maps", line, 0644).ok());
  Seconds(5);
  EXPECT_EQ(Use().bypassing, 0);
  EXPECT_TRUE(events_.empty());
}

// The container has put a file system that does not answer where a check looks for its limits.
TEST_F(ContainerUsageTest, ACheckOfSightThatHangsKeepsTheNumbersOfAFoundContainerFlowing) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 1024 * kMebi);
  file.usage().pids[0] = OwnPid(71);
  Report({{.pid = 71, .memory = Bytes(1536 * kMebi)}});
  caller_.Hang("usage-sight");
  Start();
  Seconds(20);
  EXPECT_EQ(caller_.stuck(), 1u) << "one check for each container, and no second beside it";
  file.Hold(0, 7 * kMebi);
  Seconds(2);
  EXPECT_EQ(Use().held, Bytes(7 * kMebi));
  EXPECT_EQ(Use().bypassing, 0) << "another process of the container sees its limits";
  EXPECT_TRUE(events_.empty());
}

TEST_F(ContainerUsageTest, AHangingCheckCountsTheContainerAsHidden) {
  AddProcess(71, "aa");
  CoverLimits("aa", /*with_own_file=*/false);
  Report({{.pid = 71, .memory = Bytes(400 * kMebi)}});
  caller_.Hang("usage-sight");
  Start();
  Seconds(5);
  EXPECT_TRUE(events_.empty()) << "the check is within its deadline";
  Seconds(5);
  EXPECT_EQ(Use().bypassing, 1);
  EXPECT_EQ(events_.size(), 1u);
  EndProcess(71);
  Report({});
  caller_.Release();
  Seconds(3);
  EXPECT_EQ(caller_.stuck(), 0u);
  EXPECT_EQ(Use().bypassing, 0);
}

TEST_F(ContainerUsageTest, ReportsOnlyTheContainerThatCoversItsLimits) {
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
  Seconds(5);
  EXPECT_TRUE(events_.empty()) << "it is not known which container that is";
  known_ids_["side"] = "aa";
  Seconds(5);
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
  Seconds(5);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find(". --limits-stop-bypass: 1 killed"), std::string::npos)
      << events_[0].message;
  EXPECT_EQ(child_.Signal(), SIGKILL);
}

TEST_F(StopBypassTest, KillsProcessesOfAContainerThatCoversItsLimits) {
  CoverLimits("aa", /*with_own_file=*/true);
  stop_bypass_ = std::set<std::string>{"ml"};
  Start();
  Seconds(5);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_NE(events_[0].message.find(". --limits-stop-bypass: 1 killed"), std::string::npos)
      << events_[0].message;
  EXPECT_EQ(child_.Signal(), SIGKILL);
}

TEST_F(StopBypassTest, OnlyReportsThemInOtherNamespaces) {
  stop_bypass_ = std::set<std::string>{"other"};
  Start();
  Seconds(5);
  EXPECT_EQ(events_.size(), 1u);
  EXPECT_TRUE(child_.IsAlive());
}

TEST_F(StopBypassTest, LeavesProcessesWithALimiterAlone) {
  stop_bypass_ = std::set<std::string>{"*"};
  file_->Hold(0, kMebi);
  file_->usage().pids[0] = OwnPid(child_.pid());
  Start();
  Seconds(5);
  EXPECT_TRUE(events_.empty());
  EXPECT_TRUE(child_.IsAlive());
}

TEST_F(ContainerUsageTest, AContainerThatIsNotLimitedIsShownAsSuch) {
  fs::remove_all(limits_dir_);
  Start();
  Seconds(2);
  EXPECT_FALSE(Use().limited);
  EXPECT_EQ(Use().granted, Bytes(4096 * kMebi));
  ASSERT_TRUE(ledger_.Release({Uid(kUid), "main"}).ok());
  Seconds(1);
  EXPECT_TRUE(uses_->empty());
}

TEST_F(ContainerUsageTest, AContainerThatHasEndedIsNotShown) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, kMebi);
  Start();
  Seconds(3);
  ended_ = {"main"};
  Seconds(2);
  EXPECT_EQ(Use().held, Bytes(kMebi)) << "it runs again, and the API server does not know it yet";
  EndProcess(71);
  Seconds(2);
  EXPECT_TRUE(uses_->empty());
}

TEST_F(ContainerUsageTest, PublishesNoContainerBeforeItsFirstSearch) {
  AddProcess(71, "aa");
  UsageTestFile file(UsagePath("aa"));
  file.Hold(0, 5 * kMebi);
  Start();
  for (int i = 0; i < 4; ++i) {
    Seconds(1);
    if (uses_ == nullptr || uses_->empty()) continue;
    EXPECT_EQ(Use().held, Bytes(5 * kMebi));
  }
  EXPECT_EQ(Use().held, Bytes(5 * kMebi));
}

}  // namespace
}  // namespace tessera::agent
