// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/nvml_library.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <utility>

#include "api/nvml_abi.h"
#include "src/gpu/nvml_status.h"
#include "src/oci/driver_root.h"

namespace tessera::gpu {
namespace {

// The functions of one loaded library; null if the driver lacks the symbol.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}
  ~Symbols() { ::dlclose(library_); }
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;

 private:
  // An address that converts to any function.
  struct Address {
    void* address;
    template <typename Function>
    operator Function() const {  // NOLINT(google-explicit-constructor): typed by the member
      return reinterpret_cast<Function>(address);
    }
  };
  // Drivers add a suffix to the name when a function's structs change. `older` is the name without
  // it, or an earlier one, with the same signature.
  Address Find(const char* name, const char* older = nullptr) const {
    void* symbol = ::dlsym(library_, name);
    if (symbol == nullptr && older != nullptr) symbol = ::dlsym(library_, older);
    return {symbol};
  }

  void* const library_;  // first, because the members below are found in it

 public:
  const nvml::fn::nvmlInit_v2 init = Find("nvmlInit_v2", "nvmlInit");
  const nvml::fn::nvmlShutdown shutdown = Find("nvmlShutdown");
  const nvml::fn::nvmlSystemGetDriverVersion driver_version = Find("nvmlSystemGetDriverVersion");
  const nvml::fn::nvmlSystemGetCudaDriverVersion_v2 cuda_version =
      Find("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion");
  const nvml::fn::nvmlDeviceGetCount_v2 count = Find("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
  const nvml::fn::nvmlDeviceGetHandleByIndex_v2 handle_by_index =
      Find("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex");
  const nvml::fn::nvmlDeviceGetUUID uuid = Find("nvmlDeviceGetUUID");
  const nvml::fn::nvmlDeviceGetMinorNumber minor = Find("nvmlDeviceGetMinorNumber");
  const nvml::fn::nvmlDeviceGetName name = Find("nvmlDeviceGetName");
  const nvml::fn::nvmlDeviceGetPciInfo_v3 pci_info = Find("nvmlDeviceGetPciInfo_v3");
  const nvml::fn::nvmlDeviceGetMemoryInfo memory_info = Find("nvmlDeviceGetMemoryInfo");
  const nvml::fn::nvmlDeviceGetCudaComputeCapability capability =
      Find("nvmlDeviceGetCudaComputeCapability");
  const nvml::fn::nvmlDeviceGetFieldValues field_values = Find("nvmlDeviceGetFieldValues");
  const nvml::fn::nvmlDeviceGetTopologyCommonAncestor common_ancestor =
      Find("nvmlDeviceGetTopologyCommonAncestor");
  const nvml::fn::nvmlDeviceGetNvLinkState link_state = Find("nvmlDeviceGetNvLinkState");
  const nvml::fn::nvmlDeviceGetNvLinkRemoteDeviceType link_remote_type =
      Find("nvmlDeviceGetNvLinkRemoteDeviceType");
  const nvml::fn::nvmlDeviceGetNvLinkRemotePciInfo_v2 link_remote_pci =
      Find("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  const nvml::fn::nvmlEventSetCreate event_set_create = Find("nvmlEventSetCreate");
  const nvml::fn::nvmlEventSetFree event_set_free = Find("nvmlEventSetFree");
  const nvml::fn::nvmlDeviceGetSupportedEventTypes supported_events =
      Find("nvmlDeviceGetSupportedEventTypes");
  const nvml::fn::nvmlDeviceRegisterEvents register_events = Find("nvmlDeviceRegisterEvents");
  const nvml::fn::nvmlEventSetWait_v2 event_set_wait = Find("nvmlEventSetWait_v2");
  const nvml::fn::nvmlDeviceGetComputeRunningProcesses_v3 processes =
      Find("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2");
  const nvml::fn::nvmlDeviceGetProcessUtilization process_utilization =
      Find("nvmlDeviceGetProcessUtilization");
  const nvml::fn::nvmlDeviceGetMigMode mig_mode = Find("nvmlDeviceGetMigMode");
  const nvml::fn::nvmlDeviceGetGpuFabricInfo fabric_info = Find("nvmlDeviceGetGpuFabricInfo");
  const nvml::fn::nvmlDeviceGetClockInfo clock_info = Find("nvmlDeviceGetClockInfo");
  const nvml::fn::nvmlDeviceGetTemperature temperature = Find("nvmlDeviceGetTemperature");
  const nvml::fn::nvmlDeviceGetPowerUsage power_usage = Find("nvmlDeviceGetPowerUsage");
  const nvml::fn::nvmlDeviceGetUtilizationRates utilization = Find("nvmlDeviceGetUtilizationRates");
  const nvml::fn::nvmlDeviceGetEncoderUtilization encoder_utilization =
      Find("nvmlDeviceGetEncoderUtilization");
  const nvml::fn::nvmlDeviceGetDecoderUtilization decoder_utilization =
      Find("nvmlDeviceGetDecoderUtilization");
  const nvml::fn::nvmlDeviceGetMemoryInfo_v2 memory_info_v2 = Find("nvmlDeviceGetMemoryInfo_v2");
  const nvml::fn::nvmlDeviceGetPcieReplayCounter pcie_replays =
      Find("nvmlDeviceGetPcieReplayCounter");
  const nvml::fn::nvmlGpmQueryDeviceSupport gpm_support = Find("nvmlGpmQueryDeviceSupport");
  const nvml::fn::nvmlGpmSampleAlloc gpm_sample_alloc = Find("nvmlGpmSampleAlloc");
  const nvml::fn::nvmlGpmSampleFree gpm_sample_free = Find("nvmlGpmSampleFree");
  const nvml::fn::nvmlGpmSampleGet gpm_sample_get = Find("nvmlGpmSampleGet");
  const nvml::fn::nvmlGpmMetricsGet gpm_metrics = Find("nvmlGpmMetricsGet");
  const nvml::fn::nvmlDeviceGetSerial serial = Find("nvmlDeviceGetSerial");
  const nvml::fn::nvmlDeviceGetVbiosVersion vbios_version = Find("nvmlDeviceGetVbiosVersion");
  const nvml::fn::nvmlSystemGetNVMLVersion nvml_version = Find("nvmlSystemGetNVMLVersion");
};

template <typename Function, typename... Args>
Status Call(NvmlCall call, Function function, Args... args) {
  if (function == nullptr) {
    return NvmlStatus(call, static_cast<int>(nvml::Return::kFunctionNotFound));
  }
  return NvmlStatus(call, static_cast<int>(function(args...)));
}

nvml::Device Handle(NvmlDevice device) { return static_cast<nvml::Device>(device); }
nvml::EventSet Handle(NvmlEventSet set, int) { return static_cast<nvml::EventSet>(set); }

// "0000:07:00.0" as in sysfs. NVML's own text has a domain of eight digits, and sysfs has four
// unless the domain needs more. NVML reports no function number: a GPU is function 0 of its device.
std::string SysfsBusId(const nvml::PciInfo& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
}

device::PcieLevel LevelOf(unsigned level) {
  switch (level) {
    case nvml::kTopologyInternal:
      return device::PcieLevel::kSameBoard;
    case nvml::kTopologySingle:
      return device::PcieLevel::kSingleSwitch;
    case nvml::kTopologyMultiple:
      return device::PcieLevel::kMultiSwitch;
    case nvml::kTopologyHostBridge:
      return device::PcieLevel::kHostBridge;
    case nvml::kTopologyNode:
      return device::PcieLevel::kNode;
    case nvml::kTopologySystem:
      return device::PcieLevel::kSystem;
    default:
      return device::PcieLevel::kUnknown;
  }
}

class LibraryGpmSample final : public GpmSample {
 public:
  LibraryGpmSample(nvml::GpmSample sample, nvml::fn::nvmlGpmSampleFree free)
      : sample_(sample), free_(free) {}
  ~LibraryGpmSample() override { (void)free_(sample_); }
  nvml::GpmSample get() const { return sample_; }

 private:
  const nvml::GpmSample sample_;
  const nvml::fn::nvmlGpmSampleFree free_;
};

class NvmlLibrary final : public Nvml {
 public:
  explicit NvmlLibrary(void* handle) : symbols_(handle) {}

  Status Init() override { return Call(NvmlCall::kInit, symbols_.init); }
  Status Shutdown() override { return Call(NvmlCall::kShutdown, symbols_.shutdown); }

  Result<std::string> DriverVersion() override {
    std::array<char, nvml::kVersionBufferSize> text{};
    RETURN_IF_ERROR(Call(NvmlCall::kDriverVersion, symbols_.driver_version, text.data(),
                         static_cast<unsigned>(text.size())));
    return std::string(text.data());
  }
  Result<int> CudaVersion() override {
    int version = 0;
    RETURN_IF_ERROR(Call(NvmlCall::kCudaVersion, symbols_.cuda_version, &version));
    return version;
  }
  Result<int> DeviceCount() override {
    unsigned count = 0;
    RETURN_IF_ERROR(Call(NvmlCall::kDeviceCount, symbols_.count, &count));
    return static_cast<int>(count);
  }
  Result<NvmlDevice> HandleByIndex(int index) override {
    nvml::Device device = nullptr;
    RETURN_IF_ERROR(Call(NvmlCall::kHandleByIndex, symbols_.handle_by_index,
                         static_cast<unsigned>(index), &device));
    return static_cast<NvmlDevice>(device);
  }

  Result<std::string> Uuid(NvmlDevice device) override {
    return Text<nvml::kUuidBufferSize>(NvmlCall::kUuid, symbols_.uuid, device);
  }
  Result<std::string> Name(NvmlDevice device) override {
    return Text<nvml::kNameBufferSize>(NvmlCall::kName, symbols_.name, device);
  }
  Result<int> MinorNumber(NvmlDevice device) override {
    unsigned minor = 0;
    RETURN_IF_ERROR(Call(NvmlCall::kMinorNumber, symbols_.minor, Handle(device), &minor));
    return static_cast<int>(minor);
  }
  Result<std::string> PciBusId(NvmlDevice device) override {
    nvml::PciInfo pci{};
    RETURN_IF_ERROR(Call(NvmlCall::kPciInfo, symbols_.pci_info, Handle(device), &pci));
    return SysfsBusId(pci);
  }
  Result<Bytes> TotalMemory(NvmlDevice device) override {
    nvml::Memory memory{};
    RETURN_IF_ERROR(Call(NvmlCall::kMemoryInfo, symbols_.memory_info, Handle(device), &memory));
    return Bytes(static_cast<int64_t>(memory.total));
  }
  Result<device::ComputeCapability> Capability(NvmlDevice device) override {
    device::ComputeCapability capability;
    RETURN_IF_ERROR(Call(NvmlCall::kComputeCapability, symbols_.capability, Handle(device),
                         &capability.major, &capability.minor));
    return capability;
  }
  Result<RecoveryAction> Recovery(NvmlDevice device) override;
  Result<bool> MigEnabled(NvmlDevice device) override {
    unsigned current = 0;
    unsigned pending = 0;
    RETURN_IF_ERROR(
        Call(NvmlCall::kMigMode, symbols_.mig_mode, Handle(device), &current, &pending));
    return current == nvml::kFeatureEnabled;
  }
  Result<std::optional<device::FabricClique>> Fabric(NvmlDevice device) override;

  Result<device::PcieLevel> CommonAncestor(NvmlDevice a, NvmlDevice b) override {
    unsigned level = ~0u;
    RETURN_IF_ERROR(
        Call(NvmlCall::kCommonAncestor, symbols_.common_ancestor, Handle(a), Handle(b), &level));
    return LevelOf(level);
  }
  Result<bool> NvLinkActive(NvmlDevice device, int link) override {
    unsigned active = 0;
    RETURN_IF_ERROR(Call(NvmlCall::kNvLinkState, symbols_.link_state, Handle(device),
                         static_cast<unsigned>(link), &active));
    return active == nvml::kFeatureEnabled;
  }
  Result<NvLinkPeer> NvLinkRemoteType(NvmlDevice device, int link) override {
    unsigned type = nvml::kNvLinkUnknown;
    RETURN_IF_ERROR(Call(NvmlCall::kNvLinkRemoteType, symbols_.link_remote_type, Handle(device),
                         static_cast<unsigned>(link), &type));
    if (type == nvml::kNvLinkSwitch) return NvLinkPeer::kSwitch;
    return type == nvml::kNvLinkGpu ? NvLinkPeer::kGpu : NvLinkPeer::kOther;
  }
  Result<std::string> NvLinkRemoteBusId(NvmlDevice device, int link) override {
    nvml::PciInfo pci{};
    RETURN_IF_ERROR(Call(NvmlCall::kNvLinkRemotePciInfo, symbols_.link_remote_pci, Handle(device),
                         static_cast<unsigned>(link), &pci));
    return SysfsBusId(pci);
  }

  Result<NvmlEventSet> EventSetCreate() override {
    nvml::EventSet set = nullptr;
    RETURN_IF_ERROR(Call(NvmlCall::kEventSetCreate, symbols_.event_set_create, &set));
    return static_cast<NvmlEventSet>(set);
  }
  Status EventSetFree(NvmlEventSet set) override {
    return Call(NvmlCall::kEventSetFree, symbols_.event_set_free, Handle(set, 0));
  }
  Status RegisterXidEvents(NvmlDevice device, NvmlEventSet set) override;
  Result<std::vector<GpuProcess>> ComputeProcesses(NvmlDevice device) override;
  Result<std::vector<ProcessLoad>> ProcessLoads(NvmlDevice device, WallTime since) override;
  Result<XidEvent> WaitForXid(NvmlEventSet set, Duration timeout) override;

  Result<int> ClockMhz(NvmlDevice device, ClockDomain domain) override {
    unsigned mhz = 0;
    RETURN_IF_ERROR(Call(NvmlCall::kClockInfo, symbols_.clock_info, Handle(device),
                         domain == ClockDomain::kSm ? nvml::kClockSm : nvml::kClockMem, &mhz));
    return static_cast<int>(mhz);
  }
  Result<int> TemperatureCelsius(NvmlDevice device) override {
    constexpr unsigned kGpuSensor = 0;  // the only sensor that this call knows
    unsigned celsius = 0;
    RETURN_IF_ERROR(
        Call(NvmlCall::kTemperature, symbols_.temperature, Handle(device), kGpuSensor, &celsius));
    return static_cast<int>(celsius);
  }
  Result<int> PowerMilliwatts(NvmlDevice device) override {
    unsigned milliwatts = 0;
    RETURN_IF_ERROR(Call(NvmlCall::kPowerUsage, symbols_.power_usage, Handle(device), &milliwatts));
    return static_cast<int>(milliwatts);
  }
  Result<UtilizationRates> Utilization(NvmlDevice device) override {
    nvml::Utilization rates{};
    RETURN_IF_ERROR(Call(NvmlCall::kUtilization, symbols_.utilization, Handle(device), &rates));
    return UtilizationRates{static_cast<int>(rates.gpu), static_cast<int>(rates.memory)};
  }
  Result<int> EncoderPercent(NvmlDevice device) override {
    return CodecPercent(NvmlCall::kEncoderUtilization, symbols_.encoder_utilization, device);
  }
  Result<int> DecoderPercent(NvmlDevice device) override {
    return CodecPercent(NvmlCall::kDecoderUtilization, symbols_.decoder_utilization, device);
  }
  Result<MemoryUse> Memory(NvmlDevice device) override;
  Result<int64_t> PcieReplays(NvmlDevice device) override {
    unsigned count = 0;
    RETURN_IF_ERROR(Call(NvmlCall::kPcieReplays, symbols_.pcie_replays, Handle(device), &count));
    return int64_t{count};
  }
  Result<std::vector<std::optional<double>>> FieldValues(
      NvmlDevice device, std::span<const FieldQuery> queries) override;
  Result<std::unique_ptr<GpmSample>> TakeGpmSample(NvmlDevice device) override;
  Result<std::vector<std::optional<double>>> GpmMetrics(const GpmSample& earlier,
                                                        const GpmSample& later,
                                                        std::span<const unsigned> metrics) override;
  Result<std::string> Serial(NvmlDevice device) override {
    return Text<nvml::kSerialBufferSize>(NvmlCall::kSerial, symbols_.serial, device);
  }
  Result<std::string> VbiosVersion(NvmlDevice device) override {
    return Text<nvml::kVersionBufferSize>(NvmlCall::kVbiosVersion, symbols_.vbios_version, device);
  }
  Result<std::string> NvmlVersion() override {
    std::array<char, nvml::kVersionBufferSize> text{};
    RETURN_IF_ERROR(Call(NvmlCall::kNvmlVersion, symbols_.nvml_version, text.data(),
                         static_cast<unsigned>(text.size())));
    return std::string(text.data());
  }

 private:
  template <typename Function>
  Result<int> CodecPercent(NvmlCall call, Function function, NvmlDevice device) {
    unsigned percent = 0;
    unsigned period_us = 0;
    RETURN_IF_ERROR(Call(call, function, Handle(device), &percent, &period_us));
    return static_cast<int>(percent);
  }
  template <unsigned kSize, typename Function>
  Result<std::string> Text(NvmlCall call, Function function, NvmlDevice device) {
    std::array<char, kSize> text{};
    RETURN_IF_ERROR(Call(call, function, Handle(device), text.data(), kSize));
    return std::string(text.data());
  }

  Symbols symbols_;
};

Result<RecoveryAction> NvmlLibrary::Recovery(NvmlDevice device) {
  nvml::FieldValue field{.field_id = nvml::kFieldRecoveryAction};
  RETURN_IF_ERROR(
      Call(NvmlCall::kRecoveryAction, symbols_.field_values, Handle(device), 1, &field));
  RETURN_IF_ERROR(NvmlStatus(NvmlCall::kRecoveryAction, static_cast<int>(field.result)));
  // A value of a newer driver.
  if (field.value.ui > nvml::kRecoveryDrainAndReset) return RecoveryAction::kResetGpu;
  return static_cast<RecoveryAction>(field.value.ui);
}

Result<std::optional<device::FabricClique>> NvmlLibrary::Fabric(NvmlDevice device) {
  nvml::FabricInfo info{};
  RETURN_IF_ERROR(Call(NvmlCall::kFabricInfo, symbols_.fabric_info, Handle(device), &info));
  const auto& uuid = info.cluster_uuid;
  const bool has_cluster =
      std::any_of(std::begin(uuid), std::end(uuid), [](unsigned char byte) { return byte != 0; });
  if (info.state == nvml::kFabricNotSupported) {
    return NvmlStatus(NvmlCall::kFabricInfo, static_cast<int>(nvml::Return::kNotSupported));
  }
  // A completed registration without a cluster belongs to a single node.
  if (info.state != nvml::kFabricCompleted || !has_cluster) {
    return std::optional<device::FabricClique>();
  }
  RETURN_IF_ERROR(NvmlStatus(NvmlCall::kFabricInfo, static_cast<int>(info.status)));
  std::string text;
  for (size_t i = 0; i < std::size(uuid); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", uuid[i]);
  }
  return std::optional(device::FabricClique{text, info.clique_id});
}

Status NvmlLibrary::RegisterXidEvents(NvmlDevice device, NvmlEventSet set) {
  std::uint64_t supported = 0;
  RETURN_IF_ERROR(
      Call(NvmlCall::kSupportedEvents, symbols_.supported_events, Handle(device), &supported));
  if ((supported & nvml::kEventXid) == 0) {
    return NvmlStatus(NvmlCall::kRegisterEvents, static_cast<int>(nvml::Return::kNotSupported));
  }
  return Call(NvmlCall::kRegisterEvents, symbols_.register_events, Handle(device),
              static_cast<std::uint64_t>(nvml::kEventXid), Handle(set, 0));
}

// Calls `read(entries, &count, &result)` with growing arrays until the answer fits: new processes
// may start between a call for their number and a call for the entries.
template <typename Entry, typename Read>
Result<std::vector<Entry>> Grow(const Read& read) {
  constexpr unsigned kMost = 1 << 16;
  nvml::Return result = nvml::Return::kInsufficientSize;
  Status status;
  for (unsigned room = 64; room <= kMost; room *= 4) {
    std::vector<Entry> entries(room);
    unsigned count = room;
    status = read(entries.data(), &count, &result);
    if (result == nvml::Return::kInsufficientSize) continue;
    if (!status.ok()) return status;
    entries.resize(std::min(count, room));
    return entries;
  }
  return status;
}

Result<std::vector<GpuProcess>> NvmlLibrary::ComputeProcesses(NvmlDevice device) {
  constexpr NvmlCall kCall = NvmlCall::kComputeProcesses;
  const auto function = symbols_.processes;
  if (function == nullptr) return Call(kCall, function, Handle(device), nullptr, nullptr);
  const auto read = [&](nvml::ProcessInfo* entries, unsigned* count, nvml::Return* result) {
    *result = static_cast<nvml::Return>(function(Handle(device), count, entries));
    return NvmlStatus(kCall, static_cast<int>(*result));
  };
  ASSIGN_OR_RETURN(const std::vector<nvml::ProcessInfo> entries, Grow<nvml::ProcessInfo>(read));
  std::vector<GpuProcess> processes;
  for (const nvml::ProcessInfo& entry : entries) {
    // The driver does not account the memory of every process, as on a GPU in WDDM mode.
    const bool known = entry.used_gpu_memory != nvml::kMemoryNotAvailable;
    processes.push_back({.pid = static_cast<int>(entry.pid),
                         .memory = Bytes(known ? static_cast<int64_t>(entry.used_gpu_memory) : 0)});
  }
  return processes;
}

Result<std::vector<ProcessLoad>> NvmlLibrary::ProcessLoads(NvmlDevice device, WallTime since) {
  constexpr NvmlCall kCall = NvmlCall::kProcessUtilization;
  const auto function = symbols_.process_utilization;
  if (function == nullptr) {
    return Call(kCall, function, Handle(device), nullptr, nullptr, std::uint64_t{0});
  }
  const auto micros =
      std::chrono::duration_cast<std::chrono::microseconds>(since.time_since_epoch()).count();
  const auto read = [&](nvml::ProcessUtilizationSample* entries, unsigned* count,
                        nvml::Return* result) {
    *result = static_cast<nvml::Return>(
        function(Handle(device), entries, count, static_cast<std::uint64_t>(micros)));
    return NvmlStatus(kCall, static_cast<int>(*result));
  };
  auto samples = Grow<nvml::ProcessUtilizationSample>(read);
  // NVML_ERROR_NOT_FOUND: no sample is newer than `since`, so no process was active.
  if (samples.status().code() == Code::kNotFound) return std::vector<ProcessLoad>();
  if (!samples.ok()) return samples.status();
  std::ranges::sort(*samples, {}, &nvml::ProcessUtilizationSample::timestamp);
  std::map<unsigned, unsigned> last;
  for (const nvml::ProcessUtilizationSample& sample : *samples) last[sample.pid] = sample.sm;
  std::vector<ProcessLoad> loads;
  for (const auto& [pid, percent] : last) {
    // Old drivers leave entries without a process, and invalid percentages.
    if (pid == 0 || percent > 100) continue;
    loads.push_back({.pid = static_cast<int>(pid), .percent = static_cast<int>(percent)});
  }
  return loads;
}

Result<XidEvent> NvmlLibrary::WaitForXid(NvmlEventSet set, Duration timeout) {
  const auto millis = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  nvml::EventData data{};
  RETURN_IF_ERROR(Call(NvmlCall::kEventSetWait, symbols_.event_set_wait, Handle(set, 0), &data,
                       static_cast<unsigned>(millis)));
  if (data.event_type != nvml::kEventXid) {
    return NvmlStatus(NvmlCall::kEventSetWait, static_cast<int>(nvml::Return::kTimeout));
  }
  return XidEvent{.device = data.device, .xid = data.event_data};
}

Result<MemoryUse> NvmlLibrary::Memory(NvmlDevice device) {
  const auto bytes = [](std::uint64_t count) { return Bytes(static_cast<int64_t>(count)); };
  nvml::MemoryV2 memory{.version = nvml::VersionOf<nvml::MemoryV2>(2)};
  const Status status =
      Call(NvmlCall::kMemoryInfoV2, symbols_.memory_info_v2, Handle(device), &memory);
  if (status.ok()) {
    return MemoryUse{bytes(memory.total), bytes(memory.free), bytes(memory.used),
                     bytes(memory.reserved)};
  }
  if (status.code() != Code::kUnimplemented) return status;
  // Drivers before 510 lack the newer call, and their `used` includes what the driver reserves.
  nvml::Memory older{};
  RETURN_IF_ERROR(Call(NvmlCall::kMemoryInfo, symbols_.memory_info, Handle(device), &older));
  return MemoryUse{bytes(older.total), bytes(older.free), bytes(older.used), std::nullopt};
}

double NumberOf(const nvml::FieldValue& field) {
  // Driver 545 reports a wrong type for this field.
  if (field.field_id == nvml::kFieldMemoryTemp) return field.value.ui;
  switch (field.value_type) {
    case nvml::kValueDouble:
      return field.value.d;
    case nvml::kValueUnsignedInt:
      return field.value.ui;
    case nvml::kValueUnsignedLong:
      return static_cast<double>(field.value.ul);
    case nvml::kValueUnsignedLongLong:
      return static_cast<double>(field.value.ull);
    case nvml::kValueSignedLongLong:
      return static_cast<double>(field.value.sll);
    case nvml::kValueSignedInt:
      return field.value.si;
    case nvml::kValueUnsignedShort:
      return field.value.us;
    default:
      return NAN;
  }
}

Result<std::vector<std::optional<double>>> NvmlLibrary::FieldValues(
    NvmlDevice device, std::span<const FieldQuery> queries) {
  std::vector<nvml::FieldValue> fields(queries.size());
  for (size_t i = 0; i < queries.size(); ++i) {
    fields[i].field_id = queries[i].field;
    fields[i].scope_id = queries[i].scope;
  }
  RETURN_IF_ERROR(Call(NvmlCall::kFieldValues, symbols_.field_values, Handle(device),
                       static_cast<int>(fields.size()), fields.data()));
  std::vector<std::optional<double>> values(queries.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    // The call succeeds if any field does; each field has a result. A lost GPU fails all of them.
    const Status status = NvmlStatus(NvmlCall::kFieldValues, static_cast<int>(fields[i].result));
    if (status.code() == Code::kDataLoss) return status;
    const double number = NumberOf(fields[i]);
    if (status.ok() && !std::isnan(number)) values[i] = number;
  }
  return values;
}

Result<std::unique_ptr<GpmSample>> NvmlLibrary::TakeGpmSample(NvmlDevice device) {
  nvml::GpmSupport support{.version = 1};
  RETURN_IF_ERROR(Call(NvmlCall::kGpmSupport, symbols_.gpm_support, Handle(device), &support));
  const bool complete = symbols_.gpm_sample_free != nullptr && symbols_.gpm_sample_get != nullptr;
  if (support.is_supported == 0 || !complete) {
    return NvmlStatus(NvmlCall::kGpmSupport, static_cast<int>(nvml::Return::kNotSupported));
  }
  nvml::GpmSample raw = nullptr;
  RETURN_IF_ERROR(Call(NvmlCall::kGpmSampleGet, symbols_.gpm_sample_alloc, &raw));
  auto sample = std::make_unique<LibraryGpmSample>(raw, symbols_.gpm_sample_free);
  RETURN_IF_ERROR(Call(NvmlCall::kGpmSampleGet, symbols_.gpm_sample_get, Handle(device), raw));
  return std::unique_ptr<GpmSample>(std::move(sample));
}

Result<std::vector<std::optional<double>>> NvmlLibrary::GpmMetrics(
    const GpmSample& earlier, const GpmSample& later, std::span<const unsigned> metrics) {
  // The library's struct has room for all metrics of its version, at most so many.
  constexpr size_t kMostMetrics = 512;
  TESSERA_CHECK(metrics.size() <= kMostMetrics);
  std::vector<std::uint64_t> memory(
      (offsetof(nvml::GpmMetrics, metrics) + kMostMetrics * sizeof(nvml::GpmMetric)) /
      sizeof(std::uint64_t));
  auto* request = reinterpret_cast<nvml::GpmMetrics*>(memory.data());
  nvml::GpmMetric* entries = request->metrics;
  request->version = 1;
  request->count = static_cast<unsigned>(metrics.size());
  request->earlier = static_cast<const LibraryGpmSample&>(earlier).get();
  request->later = static_cast<const LibraryGpmSample&>(later).get();
  for (size_t i = 0; i < metrics.size(); ++i) entries[i].id = metrics[i];
  RETURN_IF_ERROR(Call(NvmlCall::kGpmMetrics, symbols_.gpm_metrics, request));
  std::vector<std::optional<double>> values(metrics.size());
  for (size_t i = 0; i < metrics.size(); ++i) {
    if (entries[i].result == nvml::Return::kSuccess && std::isfinite(entries[i].value)) {
      values[i] = entries[i].value;
    }
  }
  return values;
}

// Identifies a file, so that a replaced file is recognized.
std::string IdentityOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "";
  return fmt::format("{}:{}:{}:{}:{}.{}", path, info.st_dev, info.st_ino, info.st_size,
                     info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

// dlopen returns the library that it has already loaded for a path, even if the file was replaced
// and a hanging call keeps the old library in use. So each load spells the path differently.
std::string Respell(const std::string& path) {
  static std::atomic<int> loads{0};
  std::string spelled;
  for (int i = loads++ % 64; i > 0; --i) spelled += "/.";
  return spelled + path;
}

}  // namespace

NvmlLibraryLoader::NvmlLibraryLoader(std::string driver_root)
    : driver_root_(driver_root.empty() ? "/" : std::move(driver_root)) {}

std::string NvmlLibraryLoader::FindLibrary() const {
  return oci::FindDriverLibrary(driver_root_, "libnvidia-ml").value_or("");
}

std::string NvmlLibraryLoader::Fingerprint() {
  const std::string library = FindLibrary();
  return library.empty() ? "" : IdentityOf(library);
}

Result<std::shared_ptr<Nvml>> NvmlLibraryLoader::Load() {
  ASSIGN_OR_RETURN(const std::string path, oci::FindDriverLibrary(driver_root_, "libnvidia-ml"));
  const std::string target = Respell(path);
  void* handle = ::dlopen(target.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = ::dlerror();
    return Error(
        Code::kNotFound,
        "cannot load NVML: {}: install the NVIDIA driver again, or set --driver-root to the "
        "directory that has its usr/lib",
        reason != nullptr ? reason : "unknown reason");
  }
  return std::shared_ptr<Nvml>(std::make_shared<NvmlLibrary>(handle));
}

}  // namespace tessera::gpu
