// SPDX-License-Identifier: Apache-2.0
// NVML with any number of GPUs, for tests in virtual time. Tests can make any call fail or hang: a
// hanging call throws, and FakeCaller treats its job as not returned.
#pragma once

#include <atomic>
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
        shared->on_overdue();
      });
      return;
    }
    runner_->Post([shared] { shared->on_finished(); });
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
        runner_->Post([job] { job->on_finished(); });
      }
    }
  }
  size_t stuck() const { return overdue_.size(); }

 private:
  TaskRunner* const runner_;
  std::vector<std::shared_ptr<Job>> hanging_;
  std::vector<std::shared_ptr<Job>> overdue_;
};

// The answers of a GPU to queries for metrics.
struct FakeTelemetry {
  int sm_mhz = 1410;
  int memory_mhz = 1593;
  int celsius = 40;
  int milliwatts = 62123;
  UtilizationRates utilization{.gpu = 50, .memory = 20};
  int encoder_percent = 0;
  int decoder_percent = 0;
  MemoryUse memory{.total = GiB(80), .free = GiB(70), .used = GiB(9), .reserved = GiB(1)};
  int64_t pcie_replays = 0;
  std::map<unsigned, double> fields;  // by NVML's number
  std::map<unsigned, double> gpm;     // by NVML's number; empty: a GPU before Hopper
};

struct FakeGpu {
  std::string uuid;
  int minor = 0;
  std::string bus_id;
  // Links to other GPUs by their address, one NVLink for each entry; "switch" for NVSwitch.
  std::vector<std::string> nvlinks;
  std::vector<GpuProcess> processes;
  std::vector<ProcessLoad> loads;  // with `end_us` 0: a new sample at each query
  bool mig = false;
  // Outer nullopt: the GPU has no fabric; inner nullopt: not registered yet.
  std::optional<std::optional<device::FabricClique>> fabric;
  FakeTelemetry telemetry;
};

struct Fault {
  Status status;  // OK: the call hangs
};

