// SPDX-License-Identifier: Apache-2.0
// The inventory with the simulated driver: a library that is found and loaded below a driver root,
// real threads, and calls that really hang. src/gpu tests many more cases in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/gpu/inventory.h"
#include "src/gpu/nvml_library.h"
#include "src/gpu/process_reader.h"
#include "src/sim/profile.h"
#include "src/sim/simgpu/driver_root.h"
#include "src/sim/simgpu/inject.h"
#include "src/sim/state.h"
#include "src/sim/turns.h"

namespace tessera::gpu {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kGpus = 4;
constexpr uint32_t kUnknownError = 999;
constexpr uint32_t kGpuIsLost = 15;

// A node in a temporary folder, and an inventory of that node. The intervals are short to keep the
// tests fast, and the tests wait for conditions and not for fixed times.
class SimulatedDriverTest : public ::testing::Test {
 protected:
  SimulatedDriverTest() : quiet_([](std::string_view) {}) {
    const std::string libraries = dir_.path() + "/libraries";
    std::filesystem::create_directories(libraries);
    std::filesystem::copy_file(SIM_NVML_LIBRARY, libraries + "/libnvidia-ml.so.1");
    std::ofstream(libraries + "/libcuda.so.1") << "not used here";
    ::setenv("SIMGPU_DEV_ROOT", dir_.path().c_str(), 1);
    options_.sys_root = root() + "/sys";
    options_.proc_root = root() + "/proc";
    options_.poll_interval = milliseconds(40);
    options_.retry_min = milliseconds(10);
    options_.retry_max = milliseconds(40);
    options_.call_deadline = milliseconds(150);
    options_.init_deadline = milliseconds(300);
    options_.first_snapshot_within = milliseconds(100);
    options_.event_wait = milliseconds(100);
    options_.xid_quiet = milliseconds(100);
  }
  ~SimulatedDriverTest() override {
    if (open_state_ != nullptr) state().ClearFaults(nullptr, sim::kAllGpus);
    OnRunner([this] {
      inventory_.reset();
      caller_.reset();
    });
    runner_.Quit();
    thread_.join();
  }

  sim::State& state() const { return *open_state_; }
  std::string root() const { return dir_.path() + "/driver"; }

  void CreateDriver(uint32_t gpus = kGpus) {
    Result<sim::Profile> profile = sim::LoadProfile("a100-sxm4-80gb");
    ASSERT_TRUE(profile.ok()) << profile.status().ToString();
    profile->gpus = gpus;
    const Status status = sim::CreateDriverRoot({.profile = *profile,
                                                 .node_name = "node",
                                                 .root = root(),
                                                 .library_dir = dir_.path() + "/libraries",
                                                 .device_files = sim::DeviceFiles::kPlain,
                                                 .dev_root = dir_.path()});
    ASSERT_TRUE(status.ok()) << status.ToString();
    open_state_ = std::make_unique<sim::State>();
    ASSERT_EQ(open_state_->Open(sim::StateDir(root())), 0);
  }

  // Replaces the inventory by a new one, which does not know what the old inventory saw.
  void Restart() {
    OnRunner([this] { inventory_.reset(); });
    {
      std::lock_guard lock(mutex_);
      latest_ = nullptr;
    }
    Start();
  }
  void Start() {
    OnRunner([this] {
      inventory_ =
          std::make_unique<Inventory>(&runner_, std::make_shared<NvmlLibraryLoader>(root()),
                                      caller_.get(), options_, [this](InventorySnapshot snapshot) {
                                        std::lock_guard lock(mutex_);
                                        latest_ = std::move(snapshot);
                                        changed_.notify_all();
                                      });
      inventory_->Start();
    });
  }

  ProcessReport ReadProcesses() {
    std::promise<ProcessReport> read;
    std::unique_ptr<ProcessReader> reader;
    OnRunner([&] {
      reader = std::make_unique<ProcessReader>(
          &runner_, std::make_shared<NvmlLibraryLoader>(root()), caller_.get());
      reader->Read(
          [&](const std::shared_ptr<const ProcessReport>& report) { read.set_value(*report); });
    });
    ProcessReport report = read.get_future().get();
    OnRunner([&] { reader.reset(); });
    return report;
  }

