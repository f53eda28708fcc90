// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/fields.h"

#include <fmt/format.h>

namespace tessera::smi {
namespace {

std::string MemoryPart(const Gpu& gpu, std::uint64_t nvml::MemoryV2::* member) {
  const Answer<nvml::MemoryV2> memory = gpu.Memory();
  return memory.ok() ? std::to_string((memory.value.*member) >> 20) : kNotAvailable;
}

std::string Watts(const Answer<unsigned>& answer) {
  return answer.ok() ? fmt::format("{:.2f}", answer.value / 1000.0) : kNotAvailable;
}

Answer<unsigned> PowerField(const Gpu& gpu, unsigned id) {
  const Answer<nvml::FieldValue> field = gpu.Field(id);
  return {field.result, field.value.value.ui};
}

Answer<unsigned> UtilizationOf(const Gpu& gpu, unsigned nvml::Utilization::* member) {
  const Answer<nvml::Utilization> utilization = gpu.Utilization();
  return {utilization.result, utilization.value.*member};
}

std::string Limit(const Gpu& gpu, bool max) {
  constexpr const char* kFunction = "nvmlDeviceGetPowerManagementLimitConstraints";
  return Watts(max ? gpu.Second(kFunction) : gpu.First(kFunction));
}

std::string Reason(const Gpu& gpu, std::uint64_t bit) {
  const auto reasons = gpu.Number64("nvmlDeviceGetCurrentClocksEventReasons");
  if (!reasons.ok()) return kNotAvailable;
  return (reasons.value & bit) != 0 ? "Active" : "Not Active";
}

std::string ReasonMask(const Gpu& gpu) {
  const auto reasons = gpu.Number64("nvmlDeviceGetCurrentClocksEventReasons");
  return reasons.ok() ? fmt::format("0x{:016X}", reasons.value) : kNotAvailable;
}

std::string PciPart(const Gpu& gpu, unsigned nvml::PciInfo::* member, int digits) {
  const Answer<nvml::PciInfo> pci = gpu.Pci();
  return pci.ok() ? Hex(pci.value.*member, digits) : kNotAvailable;
}

std::string FabricStateName(const Gpu& gpu) {
  const Answer<nvml::FabricInfoV3> fabric = gpu.Fabric();
  if (!fabric.ok()) return kNotAvailable;
  switch (fabric.value.state) {
    case nvml::kFabricNotStarted: return "Not Started";
    case nvml::kFabricInProgress: return "In Progress";
    case nvml::kFabricCompleted: return "Completed";
    default: return kNotAvailable;
  }
}

// Getters in one expression, of the GPU g or of the node n.
#define OF_GPU(...) \
  []([[maybe_unused]] const Gpu& g, const NodeFacts&) -> std::string { return __VA_ARGS__; }
#define OF_NODE(...) [](const Gpu&, const NodeFacts& n) -> std::string { return __VA_ARGS__; }

void AddIdentity(std::vector<GpuField>* t) {
  t->insert(t->end(), {
    {"timestamp", "", "", "When the query was made.", OF_NODE(n.timestamp)},
    {"driver_version", "", "", "Version of the installed driver.",
     OF_NODE(n.driver_version)},
    {"count", "", "", "Number of GPUs in the system.",
     OF_NODE(std::to_string(n.gpu_count))},
    {"name", "gpu_name", "", "Product name of the GPU.", OF_GPU(g.Name())},
    {"serial", "gpu_serial", "", "Serial number of the board.",
     OF_GPU(g.Serial())},
    {"uuid", "gpu_uuid", "", "Globally unique id of the GPU.", OF_GPU(g.Uuid())},
    {"index", "", "", "Zero based index of the GPU.",
     OF_GPU(std::to_string(g.index()))},
    {"pci.bus_id", "gpu_bus_id", "", "PCI bus id, domain:bus:device.function in hex.",
     OF_GPU(g.BusId())},
    {"pci.domain", "", "", "PCI domain number, in hex.",
     OF_GPU(PciPart(g, &nvml::PciInfo::domain, 4))},
    {"pci.bus", "", "", "PCI bus number, in hex.",
     OF_GPU(PciPart(g, &nvml::PciInfo::bus, 2))},
    {"pci.device", "", "", "PCI device number, in hex.",
     OF_GPU(PciPart(g, &nvml::PciInfo::device, 2))},
    {"pci.device_id", "", "", "PCI vendor and device id, in hex.",
     OF_GPU(PciPart(g, &nvml::PciInfo::pci_device_id, 8))},
    {"pci.sub_device_id", "", "", "PCI subsystem id, in hex.",
     OF_GPU(PciPart(g, &nvml::PciInfo::pci_subsystem_id, 8))},
    {"vbios_version", "", "", "Version of the BIOS of the GPU board.",
     OF_GPU(g.Vbios())},
    {"compute_cap", "", "", "CUDA compute capability.",
     OF_GPU(g.ComputeCapability())},
    {"inforom.img", "inforom.image", "", "Version of the infoROM image.",
     OF_GPU(g.InforomImage())},
    {"gsp.mode.current", "", "", "Whether the GPU system processor is in use.",
     OF_GPU(ShowEnabled(g.First("nvmlDeviceGetGspFirmwareMode")))},
    {"addressing_mode", "", "", "HMM, ATS or none.", OF_GPU(kNotAvailable)},
  });
}

void AddModes(std::vector<GpuField>* t) {
  t->insert(t->end(), {
    {"persistence_mode", "", "", "Whether the driver stays loaded without clients.",
     OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetPersistenceMode")))},
    {"display_mode", "", "", "Whether a display is connected.",
     OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetDisplayMode")))},
    {"display_active", "", "", "Whether a display is initialised.",
     OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetDisplayActive")))},
    {"accounting.mode", "", "", "Whether accounting is on.",
     OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetAccountingMode")))},
    {"accounting.buffer_size", "", "", "Processes that accounting keeps.",
     OF_GPU(Show(g.Number("nvmlDeviceGetAccountingBufferSize")))},
    {"compute_mode", "", "", "Who may make contexts.", OF_GPU(g.ComputeMode())},
    {"mig.mode.current", "", "", "MIG mode in effect.",
     OF_GPU(ShowEnabled(g.First("nvmlDeviceGetMigMode")))},
    {"mig.mode.pending", "", "", "MIG mode after the next reset.",
     OF_GPU(ShowEnabled(g.Second("nvmlDeviceGetMigMode")))},
    {"ecc.mode.current", "", "", "ECC mode in effect.",
     OF_GPU(ShowEnabled(g.First("nvmlDeviceGetEccMode")))},
    {"ecc.mode.pending", "", "", "ECC mode after the next reboot.",
     OF_GPU(ShowEnabled(g.Second("nvmlDeviceGetEccMode")))},
    {"power.management", "", "", "Whether power management is on.",
     OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetPowerManagementMode")))},
    {"fabric.state", "", "", "How far the GPU has registered with its fabric.",
     OF_GPU(FabricStateName(g))},
  });
}

void AddPcie(std::vector<GpuField>* t) {
  t->insert(t->end(), {
    {"pcie.link.gen.current", "pcie.link.gen.gpucurrent", "", "PCIe generation in use.",
     OF_GPU(Show(g.Number("nvmlDeviceGetCurrPcieLinkGeneration")))},
    {"pcie.link.gen.max", "", "", "Highest PCIe generation of GPU and host together.",
     OF_GPU(Show(g.Number("nvmlDeviceGetMaxPcieLinkGeneration")))},
    {"pcie.link.gen.gpumax", "", "", "Highest PCIe generation of the GPU.",
     OF_GPU(Show(g.Number("nvmlDeviceGetGpuMaxPcieLinkGeneration")))},
    {"pcie.link.width.current", "", "", "PCIe lanes in use.",
     OF_GPU(Show(g.Number("nvmlDeviceGetCurrPcieLinkWidth")))},
    {"pcie.link.width.max", "", "", "Most PCIe lanes.",
     OF_GPU(Show(g.Number("nvmlDeviceGetMaxPcieLinkWidth")))},
  });
}

void AddUse(std::vector<GpuField>* t) {
  t->insert(t->end(), {
    {"fan.speed", "", "%", "Fan speed, in percent of its maximum.",
     OF_GPU(Show(g.Number("nvmlDeviceGetFanSpeed")))},
    {"pstate", "", "", "Performance state, P0 (fastest) to P12.",
     OF_GPU(g.PerformanceState())},
    {"clocks_event_reasons.active", "clocks_throttle_reasons.active", "",
     "Bit mask of what holds the clocks down.",
     OF_GPU(ReasonMask(g))},
    {"clocks_event_reasons.gpu_idle", "clocks_throttle_reasons.gpu_idle", "",
     "Nothing runs on the GPU.", OF_GPU(Reason(g, 0x1))},
    {"clocks_event_reasons.sw_power_cap", "clocks_throttle_reasons.sw_power_cap", "",
     "The power limit holds the clocks down.", OF_GPU(Reason(g, 0x4))},
    {"clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown", "",
     "The hardware holds the clocks down.", OF_GPU(Reason(g, 0x8))},
    {"memory.total", "", "MiB", "Total memory.",
     OF_GPU(MemoryPart(g, &nvml::MemoryV2::total))},
    {"memory.reserved", "", "MiB", "Memory that the driver keeps.",
     OF_GPU(MemoryPart(g, &nvml::MemoryV2::reserved))},
    {"memory.used", "", "MiB", "Memory of the running contexts.",
     OF_GPU(MemoryPart(g, &nvml::MemoryV2::used))},
    {"memory.free", "", "MiB", "Free memory.",
     OF_GPU(MemoryPart(g, &nvml::MemoryV2::free))},
    {"utilization.gpu", "", "%", "Share of time in which a kernel ran.",
     OF_GPU(Show(UtilizationOf(g, &nvml::Utilization::gpu)))},
    {"utilization.memory", "", "%", "Share of time in which memory was read or written.",
     OF_GPU(Show(UtilizationOf(g, &nvml::Utilization::memory)))},
    {"utilization.encoder", "", "%", "Use of the encoder.",
     OF_GPU(Show(g.First("nvmlDeviceGetEncoderUtilization")))},
    {"utilization.decoder", "", "%", "Use of the decoder.",
     OF_GPU(Show(g.First("nvmlDeviceGetDecoderUtilization")))},
    {"temperature.gpu", "", "", "Temperature of the core, in degrees Celsius.",
     OF_GPU(Show(g.Number("nvmlDeviceGetTemperature", 0)))},
    {"temperature.memory", "", "", "Temperature of the memory, in degrees Celsius.",
     OF_GPU(Show(PowerField(g, nvml::kFieldMemoryTemp)))},
  });
}

void AddErrors(std::vector<GpuField>* t) {
  t->insert(t->end(), {
    {"ecc.errors.corrected.volatile.total", "", "", "Corrected ECC errors since the boot.",
     OF_GPU(Show(g.EccErrors(0, 0)))},
    {"ecc.errors.corrected.aggregate.total", "", "", "Corrected ECC errors over the life.",
     OF_GPU(Show(g.EccErrors(0, 1)))},
    {"ecc.errors.uncorrected.volatile.total", "", "", "Uncorrected ECC errors since the boot.",
     OF_GPU(Show(g.EccErrors(1, 0)))},
    {"ecc.errors.uncorrected.aggregate.total", "", "", "Uncorrected ECC errors over the life.",
     OF_GPU(Show(g.EccErrors(1, 1)))},
    {"retired_pages.pending", "", "", "Whether pages wait to be retired.",
     OF_GPU(ShowYes(g.Number("nvmlDeviceGetRetiredPagesPendingStatus")))},
    {"gpu_recovery_action", "", "", "What the driver asks the operator to do.",
     OF_GPU(g.RecoveryAction())},
  });
}

void AddPower(std::vector<GpuField>* t) {
  t->insert(t->end(), {
    {"power.draw", "", "W", "Power drawn by the board.",
     OF_GPU(Watts(g.Number("nvmlDeviceGetPowerUsage")))},
    {"power.draw.average", "", "W", "Power drawn over the last second.",
     OF_GPU(Watts(PowerField(g, nvml::kFieldPowerAverage)))},
    {"power.draw.instant", "", "W", "Power drawn now.",
     OF_GPU(Watts(PowerField(g, nvml::kFieldPowerInstant)))},
    {"power.limit", "", "W", "Power limit that was asked for.",
     OF_GPU(Watts(g.Number("nvmlDeviceGetPowerManagementLimit")))},
    {"enforced.power.limit", "", "W", "Power limit in effect.",
     OF_GPU(Watts(g.Number("nvmlDeviceGetEnforcedPowerLimit")))},
    {"power.default_limit", "", "W", "Power limit after a reset.",
     OF_GPU(Watts(g.Number("nvmlDeviceGetPowerManagementDefaultLimit")))},
    {"power.min_limit", "", "W", "Lowest power limit.", OF_GPU(Limit(g, false))},
    {"power.max_limit", "", "W", "Highest power limit.", OF_GPU(Limit(g, true))},
  });
}

void AddClocks(std::vector<GpuField>* t) {
  t->insert(t->end(), {
    {"clocks.current.graphics", "clocks.gr", "MHz", "Graphics clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockGraphics)))},
    {"clocks.current.sm", "clocks.sm", "MHz", "SM clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockSm)))},
    {"clocks.current.memory", "clocks.mem", "MHz", "Memory clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockMem)))},
    {"clocks.current.video", "clocks.video", "MHz", "Video clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockVideo)))},
    {"clocks.applications.graphics", "clocks.applications.gr", "MHz", "Chosen graphics clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetApplicationsClock", nvml::kClockGraphics)))},
    {"clocks.applications.memory", "clocks.applications.mem", "MHz", "Chosen memory clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetApplicationsClock", nvml::kClockMem)))},
    {"clocks.max.graphics", "clocks.max.gr", "MHz", "Highest graphics clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetMaxClockInfo", nvml::kClockGraphics)))},
    {"clocks.max.sm", "", "MHz", "Highest SM clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetMaxClockInfo", nvml::kClockSm)))},
    {"clocks.max.memory", "clocks.max.mem", "MHz", "Highest memory clock.",
     OF_GPU(Show(g.Number("nvmlDeviceGetMaxClockInfo", nvml::kClockMem)))},
  });
}

