// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/gpu.h"

#include <fmt/format.h>

#include <array>

namespace tessera::smi {
namespace {

using nvml::Return;

struct NamedValue {
  unsigned value;
  const char* name;
};

template <size_t N>
std::string NameOf(const NvmlAnswer<unsigned>& answer, const std::array<NamedValue, N>& names,
                   const char* other) {
  if (!answer.ok()) return kNotAvailable;
  for (const NamedValue& named : names) {
    if (named.value == answer.value) return named.name;
  }
  return other;
}

constexpr std::array kArchitectures = {
    NamedValue{nvml::kArchKepler, "Kepler"},       NamedValue{nvml::kArchMaxwell, "Maxwell"},
    NamedValue{nvml::kArchPascal, "Pascal"},       NamedValue{nvml::kArchVolta, "Volta"},
    NamedValue{nvml::kArchTuring, "Turing"},       NamedValue{nvml::kArchAmpere, "Ampere"},
    NamedValue{nvml::kArchAda, "Ada Lovelace"},    NamedValue{nvml::kArchHopper, "Hopper"},
    NamedValue{nvml::kArchBlackwell, "Blackwell"}, NamedValue{nvml::kArchRubin, "Rubin"}};
constexpr std::array kBrands = {NamedValue{1, "Quadro"},      NamedValue{2, "Tesla"},
                                NamedValue{5, "GeForce"},     NamedValue{6, "Titan"},
                                NamedValue{12, "Quadro RTX"}, NamedValue{13, "NVIDIA RTX"},
                                NamedValue{14, "NVIDIA"},     NamedValue{15, "GeForce RTX"}};
constexpr std::array kComputeModes = {NamedValue{0, "Default"}, NamedValue{1, "Exclusive_Thread"},
                                      NamedValue{2, "Prohibited"},
                                      NamedValue{3, "Exclusive_Process"}};
constexpr std::array kVirtualizationModes = {NamedValue{0, "None"}, NamedValue{1, "Pass-Through"},
                                             NamedValue{2, "VGPU"}, NamedValue{3, "Host VGPU"},
                                             NamedValue{4, "Host VSGA"}};
constexpr std::array kRecoveryActions = {NamedValue{0, "None"}, NamedValue{1, "Reset"},
                                         NamedValue{2, "Reboot"}, NamedValue{3, "Drain P2P"},
                                         NamedValue{4, "Drain and Reset"}};

constexpr std::array kAddressingModes = {NamedValue{0, "None"}, NamedValue{1, "HMM"},
                                         NamedValue{2, "ATS"}};
constexpr std::array kFabricStates = {NamedValue{nvml::kFabricNotStarted, "Not Started"},
                                      NamedValue{nvml::kFabricInProgress, "In Progress"},
                                      NamedValue{nvml::kFabricCompleted, "Completed"}};

bool InFabric(const NvmlAnswer<nvml::FabricInfoV3>& fabric) {
  return fabric.ok() && fabric.value.state == nvml::kFabricCompleted;
}

constexpr unsigned kMaxClocks = 1024;

using NumberFn = Return (*)(nvml::Device, unsigned*);
using NumberWithArgumentFn = Return (*)(nvml::Device, unsigned, unsigned*);
using Number64Fn = Return (*)(nvml::Device, std::uint64_t*);
using PairFn = Return (*)(nvml::Device, unsigned*, unsigned*);
using TextFn = Return (*)(nvml::Device, char*, unsigned);

std::string ProcessName(const NvmlClient& client, unsigned pid) {
  char name[256] = "";
  const Return result =
      NVML_CALL(client, nvmlSystemGetProcessName, pid, name, static_cast<unsigned>(sizeof(name)));
  if (result == Return::kNotFound) return "[Not Found]";
  if (result == Return::kNoPermission) return "[Insufficient Permissions]";
  return result == Return::kSuccess ? name : "[Unknown Error]";
}

// Appends the processes that the NVML function of this name lists.
void AppendProcesses(const NvmlGpu& gpu, const char* function, const char* type,
                     std::vector<ListedProcess>* processes) {
  std::vector<nvml::ProcessInfo> infos(64);
  Return result = Return::kInsufficientSize;
  while (result == Return::kInsufficientSize && infos.size() < 65536) {
    auto count = static_cast<unsigned>(infos.size());
    result = gpu.client().Call<nvml::fn::nvmlDeviceGetComputeRunningProcesses_v3>(
        function, gpu.handle(), &count, infos.data());
    infos.resize(result == Return::kSuccess ? count : infos.size() * 2);
  }
  if (result != Return::kSuccess) return;
  for (const nvml::ProcessInfo& info : infos) {
    ListedProcess process;
    process.pid = info.pid;
    process.type = type;
    process.name = ProcessName(gpu.client(), info.pid);
    process.memory_mib = info.used_gpu_memory == nvml::kMemoryNotAvailable
                             ? kNotAvailable
                             : std::to_string(info.used_gpu_memory >> 20);
    processes->push_back(std::move(process));
  }
}

}  // namespace

std::string NvmlGpu::Text(const char* function, unsigned size) const {
  std::string buffer(size, '\0');
  if (client_->Call<TextFn>(function, device_, buffer.data(), size) != Return::kSuccess) {
    return kNotAvailable;
  }
  return buffer.c_str();
}

std::string NvmlGpu::Name() const { return Text("nvmlDeviceGetName", nvml::kNameBufferSize); }
std::string NvmlGpu::Uuid() const { return Text("nvmlDeviceGetUUID", nvml::kUuidBufferSize); }
std::string NvmlGpu::Serial() const { return Text("nvmlDeviceGetSerial", nvml::kSerialBufferSize); }
std::string NvmlGpu::Vbios() const { return Text("nvmlDeviceGetVbiosVersion", 32); }
std::string NvmlGpu::PartNumber() const { return Text("nvmlDeviceGetBoardPartNumber", 80); }
std::string NvmlGpu::InforomImage() const { return Text("nvmlDeviceGetInforomImageVersion", 16); }

std::string NvmlGpu::GspFirmware() const {
  char version[80] = "";
  const Return result = NVML_CALL(*client_, nvmlDeviceGetGspFirmwareVersion, device_, version);
  return result == Return::kSuccess ? version : kNotAvailable;
}

std::string NvmlGpu::Inforom(unsigned object) const {
  char version[16] = "";
  const Return result = NVML_CALL(*client_, nvmlDeviceGetInforomVersion, device_, object, version,
                                  static_cast<unsigned>(sizeof(version)));
  return result == Return::kSuccess ? version : kNotAvailable;
}

std::string NvmlGpu::Architecture() const {
  return NameOf(Number("nvmlDeviceGetArchitecture"), kArchitectures, "Unknown");
}
std::string NvmlGpu::Brand() const {
  return NameOf(Number("nvmlDeviceGetBrand"), kBrands, "Unknown");
}

std::string NvmlGpu::ComputeCapability() const {
  int major = 0;
  int minor = 0;
  const Return result =
      NVML_CALL(*client_, nvmlDeviceGetCudaComputeCapability, device_, &major, &minor);
  return result == Return::kSuccess ? fmt::format("{}.{}", major, minor) : kNotAvailable;
}

std::string NvmlGpu::MinorNumber() const { return Show(Number("nvmlDeviceGetMinorNumber")); }
std::string NvmlGpu::ComputeMode() const {
  return NameOf(Number("nvmlDeviceGetComputeMode"), kComputeModes, "Unknown");
}
std::string NvmlGpu::Virtualization() const {
  return NameOf(Number("nvmlDeviceGetVirtualizationMode"), kVirtualizationModes, "Unknown");
}

std::string NvmlGpu::PerformanceState() const {
  const NvmlAnswer<unsigned> state = Number("nvmlDeviceGetPerformanceState");
  return state.ok() && state.value < 16 ? fmt::format("P{}", state.value) : kNotAvailable;
}

std::string NvmlGpu::RecoveryAction() const {
  return NameOf(FieldNumber(nvml::kFieldRecoveryAction), kRecoveryActions, "Unknown");
}

std::string NvmlGpu::AddressingMode() const {
  const auto mode =
      NVML_READ(*client_, Versioned<nvml::AddressingMode>(1), nvmlDeviceGetAddressingMode, device_);
  return NameOf({mode.result, mode.value.value}, kAddressingModes, "Unknown");
}

std::string NvmlGpu::EventReason(std::uint64_t bit) const {
  const auto reasons = Number64("nvmlDeviceGetCurrentClocksEventReasons");
  if (!reasons.ok()) return kNotAvailable;
  return (reasons.value & bit) != 0 ? "Active" : "Not Active";
}

std::string NvmlGpu::FabricState() const {
  const NvmlAnswer<nvml::FabricInfoV3> fabric = Fabric();
  return NameOf({fabric.result, fabric.value.state}, kFabricStates, kNotAvailable);
}

std::string NvmlGpu::FabricStatus() const {
  const NvmlAnswer<nvml::FabricInfoV3> fabric = Fabric();
  return InFabric(fabric) ? client_->ErrorText(fabric.value.status) : kNotAvailable;
}

std::string NvmlGpu::FabricClique() const {
  const NvmlAnswer<nvml::FabricInfoV3> fabric = Fabric();
  return InFabric(fabric) ? std::to_string(fabric.value.clique_id) : kNotAvailable;
}

std::string NvmlGpu::FabricCluster() const {
  const NvmlAnswer<nvml::FabricInfoV3> fabric = Fabric();
  if (!InFabric(fabric)) return kNotAvailable;
  std::string uuid;
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) uuid += '-';
    uuid += fmt::format("{:02x}", fabric.value.cluster_uuid[i]);
  }
  return uuid;
}