  // Waits for a snapshot that fulfills `condition`, which looks at snapshot_, and calls `meanwhile`
  // every 100 ms. Returns false after 30 s.
  bool RunUntil(
      const std::function<bool()>& condition, const std::function<void()>& meanwhile = [] {}) {
    std::unique_lock lock(mutex_);
    for (int round = 0; round < 300; ++round) {
      const bool fulfilled = changed_.wait_for(lock, milliseconds(100), [&] {
        snapshot_ = latest_;
        return snapshot_ != nullptr && condition();
      });
      if (fulfilled) return true;
      meanwhile();
    }
    return false;
  }
  bool RunUntilHealthy(size_t count) {
    return RunUntil([this, count] { return snapshot_->healthy_count() == count; });
  }
  const std::string& ReasonOf(int gpu) const { return snapshot_->gpus[gpu].health.reason; }

  std::string Describe() const {
    std::string text = "problem: " + snapshot_->problem;
    for (const device::Gpu& gpu : snapshot_->gpus) {
      text += fmt::format("\n{} {}", gpu.index, gpu.health.reason);
    }
    for (const std::string& note : snapshot_->notes) text += "\n" + note;
    return text;
  }

  ScopedLogSinkForTest quiet_;
  TempDir dir_;
  std::unique_ptr<sim::State> open_state_;
  InventoryOptions options_;
  InventorySnapshot snapshot_;

 private:
  void OnRunner(const std::function<void()>& task) {
    std::promise<void> done;
    runner_.Post([&] {
      task();
      done.set_value();
    });
    done.get_future().wait();
  }

  // Shared by the runner's thread and the test's thread.
  std::mutex mutex_;
  std::condition_variable changed_;
  InventorySnapshot latest_;