// State shared by all sessions of one fake driver.
struct FakeDriver {
  std::vector<FakeGpu> gpus;
  // By call and GPU. GPU -1 stands for calls without a GPU, and for all GPUs.
  std::map<std::pair<NvmlCall, int>, Fault> faults;
  std::vector<XidEvent> events;
  RecoveryAction recovery = RecoveryAction::kNone;
  std::map<NvmlCall, int> calls;
  bool initialized = false;

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
    if (status.ok()) driver_->initialized = true;
    return status;
  }
  Status Shutdown() override {
    driver_->initialized = false;
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
  Result<std::optional<device::FabricClique>> Fabric(NvmlDevice device) override {
    const auto& fabric = Gpu(device).fabric;
    if (!fabric) return Error(Code::kUnimplemented, "nvmlDeviceGetGpuFabricInfo: not supported");
    return Answer(NvmlCall::kFabricInfo, IndexOf(device), std::optional(*fabric));
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
  Result<NvLinkRemoteKind> NvLinkRemoteType(NvmlDevice device, int link) override {
    const bool to_switch = Gpu(device).nvlinks[link] == "switch";
    return Answer(NvmlCall::kNvLinkRemoteType, IndexOf(device),
                  to_switch ? NvLinkRemoteKind::kSwitch : NvLinkRemoteKind::kGpu);
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
  Result<std::vector<ProcessLoad>> ProcessLoads(NvmlDevice device) override {
    std::vector<ProcessLoad> loads = Gpu(device).loads;
    const uint64_t now_us = sample_us_ += 1'000'000;
    for (ProcessLoad& load : loads) {
      if (load.end_us == 0) load.end_us = now_us;
    }
    return Answer(NvmlCall::kProcessUtilization, IndexOf(device), loads);
  }
  Result<int> ClockMhz(NvmlDevice device, ClockDomain domain) override {
    const FakeTelemetry& telemetry = Gpu(device).telemetry;
    return Answer(NvmlCall::kClockInfo, IndexOf(device),
                  domain == ClockDomain::kSm ? int{telemetry.sm_mhz} : int{telemetry.memory_mhz});
  }
  Result<int> TemperatureCelsius(NvmlDevice device) override {
    return Answer(NvmlCall::kTemperature, IndexOf(device), int{Gpu(device).telemetry.celsius});
  }
  Result<int> PowerMilliwatts(NvmlDevice device) override {
    return Answer(NvmlCall::kPowerUsage, IndexOf(device), int{Gpu(device).telemetry.milliwatts});
  }
  Result<UtilizationRates> Utilization(NvmlDevice device) override {
    return Answer(NvmlCall::kUtilization, IndexOf(device),
                  UtilizationRates(Gpu(device).telemetry.utilization));
  }
  Result<int> EncoderPercent(NvmlDevice device) override {
    return Answer(NvmlCall::kEncoderUtilization, IndexOf(device),
                  int{Gpu(device).telemetry.encoder_percent});
  }
  Result<int> DecoderPercent(NvmlDevice device) override {
    return Answer(NvmlCall::kDecoderUtilization, IndexOf(device),
                  int{Gpu(device).telemetry.decoder_percent});
  }
  Result<MemoryUse> Memory(NvmlDevice device) override {
    return Answer(NvmlCall::kMemoryInfoV2, IndexOf(device),
                  MemoryUse(Gpu(device).telemetry.memory));
  }
  Result<int64_t> PcieReplays(NvmlDevice device) override {
    return Answer(NvmlCall::kPcieReplays, IndexOf(device),
                  int64_t{Gpu(device).telemetry.pcie_replays});
  }
  Result<std::vector<std::optional<double>>> FieldValues(
      NvmlDevice device, std::span<const FieldQuery> queries) override {
    std::vector<std::optional<double>> values;
    for (const FieldQuery& query : queries) {
      values.push_back(Lookup(Gpu(device).telemetry.fields, query.field));
    }
    return Answer(NvmlCall::kFieldValues, IndexOf(device), std::move(values));
  }
  Result<std::unique_ptr<GpmSample>> TakeGpmSample(NvmlDevice device) override {
    if (Gpu(device).telemetry.gpm.empty()) {
      return Error(Code::kUnimplemented, "nvmlGpmQueryDeviceSupport: not supported");
    }
    auto sample = std::make_unique<FakeGpmSample>();
    sample->metrics = Gpu(device).telemetry.gpm;
    return Answer(NvmlCall::kGpmSampleGet, IndexOf(device),
                  std::unique_ptr<GpmSample>(std::move(sample)));
  }
  Result<std::vector<std::optional<double>>> GpmMetrics(
      const GpmSample&, const GpmSample& later, std::span<const unsigned> metrics) override {
    std::vector<std::optional<double>> values;
    for (const unsigned metric : metrics) {
      values.push_back(Lookup(static_cast<const FakeGpmSample&>(later).metrics, metric));
    }
    return Answer(NvmlCall::kGpmMetrics, -1, std::move(values));
  }
  Result<std::string> Serial(NvmlDevice device) override {
    return Answer(NvmlCall::kSerial, IndexOf(device), fmt::format("{:013}", IndexOf(device)));
  }
  Result<std::string> VbiosVersion(NvmlDevice device) override {
    return Answer(NvmlCall::kVbiosVersion, IndexOf(device), std::string("92.00.45.00.03"));
  }
  Result<std::string> NvmlVersion() override {
    return Answer(NvmlCall::kNvmlVersion, -1, std::string("12.550.163.01"));
  }
  Result<XidEvent> WaitForXid(NvmlEventSet, Duration) override {
    RETURN_IF_ERROR(Enter(NvmlCall::kEventSetWait));
    if (driver_->events.empty()) return Status(Code::kDeadlineExceeded, "timeout");
    const XidEvent event = driver_->events.front();
    driver_->events.erase(driver_->events.begin());
    return event;
  }

 private:
  struct FakeGpmSample final : GpmSample {
    std::map<unsigned, double> metrics;
  };
  static std::optional<double> Lookup(const std::map<unsigned, double>& values, unsigned number) {
    const auto found = values.find(number);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  }
  static int IndexOf(NvmlDevice device) {
    return static_cast<int>(reinterpret_cast<long>(device) - 0x1000L);
  }
  const FakeGpu& Gpu(NvmlDevice device) const { return driver_->gpus.at(IndexOf(device)); }

  Status Enter(NvmlCall call, int index = -1) {
    ++driver_->calls[call];
    if (!driver_->initialized && call != NvmlCall::kInit && call != NvmlCall::kShutdown) {
      return Error(Code::kFailedPrecondition, "{}: NVML is not initialized", NvmlCallName(call));
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

  std::atomic<uint64_t> sample_us_ = 0;  // end of the last sample
  const std::shared_ptr<FakeDriver> driver_;
};

class FakeLoader final : public NvmlLoader {
 public:
  // Null without a driver.
  std::shared_ptr<FakeDriver> driver;
  std::string fingerprint = "first";

  Result<std::shared_ptr<Nvml>> Load() override {
    if (driver == nullptr) return Status(Code::kNotFound, "libnvidia-ml.so.1 is missing");
    return std::shared_ptr<Nvml>(std::make_shared<FakeNvml>(driver));
  }
  std::string Fingerprint() override { return driver == nullptr ? "" : fingerprint; }
};

}  // namespace tessera::gpu::testing