NvmlAnswer<nvml::PciInfo> NvmlGpu::Pci() const {
  return NVML_READ(*client_, nvml::PciInfo{}, nvmlDeviceGetPciInfo_v3, device_);
}

std::string NvmlGpu::BusId() const {
  const NvmlAnswer<nvml::PciInfo> pci = Pci();
  return pci.ok() ? pci.value.bus_id : kNotAvailable;
}

NvmlAnswer<nvml::MemoryV2> NvmlGpu::Memory() const {
  const auto answer =
      NVML_READ(*client_, Versioned<nvml::MemoryV2>(2), nvmlDeviceGetMemoryInfo_v2, device_);
  if (answer.result != Return::kFunctionNotFound) return answer;
  // Drivers before 510 count reserved memory as used.
  const auto [result, memory] =
      NVML_READ(*client_, nvml::Memory{}, nvmlDeviceGetMemoryInfo, device_);
  return {result, {.total = memory.total, .free = memory.free, .used = memory.used}};
}

NvmlAnswer<nvml::Bar1Memory> NvmlGpu::Bar1() const {
  return NVML_READ(*client_, nvml::Bar1Memory{}, nvmlDeviceGetBAR1MemoryInfo, device_);
}

NvmlAnswer<nvml::Utilization> NvmlGpu::Utilization() const {
  return NVML_READ(*client_, nvml::Utilization{}, nvmlDeviceGetUtilizationRates, device_);
}