#undef OF_GPU
#undef OF_NODE

}  // namespace

const std::vector<GpuField>& GpuFields() {
  static const std::vector<GpuField> kFields = [] {
    std::vector<GpuField> table;
    AddIdentity(&table);
    AddModes(&table);
    AddPcie(&table);
    AddUse(&table);
    AddErrors(&table);
    AddPower(&table);
    AddClocks(&table);
    return table;
  }();
  return kFields;
}

const std::vector<AppField>& AppFields() {
  static const std::vector<AppField> kFields = {
      {"timestamp", "", "", "When the query was made.",
       [](const Gpu&, const Process&, const NodeFacts& n) { return n.timestamp; }},
      {"gpu_name", "", "", "Product name of the GPU.",
       [](const Gpu& g, const Process&, const NodeFacts&) { return g.Name(); }},
      {"gpu_bus_id", "", "", "PCI bus id of the GPU.",
       [](const Gpu& g, const Process&, const NodeFacts&) { return g.BusId(); }},
      {"gpu_serial", "", "", "Serial number of the board.",
       [](const Gpu& g, const Process&, const NodeFacts&) { return g.Serial(); }},
      {"gpu_uuid", "", "", "Globally unique id of the GPU.",
       [](const Gpu& g, const Process&, const NodeFacts&) { return g.Uuid(); }},
      {"pid", "", "", "Process id of the compute application.",
       [](const Gpu&, const Process& p, const NodeFacts&) { return std::to_string(p.pid); }},
      {"process_name", "name", "", "Name of the process.",
       [](const Gpu&, const Process& p, const NodeFacts&) { return p.name; }},
      {"used_gpu_memory", "used_memory", "MiB", "Memory that the process uses.",
       [](const Gpu&, const Process& p, const NodeFacts&) { return p.memory_mib; }},
  };
  return kFields;
}

}  // namespace tessera::smi
