// SPDX-License-Identifier: Apache-2.0
// NVML with any number of GPUs, for tests in virtual time. Tests can make any call fail or hang: a
// hanging call throws, and FakeCaller treats its job as not returned.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/task_runner.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/nvml.h"

namespace tessera::gpu::testing {

struct Hang {};

// Runs jobs at once, on the runner's thread.
class FakeCaller final : public BlockingCaller {
 public:
  explicit FakeCaller(TaskRunner* runner) : runner_(runner) {}

  void Start(Job job) override {
    const auto shared = std::make_shared<Job>(std::move(job));
    try {
      shared->work();
    } catch (const Hang&) {
      hanging_.push_back(shared);
      runner_->PostDelayed(shared->deadline, [this, shared] {
        if (std::erase(hanging_, shared) == 0) return;
        overdue_.push_back(shared);
        shared->overdue();
      });
      return;
    }
    runner_->Post([shared] { shared->finished(); });
  }

  // Lets hanging calls return with the current state.
  void Release() {
    for (auto* list : {&hanging_, &overdue_}) {
      for (const auto& job : std::exchange(*list, {})) {
        try {
          job->work();
        } catch (const Hang&) {
          list->push_back(job);
          continue;
        }
        runner_->Post([job] { job->finished(); });
      }
    }
  }
  size_t stuck() const { return overdue_.size(); }

 private:
  TaskRunner* const runner_;
  std::vector<std::shared_ptr<Job>> hanging_;
  std::vector<std::shared_ptr<Job>> overdue_;
};

struct FakeGpu {
  std::string uuid;
  int minor = 0;
  std::string bus_id;
  // Links to other GPUs by their address, one NVLink for each entry; "switch" for NVSwitch.
  std::vector<std::string> nvlinks;
  std::vector<GpuProcess> processes;
  std::vector<ProcessLoad> loads;
  bool mig = false;
};

struct Fault {
  Status status;  // OK: the call hangs
};

// State shared by all sessions of one fake driver.
struct FakeDriver {
  std::vector<FakeGpu> gpus;
  // By call and GPU; -1 means calls without a GPU, and all GPUs.
  std::map<std::pair<NvmlCall, int>, Fault> faults;
  std::vector<XidEvent> events;
  RecoveryAction recovery = RecoveryAction::kNone;
  std::map<NvmlCall, int> calls;
  bool initialised = false;

  static std::shared_ptr<FakeDriver> WithGpus(int count) {
    auto driver = std::make_shared<FakeDriver>();
    for (int i = 0; i < count; ++i) {
      driver->gpus.push_back({.uuid = fmt::format("GPU-{:08x}-0000-0000-0000-{:012x}", i, i),
                              .minor = i,
                              .bus_id = fmt::format("0000:{:02x}:00.0", i + 1)});
    }
    for (int i = 0; i < count; ++i) {
      if ((i ^ 1) < count) driver->gpus[i].nvlinks.assign(4, driver->gpus[i ^ 1].bus_id);
    }
    return driver;
  }
};

class FakeNvml final : public Nvml {
 public:
  explicit FakeNvml(std::shared_ptr<FakeDriver> driver) : driver_(std::move(driver)) {}

  static NvmlDevice HandleOf(int index) { return reinterpret_cast<NvmlDevice>(index + 0x1000L); }