NvmlAnswer<nvml::FabricInfoV3> NvmlGpu::Fabric() const {
  return NVML_READ(*client_, Versioned<nvml::FabricInfoV3>(3), nvmlDeviceGetGpuFabricInfoV,
                   device_);
}

NvmlAnswer<nvml::FbcStats> NvmlGpu::Encoder() const {
  NvmlAnswer<nvml::FbcStats> answer;
  nvml::FbcStats& stats = answer.value;
  answer.result = NVML_CALL(*client_, nvmlDeviceGetEncoderStats, device_, &stats.sessions,
                            &stats.average_fps, &stats.average_latency);
  return answer;
}

NvmlAnswer<nvml::FbcStats> NvmlGpu::FrameCapture() const {
  return NVML_READ(*client_, nvml::FbcStats{}, nvmlDeviceGetFBCStats, device_);
}

NvmlAnswer<unsigned> NvmlGpu::Number(const char* function) const {
  return client_->Read<NumberFn>(0u, function, device_);
}

NvmlAnswer<unsigned> NvmlGpu::Number(const char* function, unsigned argument) const {
  return client_->Read<NumberWithArgumentFn>(0u, function, device_, argument);
}

NvmlAnswer<std::uint64_t> NvmlGpu::Number64(const char* function) const {
  return client_->Read<Number64Fn>(std::uint64_t{}, function, device_);
}

