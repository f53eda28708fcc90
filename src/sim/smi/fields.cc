// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/fields.h"

#include <fmt/format.h>

namespace tessera::smi {
namespace {

std::string MemoryMib(const NvmlGpu& gpu, std::uint64_t nvml::MemoryV2::*member) {
  const NvmlAnswer<nvml::MemoryV2> memory = gpu.Memory();
  return memory.ok() ? std::to_string((memory.value.*member) >> 20) : kNotAvailable;
}

std::string Watts(const NvmlAnswer<unsigned>& answer) {
  return answer.ok() ? fmt::format("{:.2f}", answer.value / 1000.0) : kNotAvailable;
}

NvmlAnswer<unsigned> UtilizationOf(const NvmlGpu& gpu, unsigned nvml::Utilization::*member) {
  const NvmlAnswer<nvml::Utilization> utilization = gpu.Utilization();
  return {utilization.result, utilization.value.*member};
}

std::string Limit(const NvmlGpu& gpu, bool max) {
  constexpr const char* kFunction = "nvmlDeviceGetPowerManagementLimitConstraints";
  return Watts(max ? gpu.SecondNumber(kFunction) : gpu.FirstNumber(kFunction));
}

std::string ReasonMask(const NvmlGpu& gpu, const char* function) {
  const auto reasons = gpu.Number64(function);
  return reasons.ok() ? fmt::format("0x{:016X}", reasons.value) : kNotAvailable;
}

// A field in nanoseconds as microseconds.
std::string Microseconds(const NvmlGpu& gpu, unsigned field) {
  const NvmlAnswer<nvml::FieldValue> time = gpu.Field(field);
  return time.ok() ? std::to_string(time.value.value.ull / 1000) : kNotAvailable;
}

std::string PciClass(const NvmlGpu& gpu, unsigned nvml::PciInfoExt::*member) {
  const auto pci = NVML_READ(gpu.client(), Versioned<nvml::PciInfoExt>(1), nvmlDeviceGetPciInfoExt,
                             gpu.handle());
  return pci.ok() ? Hex(pci.value.*member, 2) : kNotAvailable;
}

std::string InforomValid(const NvmlGpu& gpu) {
  const nvml::Return result = NVML_CALL(gpu.client(), nvmlDeviceValidateInforom, gpu.handle());
  if (result == nvml::Return::kSuccess) return "valid";
  return result == nvml::Return::kCorruptedInforom ? "invalid" : kNotAvailable;
}

std::string DriverModel(const NvmlAnswer<unsigned>& model) {
  if (!model.ok()) return kNotAvailable;
  return model.value == 0 ? "WDDM" : "TCC";
}

std::string EncoderStat(const NvmlGpu& gpu, unsigned nvml::FbcStats::*member) {
  const NvmlAnswer<nvml::FbcStats> stats = gpu.Encoder();
  return Show(NvmlAnswer<unsigned>{stats.result, stats.value.*member});
}

std::string Margin(const NvmlGpu& gpu) {
  const auto margin = NVML_READ(gpu.client(), Versioned<nvml::MarginTemperature>(1),
                                nvmlDeviceGetMarginTemperature, gpu.handle());
  return margin.ok() ? std::to_string(margin.value.margin) : kNotAvailable;
}

std::string PciHex(const NvmlGpu& gpu, unsigned nvml::PciInfo::*member, int digits) {
  const NvmlAnswer<nvml::PciInfo> pci = gpu.Pci();
  return pci.ok() ? Hex(pci.value.*member, digits) : kNotAvailable;
}

void AddIdentity(std::vector<QueryField>* t) {
  t->insert(
      t->end(),
      {
          {"timestamp", "", "", "When the query was made.", OF_LINE(line.node.timestamp)},
          {"driver_version", "", "", "Version of the installed driver.",
           OF_LINE(line.node.driver_version)},
          {"count", "", "", "Number of GPUs in the system.",
           OF_LINE(std::to_string(line.node.gpu_count))},
          {"name", "gpu_name", "", "Product name of the GPU.", OF_GPU(g.Name())},
          {"serial", "gpu_serial", "", "Serial number of the board.", OF_GPU(g.Serial())},
          {"uuid", "gpu_uuid", "", "Globally unique id of the GPU.", OF_GPU(g.Uuid())},
          {"index", "", "", "Zero based index of the GPU.", OF_GPU(std::to_string(g.index()))},
          {"pci.bus_id", "gpu_bus_id", "", "PCI bus id, domain:bus:device.function in hex.",
           OF_GPU(g.BusId())},
          {"pci.domain", "", "", "PCI domain number, in hex.",
           OF_GPU(PciHex(g, &nvml::PciInfo::domain, 4))},
          {"pci.bus", "", "", "PCI bus number, in hex.", OF_GPU(PciHex(g, &nvml::PciInfo::bus, 2))},
          {"pci.device", "", "", "PCI device number, in hex.",
           OF_GPU(PciHex(g, &nvml::PciInfo::device, 2))},
          {"pci.device_id", "", "", "PCI vendor and device id, in hex.",
           OF_GPU(PciHex(g, &nvml::PciInfo::pci_device_id, 8))},
          {"pci.sub_device_id", "", "", "PCI subsystem id, in hex.",
           OF_GPU(PciHex(g, &nvml::PciInfo::pci_subsystem_id, 8))},
          {"pci.baseClass", "", "", "PCI base class, in hex.",
           OF_GPU(PciClass(g, &nvml::PciInfoExt::base_class))},
          {"pci.subClass", "", "", "PCI sub-class, in hex.",
           OF_GPU(PciClass(g, &nvml::PciInfoExt::sub_class))},
          {"vbios_version", "", "", "Version of the BIOS of the GPU board.", OF_GPU(g.Vbios())},
          {"compute_cap", "", "", "CUDA compute capability.", OF_GPU(g.ComputeCapability())},
          {"inforom.img", "inforom.image", "", "Version of the infoROM image.",
           OF_GPU(g.InforomImage())},
          {"inforom.oem", "", "", "Version of the OEM object of the infoROM.",
           OF_GPU(g.Inforom(0))},
          {"inforom.ecc", "", "", "Version of the ECC object of the infoROM.",
           OF_GPU(g.Inforom(1))},
          {"inforom.pwr", "inforom.power", "", "Version of the power object of the infoROM.",
           OF_GPU(g.Inforom(2))},
          {"inforom.checksum_validation", "", "", "Whether the checksum of the infoROM is valid.",
           OF_GPU(InforomValid(g))},
          {"gsp.mode.current", "", "", "Whether the GPU system processor is in use.",
           OF_GPU(ShowEnabled(g.FirstNumber("nvmlDeviceGetGspFirmwareMode")))},
          {"gsp.mode.default", "", "", "Whether the GPU system processor is used by default.",
           OF_GPU(ShowEnabled(g.SecondNumber("nvmlDeviceGetGspFirmwareMode")))},
          {"addressing_mode", "", "", "HMM, ATS or none.", OF_GPU(g.AddressingMode())},
          {"platform.module_id", "", "", "Number of the GPU on its board.",
           OF_GPU(Show(g.Number("nvmlDeviceGetModuleId")))},
          {"hostname", "", "", "Host name of the GPU.", OF_GPU(kNotAvailable)},
      });
}

void AddModes(std::vector<QueryField>* t) {
  t->insert(
      t->end(),
      {
          {"persistence_mode", "", "", "Whether the driver stays loaded without clients.",
           OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetPersistenceMode")))},
          {"display_mode", "", "", "Whether a display is connected.",
           OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetDisplayMode")))},
          {"display_attached", "", "", "Whether a display is connected.",
           OF_GPU(ShowYesNo(g.Number("nvmlDeviceGetDisplayMode")))},
          {"display_active", "", "", "Whether a display is initialized.",
           OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetDisplayActive")))},
          {"accounting.mode", "", "", "Whether accounting is on.",
           OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetAccountingMode")))},
          {"accounting.buffer_size", "", "", "Number of processes that accounting remembers.",
           OF_GPU(Show(g.Number("nvmlDeviceGetAccountingBufferSize")))},
          {"driver_model.current", "", "", "Driver model in effect; only Windows has one.",
           OF_GPU(DriverModel(g.FirstNumber("nvmlDeviceGetDriverModel_v2")))},
          {"driver_model.pending", "", "",
           "Driver model after the next reboot; only Windows has one.",
           OF_GPU(DriverModel(g.SecondNumber("nvmlDeviceGetDriverModel_v2")))},
          {"gom.current", "gpu_operation_mode.current", "", "GPU operation mode in effect.",
           OF_GPU(kNotAvailable)},
          {"gom.pending", "gpu_operation_mode.pending", "",
           "GPU operation mode after the next reboot.", OF_GPU(kNotAvailable)},
          {"dramEncryption.mode.current", "", "", "Whether memory is encrypted.",
           OF_GPU(kNotAvailable)},
          {"dramEncryption.mode.pending", "", "", "Whether memory will be encrypted.",
           OF_GPU(kNotAvailable)},
          {"compute_mode", "", "", "Which processes may create contexts.", OF_GPU(g.ComputeMode())},
          {"mig.mode.current", "", "", "MIG mode in effect.",
           OF_GPU(ShowEnabled(g.FirstNumber("nvmlDeviceGetMigMode")))},
          {"mig.mode.pending", "", "", "MIG mode after the next reset.",
           OF_GPU(ShowEnabled(g.SecondNumber("nvmlDeviceGetMigMode")))},
          {"ecc.mode.current", "", "", "ECC mode in effect.",
           OF_GPU(ShowEnabled(g.FirstNumber("nvmlDeviceGetEccMode")))},
          {"ecc.mode.pending", "", "", "ECC mode after the next reboot.",
           OF_GPU(ShowEnabled(g.SecondNumber("nvmlDeviceGetEccMode")))},
          {"power.management", "", "", "Whether power management is on.",
           OF_GPU(ShowEnabled(g.Number("nvmlDeviceGetPowerManagementMode")))},
          {"c2c.mode", "", "", "Whether chip-to-chip links are in use.", OF_GPU(kNotAvailable)},
          {"fabric.state", "", "", "How far the GPU has registered with its fabric.",
           OF_GPU(g.FabricState())},
          {"fabric.status", "", "", "How the registration ended.", OF_GPU(g.FabricStatus())},
          {"fabric.cliqueId", "", "", "Clique of the GPU in its fabric.", OF_GPU(g.FabricClique())},
          {"fabric.clusterUuid", "", "", "Cluster of the fabric.", OF_GPU(g.FabricCluster())},
      });
}

void AddPcie(std::vector<QueryField>* t) {
  t->insert(t->end(),
            {
                {"pcie.link.gen.current", "pcie.link.gen.gpucurrent", "", "PCIe generation in use.",
                 OF_GPU(Show(g.Number("nvmlDeviceGetCurrPcieLinkGeneration")))},
                {"pcie.link.gen.max", "", "", "Highest PCIe generation of GPU and host together.",
                 OF_GPU(Show(g.Number("nvmlDeviceGetMaxPcieLinkGeneration")))},
                {"pcie.link.gen.gpumax", "", "", "Highest PCIe generation of the GPU.",
                 OF_GPU(Show(g.Number("nvmlDeviceGetGpuMaxPcieLinkGeneration")))},
                {"pcie.link.width.current", "", "", "PCIe lanes in use.",
                 OF_GPU(Show(g.Number("nvmlDeviceGetCurrPcieLinkWidth")))},
                {"pcie.link.width.max", "", "", "Highest number of PCIe lanes.",
                 OF_GPU(Show(g.Number("nvmlDeviceGetMaxPcieLinkWidth")))},
            });
}

// Fan, performance state, and reasons for reduced clocks.
void AddClockReasons(std::vector<QueryField>* t) {
  t->insert(
      t->end(),
      {
          {"fan.speed", "", "%", "Fan speed, in percent of its maximum.",
           OF_GPU(Show(g.Number("nvmlDeviceGetFanSpeed")))},
          {"pstate", "", "", "Performance state, P0 (fastest) to P12.",
           OF_GPU(g.PerformanceState())},
          {"clocks_event_reasons.supported", "clocks_throttle_reasons.supported", "",
           "Bit mask of the reasons that can lower the clocks.",
           OF_GPU(ReasonMask(g, "nvmlDeviceGetSupportedClocksEventReasons"))},
          {"clocks_event_reasons.active", "clocks_throttle_reasons.active", "",
           "Bit mask of the reasons that lower the clocks now.",
           OF_GPU(ReasonMask(g, "nvmlDeviceGetCurrentClocksEventReasons"))},
          {"clocks_event_reasons.gpu_idle", "clocks_throttle_reasons.gpu_idle", "",
           "Nothing runs on the GPU.", OF_GPU(g.EventReason(nvml::kReasonGpuIdle))},
          {"clocks_event_reasons.applications_clocks_setting",
           "clocks_throttle_reasons.applications_clocks_setting", "",
           "The application clocks that root has set lower the clocks.",
           OF_GPU(g.EventReason(nvml::kReasonApplicationsClocks))},
          {"clocks_event_reasons.sw_power_cap", "clocks_throttle_reasons.sw_power_cap", "",
           "The power limit lowers the clocks.", OF_GPU(g.EventReason(nvml::kReasonSwPowerCap))},
          {"clocks_event_reasons.hw_slowdown", "clocks_throttle_reasons.hw_slowdown", "",
           "The hardware lowers the clocks.", OF_GPU(g.EventReason(nvml::kReasonHwSlowdown))},
          {"clocks_event_reasons.hw_thermal_slowdown",
           "clocks_throttle_reasons.hw_thermal_slowdown", "",
           "The hardware lowers the clocks, because the GPU is too hot.",
           OF_GPU(g.EventReason(nvml::kReasonHwThermal))},
          {"clocks_event_reasons.hw_power_brake_slowdown",
           "clocks_throttle_reasons.hw_power_brake_slowdown", "",
           "The power supply lowers the clocks.", OF_GPU(g.EventReason(nvml::kReasonHwPowerBrake))},
          {"clocks_event_reasons.sw_thermal_slowdown",
           "clocks_throttle_reasons.sw_thermal_slowdown", "",
           "The driver lowers the clocks, because the GPU is too hot.",
           OF_GPU(g.EventReason(nvml::kReasonSwThermal))},
          {"clocks_event_reasons.sync_boost", "clocks_throttle_reasons.sync_boost", "",
           "Another GPU of the sync boost group lowers the clocks.",
           OF_GPU(g.EventReason(nvml::kReasonSyncBoost))},
          {"clocks_event_reasons_counters.sw_power_cap", "", "us",
           "Time for which the power limit lowered the clocks.", OF_GPU(Microseconds(g, 74))},
          {"clocks_event_reasons_counters.sync_boost", "", "us",
           "Time for which sync boost lowered the clocks.", OF_GPU(Microseconds(g, 76))},
          {"clocks_event_reasons_counters.sw_thermal_slowdown", "", "us",
           "Time for which the driver lowered the clocks, because the GPU was too hot.",
           OF_GPU(Microseconds(g, 251))},
          {"clocks_event_reasons_counters.hw_thermal_slowdown", "", "us",
           "Time for which the hardware lowered the clocks, because the GPU was too hot.",
           OF_GPU(Microseconds(g, 252))},
          {"clocks_event_reasons_counters.hw_power_brake_slowdown", "", "us",
           "Time for which the power supply lowered the clocks.", OF_GPU(Microseconds(g, 253))},
      });
}

void AddUse(std::vector<QueryField>* t) {
  t->insert(
      t->end(),
      {
          {"memory.total", "", "MiB", "Total memory.",
           OF_GPU(MemoryMib(g, &nvml::MemoryV2::total))},
          {"memory.reserved", "", "MiB", "Memory that the driver reserves for itself.",
           OF_GPU(MemoryMib(g, &nvml::MemoryV2::reserved))},
          {"memory.used", "", "MiB", "Memory of the running contexts.",
           OF_GPU(MemoryMib(g, &nvml::MemoryV2::used))},
          {"memory.free", "", "MiB", "Free memory.", OF_GPU(MemoryMib(g, &nvml::MemoryV2::free))},
          {"utilization.gpu", "", "%", "Share of time in which a kernel ran.",
           OF_GPU(Show(UtilizationOf(g, &nvml::Utilization::gpu)))},
          {"utilization.memory", "", "%", "Share of time in which memory was read or written.",
           OF_GPU(Show(UtilizationOf(g, &nvml::Utilization::memory)))},
          {"utilization.encoder", "", "%", "Use of the encoder.",
           OF_GPU(Show(g.FirstNumber("nvmlDeviceGetEncoderUtilization")))},
          {"utilization.decoder", "", "%", "Use of the decoder.",
           OF_GPU(Show(g.FirstNumber("nvmlDeviceGetDecoderUtilization")))},
          {"utilization.jpeg", "", "%", "Use of the JPEG engine.",
           OF_GPU(Show(g.FirstNumber("nvmlDeviceGetJpgUtilization")))},
          {"utilization.ofa", "", "%", "Use of the optical flow engine.",
           OF_GPU(Show(g.FirstNumber("nvmlDeviceGetOfaUtilization")))},
          {"encoder.stats.sessionCount", "", "", "Encoder sessions.",
           OF_GPU(EncoderStat(g, &nvml::FbcStats::sessions))},
          {"encoder.stats.averageFps", "", "", "Encoded frames per second.",
           OF_GPU(EncoderStat(g, &nvml::FbcStats::average_fps))},
          {"encoder.stats.averageLatency", "", "", "Time to encode a frame, in microseconds.",
           OF_GPU(EncoderStat(g, &nvml::FbcStats::average_latency))},
          {"temperature.gpu", "", "", "Temperature of the core, in degrees Celsius.",
           OF_GPU(Show(g.Number("nvmlDeviceGetTemperature", 0)))},
          {"temperature.gpu.tlimit", "", "", "Degrees Celsius below the limit.", OF_GPU(Margin(g))},
          {"temperature.memory", "", "", "Temperature of the memory, in degrees Celsius.",
           OF_GPU(Show(g.FieldNumber(nvml::kFieldMemoryTemp)))},
      });
}

void AddPower(std::vector<QueryField>* t) {
  t->insert(
      t->end(),
      {
          {"power.draw", "", "W", "Power drawn by the board.",
           OF_GPU(Watts(g.Number("nvmlDeviceGetPowerUsage")))},
          {"power.draw.average", "", "W", "Power drawn over the last second.",
           OF_GPU(Watts(g.FieldNumber(nvml::kFieldPowerAverage)))},
          {"power.draw.instant", "", "W", "Power drawn now.",
           OF_GPU(Watts(g.FieldNumber(nvml::kFieldPowerInstant)))},
          {"power.limit", "", "W", "Requested power limit.",
           OF_GPU(Watts(g.Number("nvmlDeviceGetPowerManagementLimit")))},
          {"enforced.power.limit", "", "W", "Power limit in effect.",
           OF_GPU(Watts(g.Number("nvmlDeviceGetEnforcedPowerLimit")))},
          {"power.default_limit", "", "W", "Power limit after a reset.",
           OF_GPU(Watts(g.Number("nvmlDeviceGetPowerManagementDefaultLimit")))},
          {"power.min_limit", "", "W", "Lowest power limit.", OF_GPU(Limit(g, /*max=*/false))},
          {"power.max_limit", "", "W", "Highest power limit.", OF_GPU(Limit(g, /*max=*/true))},
      });
}

void AddClocks(std::vector<QueryField>* t) {
  t->insert(
      t->end(),
      {
          {"clocks.current.graphics", "clocks.gr", "MHz", "Graphics clock.",
           OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockGraphics)))},
          {"clocks.current.sm", "clocks.sm", "MHz", "SM clock.",
           OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockSm)))},
          {"clocks.current.memory", "clocks.mem", "MHz", "Memory clock.",
           OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockMem)))},
          {"clocks.current.video", "clocks.video", "MHz", "Video clock.",
           OF_GPU(Show(g.Number("nvmlDeviceGetClockInfo", nvml::kClockVideo)))},
          {"clocks.applications.graphics", "clocks.applications.gr", "MHz",
           "Graphics clock of a busy GPU, as root has set it.",
           OF_GPU(Show(g.Number("nvmlDeviceGetApplicationsClock", nvml::kClockGraphics)))},
          {"clocks.applications.memory", "clocks.applications.mem", "MHz",
           "Memory clock of a busy GPU, as root has set it.",
           OF_GPU(Show(g.Number("nvmlDeviceGetApplicationsClock", nvml::kClockMem)))},
          {"clocks.default_applications.graphics", "clocks.default_applications.gr", "MHz",
           "Graphics clock after a reset.",
           OF_GPU(Show(g.Number("nvmlDeviceGetDefaultApplicationsClock", nvml::kClockGraphics)))},
          {"clocks.default_applications.memory", "clocks.default_applications.mem", "MHz",
           "Memory clock after a reset.",
           OF_GPU(Show(g.Number("nvmlDeviceGetDefaultApplicationsClock", nvml::kClockMem)))},
          {"clocks.max.graphics", "clocks.max.gr", "MHz", "Highest graphics clock.",
           OF_GPU(Show(g.Number("nvmlDeviceGetMaxClockInfo", nvml::kClockGraphics)))},
          {"clocks.max.sm", "", "MHz", "Highest SM clock.",
           OF_GPU(Show(g.Number("nvmlDeviceGetMaxClockInfo", nvml::kClockSm)))},
          {"clocks.max.memory", "clocks.max.mem", "MHz", "Highest memory clock.",
           OF_GPU(Show(g.Number("nvmlDeviceGetMaxClockInfo", nvml::kClockMem)))},
      });
}

}  // namespace

const std::vector<QueryField>& GpuFields() {
  static const std::vector<QueryField> kFields = [] {
    std::vector<QueryField> table;
    AddIdentity(&table);
    AddModes(&table);
    AddPcie(&table);
    AddClockReasons(&table);
    AddUse(&table);
    AddErrorFields(&table);
    AddPower(&table);
    AddClocks(&table);
    return table;
  }();
  return kFields;
}

}  // namespace tessera::smi
