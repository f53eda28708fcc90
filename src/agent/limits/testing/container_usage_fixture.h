// SPDX-License-Identifier: Apache-2.0
// A node with a limited container, for tests of what ContainerUsage publishes and reports. Its
// /proc and the container's root are directories. The driver is a fake: a test decides what it
// reports about each process, and when it hangs.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/testing/grants_fixture.h"
#include "src/agent/limits/container_usage.h"
#include "src/agent/limits/testing/usage_test_file.h"
#include "src/gpu/testing/fake_nvml.h"

namespace tessera::agent {

// A caller whose jobs do not return if they have the name that Hang got.
class HangingCaller final : public gpu::BlockingCaller {
 public:
  explicit HangingCaller(TaskRunner* runner) : caller_(runner) {}
  void Start(Job job) override {
    job.work = [this, name = std::string(job.name), work = std::move(job.work)] {
      if (name == hanging_job_) throw gpu::testing::Hang();
      work();
    };
    caller_.Start(std::move(job));
  }
  void Hang(const std::string& name) { hanging_job_ = name; }
  void Release() {
    hanging_job_.clear();
    caller_.Release();
  }
  size_t stuck() const { return caller_.stuck(); }

 private:
  gpu::testing::FakeCaller caller_;
  std::string hanging_job_;
};

// A node of one GPU with one pod of one limited container. Its /proc and the container's root are
// folders; `limits` is a hard link to the host's file where it is a bind mount otherwise.
class ContainerUsageTest : public ::testing::Test {
 protected:
  static constexpr int64_t kMebi = 1 << 20;
  static inline const std::string kUid = "fd3b355a-665c-4c95-8e7f-61fd2111689f";

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
    std::filesystem::create_directories(proc);
    std::filesystem::create_directories(root + "/dev/tessera/usage");
    std::filesystem::create_directories(root + "/dev/tessera/limits");
    std::error_code ignored;
    std::filesystem::create_hard_link(LimitsPath(limits_dir_, {Uid(kUid), "main"}),
                                      root + "/dev/tessera/limits/limits", ignored);
    std::filesystem::create_directory_symlink(root, proc + "/root");
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
  // Removes `limits` from the container's root, or replaces it by a file of the container.
  void CoverLimits(const std::string& id, bool with_own_file) {
    const std::string path = temp_.path() + "/root-" + id + "/dev/tessera/limits/limits";
    std::filesystem::remove(path);
    if (with_own_file) {
      limiter::LimitsFile forged;
      EXPECT_EQ(forged.Open(path.c_str()), 0);
    }
  }
  // The pid of the process in the container's PID namespace.
  static int OwnPid(int pid) { return pid - 70; }
  void EndProcess(int pid) {
    std::filesystem::remove_all(temp_.path() + "/proc/" + std::to_string(pid));
  }
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
    options.container_id_of = [this](const ContainerRef& holder) {
      return known_ids_.contains(holder.container) ? known_ids_.at(holder.container) : "";
    };
    options.has_ended = [this](const ContainerRef& holder) {
      return ended_.contains(holder.container);
    };
    usage_.emplace(
        &runner_, options, &ledger_, &reader_, &caller_,
        ContainerUsage::Callbacks{[this](auto uses) { uses_ = std::move(uses); },
                                  [this](const ContainerRef& holder, const PodEvent& event) {
                                    EXPECT_EQ(holder.PodText(), "ml/train");
                                    events_.push_back(event);
                                  }});
    usage_->Start();
  }
  void AdvanceSeconds(int count) {
    for (int i = 0; i < count; ++i) runner_.AdvanceTimeAndRun(std::chrono::seconds(1));
  }
  // The process is in the driver's report once, and ends. No Event precedes its end.
  void UseGpuForASecond(int pid) {
    Report({{.pid = pid, .memory = Bytes(400 * kMebi)}});
    AdvanceSeconds(1);
    EXPECT_TRUE(events_.empty());
    Report({});
    EndProcess(pid);
    AdvanceSeconds(2);
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
  std::map<std::string, std::string> known_ids_;  // container IDs that the API server has, by name
  std::optional<ContainerUsage> usage_;
  std::shared_ptr<const ContainerUses> uses_;
  std::vector<PodEvent> events_;
};

}  // namespace tessera::agent