NvmlAnswer<unsigned> NvmlGpu::FirstNumber(const char* function) const {
  NvmlAnswer<unsigned> answer;
  unsigned second = 0;
  answer.result = client_->Call<PairFn>(function, device_, &answer.value, &second);
  return answer;
}

NvmlAnswer<unsigned> NvmlGpu::SecondNumber(const char* function) const {
  NvmlAnswer<unsigned> answer;
  unsigned first = 0;
  answer.result = client_->Call<PairFn>(function, device_, &first, &answer.value);
  return answer;
}

std::vector<ClockPair> NvmlGpu::SupportedClocks() const {
  std::vector<ClockPair> pairs;
  unsigned memory[kMaxClocks];
  unsigned memories = kMaxClocks;
  if (NVML_CALL(*client_, nvmlDeviceGetSupportedMemoryClocks, device_, &memories, memory) !=
      Return::kSuccess) {
    return pairs;
  }
  for (unsigned i = 0; i < memories; ++i) {
    unsigned graphics[kMaxClocks];
    unsigned count = kMaxClocks;
    const Return result = NVML_CALL(*client_, nvmlDeviceGetSupportedGraphicsClocks, device_,
                                    memory[i], &count, graphics);
    for (unsigned j = 0; result == Return::kSuccess && j < count; ++j) {
      pairs.push_back({memory[i], graphics[j]});
    }
  }
  return pairs;
}

NvmlAnswer<unsigned> NvmlGpu::FieldNumber(unsigned id, unsigned scope) const {
  const NvmlAnswer<nvml::FieldValue> field = Field(id, scope);
  return {field.result, field.value.value.ui};
}

NvmlAnswer<nvml::FieldValue> NvmlGpu::Field(unsigned id, unsigned scope) const {
  NvmlAnswer<nvml::FieldValue> answer;
  answer.value.field_id = id;
  answer.value.scope_id = scope;
  answer.result = NVML_CALL(*client_, nvmlDeviceGetFieldValues, device_, 1, &answer.value);
  if (answer.ok()) answer.result = answer.value.result;
  return answer;
}

std::vector<ListedProcess> NvmlGpu::Processes() const {
  std::vector<ListedProcess> processes;
  AppendProcesses(*this, "nvmlDeviceGetGraphicsRunningProcesses_v3", "G", &processes);
  AppendProcesses(*this, "nvmlDeviceGetComputeRunningProcesses_v3", "C", &processes);
  return processes;
}

std::string Show(const NvmlAnswer<unsigned>& answer, const char* unit) {
  return Show(NvmlAnswer<std::uint64_t>{answer.result, answer.value}, unit);
}

std::string Show(const NvmlAnswer<std::uint64_t>& answer, const char* unit) {
  if (!answer.ok()) return kNotAvailable;
  return *unit == '\0' ? std::to_string(answer.value) : fmt::format("{} {}", answer.value, unit);
}

std::string ShowEnabled(const NvmlAnswer<unsigned>& answer) {
  if (!answer.ok()) return kNotAvailable;
  return answer.value != 0 ? "Enabled" : "Disabled";
}

std::string ShowYesNo(const NvmlAnswer<unsigned>& answer) {
  if (!answer.ok()) return kNotAvailable;
  return answer.value != 0 ? "Yes" : "No";
}

std::string ShowWatts(const NvmlAnswer<unsigned>& answer) {
  if (!answer.ok()) return kNotAvailable;
  return fmt::format("{:.2f} W", answer.value / 1000.0);
}

std::string ShowMib(bool known, std::uint64_t bytes) {
  return known ? fmt::format("{} MiB", bytes >> 20) : kNotAvailable;
}

std::string Hex(unsigned value, int digits) { return fmt::format("0x{:0{}X}", value, digits); }

}  // namespace tessera::smi