  Status Init() override {
    const Status status = Enter(NvmlCall::kInit);
    if (status.ok()) driver_->initialised = true;
    return status;
  }
  Status Shutdown() override {
    driver_->initialised = false;
    return Enter(NvmlCall::kShutdown);
  }
  Result<std::string> DriverVersion() override {
    return Answer(NvmlCall::kDriverVersion, -1, std::string("550.163.01"));
  }
  Result<int> CudaVersion() override { return Answer(NvmlCall::kCudaVersion, -1, 12040); }
  Result<int> DeviceCount() override {
    return Answer(NvmlCall::kDeviceCount, -1, static_cast<int>(driver_->gpus.size()));
  }
  Result<NvmlDevice> HandleByIndex(int index) override {
    if (index >= static_cast<int>(driver_->gpus.size())) {
      return Error(Code::kInvalidArgument, "nvmlDeviceGetHandleByIndex_v2: invalid argument");
    }
    return Answer(NvmlCall::kHandleByIndex, index, HandleOf(index));
  }
  Result<std::string> Uuid(NvmlDevice device) override {
    return Answer(NvmlCall::kUuid, IndexOf(device), Gpu(device).uuid);
  }
  Result<int> MinorNumber(NvmlDevice device) override {
    return Answer(NvmlCall::kMinorNumber, IndexOf(device), int{Gpu(device).minor});
  }
  Result<std::string> Name(NvmlDevice device) override {
    return Answer(NvmlCall::kName, IndexOf(device), std::string("NVIDIA Fake"));
  }
  Result<std::string> PciBusId(NvmlDevice device) override {
    return Answer(NvmlCall::kPciInfo, IndexOf(device), Gpu(device).bus_id);
  }
  Result<Bytes> TotalMemory(NvmlDevice device) override {
    return Answer(NvmlCall::kMemoryInfo, IndexOf(device), GiB(80));
  }
  Result<device::ComputeCapability> Capability(NvmlDevice device) override {
    return Answer(NvmlCall::kComputeCapability, IndexOf(device), device::ComputeCapability{8, 0});
  }
  Result<RecoveryAction> Recovery(NvmlDevice device) override {
    return Answer(NvmlCall::kRecoveryAction, IndexOf(device), RecoveryAction{driver_->recovery});
  }
  Result<bool> MigEnabled(NvmlDevice device) override {
    // Also called with the handle of a removed GPU.
    const auto index = static_cast<size_t>(IndexOf(device));
    return Answer(NvmlCall::kMigMode, IndexOf(device),
                  index < driver_->gpus.size() && driver_->gpus[index].mig);
  }
  Result<device::PcieLevel> CommonAncestor(NvmlDevice a, NvmlDevice b) override {
    const bool near = IndexOf(a) / 2 == IndexOf(b) / 2;
    return Answer(NvmlCall::kCommonAncestor, IndexOf(a),
                  near ? device::PcieLevel::kSingleSwitch : device::PcieLevel::kSystem);
  }
  Result<bool> NvLinkActive(NvmlDevice device, int link) override {
    if (link >= static_cast<int>(Gpu(device).nvlinks.size()) + 1) {
      return Error(Code::kInvalidArgument, "nvmlDeviceGetNvLinkState: invalid argument");
    }
    return Answer(NvmlCall::kNvLinkState, IndexOf(device),
                  link < static_cast<int>(Gpu(device).nvlinks.size()));
  }
  Result<NvLinkPeer> NvLinkRemoteType(NvmlDevice device, int link) override {
    const bool to_switch = Gpu(device).nvlinks[link] == "switch";
    return Answer(NvmlCall::kNvLinkRemoteType, IndexOf(device),
                  to_switch ? NvLinkPeer::kSwitch : NvLinkPeer::kGpu);
  }
  Result<std::string> NvLinkRemoteBusId(NvmlDevice device, int link) override {
    return Answer(NvmlCall::kNvLinkRemotePciInfo, IndexOf(device), Gpu(device).nvlinks[link]);
  }
  Result<NvmlEventSet> EventSetCreate() override {
    return Answer(NvmlCall::kEventSetCreate, -1, reinterpret_cast<NvmlEventSet>(1L));
  }
  Status EventSetFree(NvmlEventSet) override { return Enter(NvmlCall::kEventSetFree); }
  Status RegisterXidEvents(NvmlDevice device, NvmlEventSet) override {
    const Status status = Enter(NvmlCall::kSupportedEvents, IndexOf(device));
    return status.ok() ? Enter(NvmlCall::kRegisterEvents, IndexOf(device)) : status;
  }
  Result<std::vector<GpuProcess>> ComputeProcesses(NvmlDevice device) override {
    return Answer(NvmlCall::kComputeProcesses, IndexOf(device), Gpu(device).processes);
  }
  Result<std::vector<ProcessLoad>> ProcessLoads(NvmlDevice device, WallTime) override {
    return Answer(NvmlCall::kProcessUtilization, IndexOf(device), Gpu(device).loads);
  }
  Result<XidEvent> WaitForXid(NvmlEventSet, Duration) override {
    RETURN_IF_ERROR(Enter(NvmlCall::kEventSetWait));
    if (driver_->events.empty()) return Status(Code::kDeadlineExceeded, "timeout");
    const XidEvent event = driver_->events.front();
    driver_->events.erase(driver_->events.begin());
    return event;
  }

 private:
  static int IndexOf(NvmlDevice device) {
    return static_cast<int>(reinterpret_cast<long>(device) - 0x1000L);
  }
  const FakeGpu& Gpu(NvmlDevice device) const { return driver_->gpus.at(IndexOf(device)); }

  Status Enter(NvmlCall call, int index = -1) {
    ++driver_->calls[call];
    if (!driver_->initialised && call != NvmlCall::kInit && call != NvmlCall::kShutdown) {
      return Error(Code::kFailedPrecondition, "{}: NVML is not initialised", NvmlCallName(call));
    }
    for (const int at : {index, -1}) {
      const auto fault = driver_->faults.find({call, at});
      if (fault == driver_->faults.end()) continue;
      if (fault->second.status.ok()) throw Hang();
      return fault->second.status;
    }
    return Status::Ok();
  }
  template <typename T>
  Result<T> Answer(NvmlCall call, int index, T value) {
    RETURN_IF_ERROR(Enter(call, index));
    return value;
  }

  const std::shared_ptr<FakeDriver> driver_;
};

class FakeLoader final : public NvmlLoader {
 public:
  // Null without a driver.
  std::shared_ptr<FakeDriver> driver;
  std::string fingerprint = "first";

  Result<std::shared_ptr<Nvml>> Load() override {
    if (driver == nullptr) return Status(Code::kNotFound, "libnvidia-ml.so.1 is not there");
    return std::shared_ptr<Nvml>(std::make_shared<FakeNvml>(driver));
  }
  std::string Fingerprint() override { return driver == nullptr ? "" : fingerprint; }
};

}  // namespace tessera::gpu::testing