  EpollTaskRunner runner_;
  std::unique_ptr<ThreadCaller> caller_ = std::make_unique<ThreadCaller>(&runner_);
  std::unique_ptr<Inventory> inventory_;
  std::thread thread_{[this] { runner_.Run(); }};
};

TEST_F(SimulatedDriverTest, FindsTheGpusOfTheProfile) {
  CreateDriver();
  // No call hangs in this test, so the deadlines can allow for the delays of a busy machine.
  options_.call_deadline = options_.init_deadline = seconds(20);
  Start();
  ASSERT_TRUE(RunUntilHealthy(kGpus));
  EXPECT_FALSE(snapshot_->driver_version.empty());
  EXPECT_GT(snapshot_->cuda_version, 12000);
  for (uint32_t i = 0; i < kGpus; ++i) {
    const device::Gpu& gpu = snapshot_->gpus[i];
    EXPECT_EQ(gpu.uuid, state().facts(i).uuid);
    EXPECT_EQ(gpu.minor, static_cast<int>(state().facts(i).minor));
    EXPECT_EQ(gpu.model, state().facts(i).name);
    EXPECT_GT(gpu.memory, GiB(70));
    EXPECT_TRUE(gpu.numa_node.has_value()) << gpu.pci_bus_id;
    EXPECT_EQ(gpu.compute_capability, (device::ComputeCapability{8, 0}));
  }
  EXPECT_EQ(device::NameOf(snapshot_->links.At(0, 1)).substr(0, 2), "NV")
      << device::NameOf(snapshot_->links.At(0, 1));
  EXPECT_THAT(snapshot_->notes, ::testing::IsEmpty());
}

TEST_F(SimulatedDriverTest, ReportsWhichProcessesUseWhichGpu) {
  CreateDriver();
  sim::ProcessSlot slot;
  ASSERT_EQ(slot.Claim(&state()), 0);
  slot.AddContexts(2, 1);
  ASSERT_EQ(slot.Charge(2, static_cast<uint64_t>(GiB(3).count())), 0);
  sim::Turns turns(&slot, 2);
  sim::Turn turn;
  ProcessReport report;
  // On a busy machine a report may come late, and then lack the utilization or a GPU.
  for (int i = 0; i < 20; ++i) {
    const uint64_t now = sim::MonotonicNs();
    turns.Request(400'000'000, now - 400'000'000);
    while (turns.Next(now, &turn)) turns.SetUsedUntil(turn.end_ns);
    report = ReadProcesses();
    if (report.gpus.size() == kGpus && !report.gpus[2].processes.empty() &&
        report.gpus[2].processes[0].percent > 0)
      break;
  }
  slot.Release();
  ASSERT_TRUE(report.status.ok()) << report.status.ToString();
  ASSERT_EQ(report.gpus.size(), kGpus);
  EXPECT_TRUE(report.gpus[0].processes.empty());
  EXPECT_EQ(report.gpus[2].uuid, state().facts(2).uuid);
  ASSERT_EQ(report.gpus[2].processes.size(), 1u);
  EXPECT_EQ(report.gpus[2].processes[0].pid, ::getpid());
  EXPECT_EQ(report.gpus[2].processes[0].memory, GiB(3));
  EXPECT_GT(report.gpus[2].processes[0].percent, 0);
}

TEST_F(SimulatedDriverTest, CannotReportProcessesWithoutADriver) {
  EXPECT_EQ(ReadProcesses().status.code(), Code::kNotFound);
}

TEST_F(SimulatedDriverTest, ADriverThatComesLaterIsFound) {
  Start();
  ASSERT_TRUE(RunUntil([this] { return !snapshot_->problem.empty(); }));
  EXPECT_THAT(snapshot_->problem,
              ::testing::HasSubstr("install the NVIDIA driver, or name its root"));
  CreateDriver();
  EXPECT_TRUE(RunUntilHealthy(kGpus)) << Describe();
}

TEST_F(SimulatedDriverTest, AReplacedDriverIsLoadedAnew) {
  CreateDriver();
  Start();
  ASSERT_TRUE(RunUntilHealthy(kGpus));
  std::filesystem::remove_all(root());
  CreateDriver(2);
  EXPECT_TRUE(RunUntil([this] {
    return snapshot_->gpus.size() == 2 && snapshot_->healthy_count() == 2;
  })) << Describe();
}

TEST_F(SimulatedDriverTest, AnXidIsSeenAndItsGpuRecoversAfterTheReset) {
  CreateDriver();
  Start();
  ASSERT_TRUE(RunUntilHealthy(kGpus));
  // The driver does not keep an XID that happens before the inventory has registered for the GPU's
  // events, so inject the XID until the inventory reports it. The inventory may notice that the
  // driver asks for a reset before it receives the XID.
  ASSERT_TRUE(RunUntil(
      [this] {
        return ReasonOf(2).starts_with("XID 95: Uncontained ECC error") &&
               snapshot_->healthy_count() == kGpus - 1;
      },
      [this] { sim::InjectXid(&state(), 2, 95); }))
      << Describe();
  // Wait until the inventory has received every XID and noticed that the driver asks for a reset.
  // Only then does the inventory take the recovery for a repair.
  std::this_thread::sleep_for(50 * options_.poll_interval);
  sim::Recover(&state(), 2);
  EXPECT_TRUE(RunUntilHealthy(kGpus)) << Describe();
}

TEST_F(SimulatedDriverTest, AGpuInMigModeIsWithdrawn) {
  CreateDriver();
  ASSERT_EQ(state().ForceMigMode(3, true), 0);
  Start();
  ASSERT_TRUE(RunUntil([this] {
    return snapshot_->healthy_count() == kGpus - 1 && ReasonOf(3).starts_with("MIG mode is on");
  })) << Describe();
  ASSERT_EQ(state().ForceMigMode(3, false), 0);
  EXPECT_TRUE(RunUntilHealthy(kGpus)) << Describe();
}

TEST_F(SimulatedDriverTest, ALostGpuLeavesTheOthersAndComesBack) {
  CreateDriver();
  Start();
  ASSERT_TRUE(RunUntilHealthy(kGpus));
  sim::InjectLost(&state(), 1);
  ASSERT_TRUE(RunUntil([this] {
    return snapshot_->healthy_count() == kGpus - 1 && ReasonOf(1) != "";
  })) << Describe();
  // The inventory takes an answer of this GPU for a repair only if it saw that the GPU was lost
  // after the XID.
  std::this_thread::sleep_for(50 * options_.poll_interval);
  sim::Recover(&state(), 1);
  EXPECT_TRUE(RunUntilHealthy(kGpus)) << Describe();
}

TEST_F(SimulatedDriverTest, AGpuThatIsLostFromTheStartIsListed) {
  CreateDriver();
  sim::InjectLost(&state(), 1);
  Start();
  ASSERT_TRUE(RunUntil([this] {
    return snapshot_->gpus.size() == kGpus && snapshot_->healthy_count() == kGpus - 1;
  })) << Describe();
  sim::Recover(&state(), 1);
  EXPECT_TRUE(RunUntilHealthy(kGpus)) << Describe();
}

TEST_F(SimulatedDriverTest, AGpuThatHangsHidesOnlyItsOwnProcesses) {
  CreateDriver();
  Start();
  ASSERT_TRUE(RunUntilHealthy(kGpus)) << Describe();
  const std::string call(NvmlCallName(NvmlCall::kComputeProcesses));
  ASSERT_EQ(state().AddFault(call.c_str(), 1, 0, true, 0, 0), 0);
  // On a busy machine another GPU may miss the deadline, too.
  ProcessReport report;
  for (int i = 0; i < 20 && report.gpus.size() < kGpus - 1; ++i) report = ReadProcesses();
  EXPECT_TRUE(report.status.ok()) << report.status.ToString();
  ASSERT_EQ(report.gpus.size(), kGpus - 1);
  for (const ProcessReport::GpuProcesses& gpu : report.gpus) {
    EXPECT_NE(gpu.uuid, state().facts(1).uuid);
  }
  state().ClearFaults(nullptr, sim::kAllGpus);
  for (int i = 0; i < 20 && report.gpus.size() < kGpus; ++i) report = ReadProcesses();
  EXPECT_EQ(report.gpus.size(), kGpus);
}

TEST_F(SimulatedDriverTest, ReportsAnInitThatHangsAndRecovers) {
  CreateDriver();
  ASSERT_EQ(state().AddFault("nvmlInit_v2", sim::kAllGpus, 0, true, 0, 0), 0);
  Start();
  ASSERT_TRUE(RunUntil([this] { return !snapshot_->problem.empty(); }));
  EXPECT_EQ(snapshot_->problem, "NVML call nvmlInit_v2 did not return");
  state().ClearFaults(nullptr, sim::kAllGpus);
  EXPECT_TRUE(RunUntilHealthy(kGpus)) << Describe();
}

// A call about one GPU, and whether the GPU must become unhealthy when the call fails.
struct CallCase {
  NvmlCall call;
  bool makes_unhealthy;
};
constexpr CallCase kCallsOfOneGpu[] = {
    {NvmlCall::kHandleByIndex, true},     {NvmlCall::kUuid, true},
    {NvmlCall::kMinorNumber, true},       {NvmlCall::kName, true},
    {NvmlCall::kPciInfo, true},           {NvmlCall::kMemoryInfo, true},
    {NvmlCall::kComputeCapability, true}, {NvmlCall::kRecoveryAction, false},
    {NvmlCall::kCommonAncestor, false},   {NvmlCall::kNvLinkState, false},
    {NvmlCall::kNvLinkRemoteType, false}, {NvmlCall::kNvLinkRemotePciInfo, false},
    {NvmlCall::kSupportedEvents, true},   {NvmlCall::kRegisterEvents, true},
};

class FaultOnOneGpu : public SimulatedDriverTest, public ::testing::WithParamInterface<CallCase> {
 protected:
  void TryFault(int gpu, uint32_t result, bool hang) {
    const std::string call(NvmlCallName(GetParam().call));
    SCOPED_TRACE(fmt::format("{} on GPU {}: {}", call, gpu, hang ? "hangs" : "fails"));
    ASSERT_EQ(state().AddFault(call.c_str(), gpu, result, hang, 0, 0), 0);
    Restart();
    const auto others_healthy = [&] {
      for (int other = 0; other < static_cast<int>(kGpus); ++other) {
        if (other == gpu) continue;
        const device::Gpu* found = snapshot_->Find(state().facts(other).uuid);
        if (found == nullptr || !found->health.ok()) return false;
      }
      return true;
    };
    EXPECT_TRUE(RunUntil(others_healthy)) << Describe();
    if (GetParam().makes_unhealthy) {
      // The GPU stays listed, with a reason: the kernel module knows its UUID even if NVML does not
      // answer.
      EXPECT_TRUE(RunUntil([&] {
        return snapshot_->gpus.size() == kGpus && snapshot_->healthy_count() == kGpus - 1;
      })) << Describe();
      EXPECT_TRUE(others_healthy()) << Describe();
    }
    state().ClearFaults(nullptr, sim::kAllGpus);
    EXPECT_TRUE(RunUntilHealthy(kGpus)) << Describe();
  }
};

TEST_P(FaultOnOneGpu, LeavesTheOthersHealthyAndRecovers) {
  CreateDriver();
  for (int gpu = 0; gpu < static_cast<int>(kGpus); ++gpu) {
    TryFault(gpu, kUnknownError, false);
    TryFault(gpu, kGpuIsLost, false);
    TryFault(gpu, 0, true);
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, FaultOnOneGpu, ::testing::ValuesIn(kCallsOfOneGpu),
                         [](const auto& info) {
                           return std::string(NvmlCallName(info.param.call));
                         });

}  // namespace
}  // namespace tessera::gpu
