// SPDX-License-Identifier: Apache-2.0
// The part of the log for one GPU.
#include <fmt/format.h>

#include "src/sim/smi/gpu_log.h"

namespace tessera::smi {
namespace {

std::string Celsius(const NvmlAnswer<unsigned>& answer) { return Show(answer, "C"); }
std::string Megahertz(const NvmlAnswer<unsigned>& answer) { return Show(answer, "MHz"); }
std::string Percent(const NvmlAnswer<unsigned>& answer) { return Show(answer, "%"); }

void AddIdentity(const NvmlGpu& gpu, LogNode* log) {
  log->Add("Product Name", "product_name", gpu.Name())
      .Add("Product Brand", "product_brand", gpu.Brand())
      .Add("Product Architecture", "product_architecture", gpu.Architecture())
      .Add("Display Mode", "display_mode", ShowEnabled(gpu.Number("nvmlDeviceGetDisplayMode")))
      .Add("Display Active", "display_active",
           ShowEnabled(gpu.Number("nvmlDeviceGetDisplayActive")))
      .Add("Persistence Mode", "persistence_mode",
           ShowEnabled(gpu.Number("nvmlDeviceGetPersistenceMode")))
      .Add("Addressing Mode", "addressing_mode", gpu.AddressingMode());
  log->Open("MIG Mode", "mig_mode")
      .Add("Current", "current_mig", ShowEnabled(gpu.FirstNumber("nvmlDeviceGetMigMode")))
      .Add("Pending", "pending_mig", ShowEnabled(gpu.SecondNumber("nvmlDeviceGetMigMode")));
  log->Add("MIG Devices", "mig_devices", "None")
      .Add("Accounting Mode", "accounting_mode",
           ShowEnabled(gpu.Number("nvmlDeviceGetAccountingMode")))
      .Add("Accounting Mode Buffer Size", "accounting_mode_buffer_size",
           Show(gpu.Number("nvmlDeviceGetAccountingBufferSize")));
  log->Open("Driver Model", "driver_model")
      .Add("Current", "current_dm", kNotAvailable)
      .Add("Pending", "pending_dm", kNotAvailable);
  const NvmlAnswer<unsigned> board = gpu.Number("nvmlDeviceGetBoardId");
  log->Add("Serial Number", "serial", gpu.Serial())
      .Add("GPU UUID", "uuid", gpu.Uuid())
      .Add("Minor Number", "minor_number", gpu.MinorNumber())
      .Add("VBIOS Version", "vbios_version", gpu.Vbios())
      .Add("MultiGPU Board", "multigpu_board", ShowYesNo(gpu.Number("nvmlDeviceGetMultiGpuBoard")))
      .Add("Board ID", "board_id", board.ok() ? fmt::format("0x{:x}", board.value) : kNotAvailable)
      .Add("Board Part Number", "board_part_number", gpu.PartNumber());
  log->Open("Inforom Version", "inforom_version")
      .Add("Image Version", "img_version", gpu.InforomImage())
      .Add("OEM Object", "oem_object", gpu.Inforom(0))
      .Add("ECC Object", "ecc_object", gpu.Inforom(1))
      .Add("Power Management Object", "pwr_object", gpu.Inforom(2));
  log->Add("GSP Firmware Version", "gsp_firmware_version", gpu.GspFirmware())
      .Add("GPU Recovery Action", "gpu_recovery_action", gpu.RecoveryAction());
  log->Open("GPU Operation Mode", "gpu_operation_mode")
      .Add("Current", "current_gom", kNotAvailable)
      .Add("Pending", "pending_gom", kNotAvailable);
  log->Open("GPU Reset Status", "gpu_reset_status")
      .Add("Reset Required", "reset_required", ShowYesNo(gpu.FieldNumber(nvml::kFieldResetStatus)))
      .Add("Drain and Reset Recommended", "drain_and_reset_recommended",
           ShowYesNo(gpu.FieldNumber(nvml::kFieldDrainAndResetStatus)));
  log->Open("GPU Virtualization Mode", "gpu_virtualization_mode")
      .Add("Virtualization Mode", "virtualization_mode", gpu.Virtualization());
}

void AddPci(const NvmlGpu& gpu, LogNode* log) {
  const NvmlAnswer<nvml::PciInfo> pci = gpu.Pci();
  auto part = [&pci](unsigned nvml::PciInfo::*member, int digits) {
    return pci.ok() ? Hex(pci.value.*member, digits) : std::string(kNotAvailable);
  };
  LogNode& section = log->Open("PCI", "pci");
  section.Add("Bus", "pci_bus", part(&nvml::PciInfo::bus, 2))
      .Add("Device", "pci_device", part(&nvml::PciInfo::device, 2))
      .Add("Domain", "pci_domain", part(&nvml::PciInfo::domain, 4))
      .Add("Device Id", "pci_device_id", part(&nvml::PciInfo::pci_device_id, 8))
      .Add("Bus Id", "pci_bus_id", gpu.BusId())
      .Add("Sub System Id", "pci_sub_system_id", part(&nvml::PciInfo::pci_subsystem_id, 8));
  LogNode& link = section.Open("GPU Link Info", "pci_gpu_link_info");
  link.Open("PCIe Generation", "pcie_gen")
      .Add("Max", "max_link_gen", Show(gpu.Number("nvmlDeviceGetMaxPcieLinkGeneration")))
      .Add("Current", "current_link_gen", Show(gpu.Number("nvmlDeviceGetCurrPcieLinkGeneration")))
      .Add("Device Current", "device_current_link_gen",
           Show(gpu.Number("nvmlDeviceGetCurrPcieLinkGeneration")))
      .Add("Device Max", "max_device_link_gen",
           Show(gpu.Number("nvmlDeviceGetGpuMaxPcieLinkGeneration")));
  link.Open("Link Width", "link_widths")
      .Add("Max", "max_link_width", Show(gpu.Number("nvmlDeviceGetMaxPcieLinkWidth"), "x"))
      .Add("Current", "current_link_width",
           Show(gpu.Number("nvmlDeviceGetCurrPcieLinkWidth"), "x"));
  for (LogNode& width : link.children.back().children) {  // "16x" is written together
    std::erase(width.value, ' ');
  }
  section
      .Add("Replays Since Reset", "replay_counter",
           Show(gpu.Number("nvmlDeviceGetPcieReplayCounter")))
      .Add("Tx Throughput", "tx_util", Show(gpu.Number("nvmlDeviceGetPcieThroughput", 0), "KB/s"))
      .Add("Rx Throughput", "rx_util", Show(gpu.Number("nvmlDeviceGetPcieThroughput", 1), "KB/s"));
}

void AddPerformance(const NvmlGpu& gpu, LogNode* log) {
  log->Add("Fan Speed", "fan_speed", Percent(gpu.Number("nvmlDeviceGetFanSpeed")))
      .Add("Performance State", "performance_state", gpu.PerformanceState());
  log->Open("Clocks Event Reasons", "clocks_event_reasons")
      .Add("Idle", "clocks_event_reason_gpu_idle", gpu.EventReason(nvml::kReasonGpuIdle))
      .Add("Applications Clocks Setting", "clocks_event_reason_applications_clocks_setting",
           gpu.EventReason(nvml::kReasonApplicationsClocks))
      .Add("SW Power Cap", "clocks_event_reason_sw_power_cap",
           gpu.EventReason(nvml::kReasonSwPowerCap))
      .Add("HW Slowdown", "clocks_event_reason_hw_slowdown",
           gpu.EventReason(nvml::kReasonHwSlowdown))
      .Add("HW Thermal Slowdown", "clocks_event_reason_hw_thermal_slowdown",
           gpu.EventReason(nvml::kReasonHwThermal))
      .Add("HW Power Brake Slowdown", "clocks_event_reason_hw_power_brake_slowdown",
           gpu.EventReason(nvml::kReasonHwPowerBrake))
      .Add("Sync Boost", "clocks_event_reason_sync_boost", gpu.EventReason(nvml::kReasonSyncBoost))
      .Add("SW Thermal Slowdown", "clocks_event_reason_sw_thermal_slowdown",
           gpu.EventReason(nvml::kReasonSwThermal))
      .Add("Display Clock Setting", "clocks_event_reason_display_clocks_setting",
           gpu.EventReason(nvml::kReasonDisplayClocks));
}

void AddStats(const char* label, const char* tag, const NvmlAnswer<nvml::FbcStats>& stats,
              LogNode* log) {
  auto show = [&stats](unsigned nvml::FbcStats::*member) {
    return Show(NvmlAnswer<unsigned>{stats.result, stats.value.*member});
  };
  log->Open(label, tag)
      .Add("Active Sessions", "session_count", show(&nvml::FbcStats::sessions))
      .Add("Average FPS", "average_fps", show(&nvml::FbcStats::average_fps))
      .Add("Average Latency", "average_latency", show(&nvml::FbcStats::average_latency));
}

void AddMemory(const NvmlGpu& gpu, LogNode* log) {
  const NvmlAnswer<nvml::MemoryV2> memory = gpu.Memory();
  log->Open("FB Memory Usage", "fb_memory_usage")
      .Add("Total", "total", ShowMib(memory.ok(), memory.value.total))
      .Add("Reserved", "reserved", ShowMib(memory.ok(), memory.value.reserved))
      .Add("Used", "used", ShowMib(memory.ok(), memory.value.used))
      .Add("Free", "free", ShowMib(memory.ok(), memory.value.free));
  const NvmlAnswer<nvml::Bar1Memory> bar1 = gpu.Bar1();
  log->Open("BAR1 Memory Usage", "bar1_memory_usage")
      .Add("Total", "total", ShowMib(bar1.ok(), bar1.value.total))
      .Add("Used", "used", ShowMib(bar1.ok(), bar1.value.used))
      .Add("Free", "free", ShowMib(bar1.ok(), bar1.value.free));
  log->Add("Compute Mode", "compute_mode", gpu.ComputeMode());
  const NvmlAnswer<nvml::Utilization> use = gpu.Utilization();
  log->Open("Utilization", "utilization")
      .Add("GPU", "gpu_util", Percent({use.result, use.value.gpu}))
      .Add("Memory", "memory_util", Percent({use.result, use.value.memory}))
      .Add("Encoder", "encoder_util", Percent(gpu.FirstNumber("nvmlDeviceGetEncoderUtilization")))
      .Add("Decoder", "decoder_util", Percent(gpu.FirstNumber("nvmlDeviceGetDecoderUtilization")))
      .Add("JPEG", "jpeg_util", Percent(gpu.FirstNumber("nvmlDeviceGetJpgUtilization")))
      .Add("OFA", "ofa_util", Percent(gpu.FirstNumber("nvmlDeviceGetOfaUtilization")));
  AddStats("Encoder Stats", "encoder_stats", gpu.Encoder(), log);
  AddStats("FBC Stats", "fbc_stats", gpu.FrameCapture(), log);
}

void AddEccCounters(const NvmlGpu& gpu, unsigned counter, LogNode* log) {
  constexpr unsigned kDram = 2;
  constexpr unsigned kSram = 7;
  log->Add("SRAM Correctable", "sram_correctable", Show(gpu.EccErrorsAt(0, counter, kSram)))
      .Add("SRAM Uncorrectable", "sram_uncorrectable", Show(gpu.EccErrorsAt(1, counter, kSram)))
      .Add("DRAM Correctable", "dram_correctable", Show(gpu.EccErrorsAt(0, counter, kDram)))
      .Add("DRAM Uncorrectable", "dram_uncorrectable", Show(gpu.EccErrorsAt(1, counter, kDram)));
}

void AddRetiredPages(const NvmlGpu& gpu, LogNode* log) {
  const std::string single = Show(gpu.RetiredPageCount(0));
  const std::string uncorrected = Show(gpu.RetiredPageCount(1));
  log->Add("Single Bit ECC", "", single);
  log->Open("", "multiple_single_bit_retirement").Add("", "retired_count", single);
  log->Add("Double Bit ECC", "", uncorrected);
  log->Open("", "double_bit_retirement").Add("", "retired_count", uncorrected);
  log->Add("Pending Page Blacklist", "pending_retirement",
           ShowYesNo(gpu.Number("nvmlDeviceGetRetiredPagesPendingStatus")));
}

void AddRemappedRows(const NvmlGpu& gpu, LogNode* log) {
  const NvmlAnswer<RemappedRows> rows = gpu.RemappedRowCounts();
  if (!rows.ok()) {
    log->Add("Remapped Rows", "remapped_rows", kNotAvailable);
    return;
  }
  LogNode& section = log->Open("Remapped Rows", "remapped_rows");
  section.Add("Correctable Error", "remapped_row_corr", std::to_string(rows.value.correctable))
      .Add("Uncorrectable Error", "remapped_row_unc", std::to_string(rows.value.uncorrectable))
      .Add("Pending", "remapped_row_pending", ShowYesNo({rows.result, rows.value.pending}))
      .Add("Remapping Failure Occurred", "remapped_row_failure",
           ShowYesNo({rows.result, rows.value.failure}));
  const NvmlAnswer<nvml::RowRemapperHistogram> banks = gpu.RowHistogram();
  auto show = [&banks](unsigned nvml::RowRemapperHistogram::*member) {
    return Show(NvmlAnswer<unsigned>{banks.result, banks.value.*member}, "bank(s)");
  };
  using Histogram = nvml::RowRemapperHistogram;
  section.Open("Bank Remap Availability Histogram", "row_remapper_histogram")
      .Add("Max", "row_remapper_histogram_max", show(&Histogram::max))
      .Add("High", "row_remapper_histogram_high", show(&Histogram::high))
      .Add("Partial", "row_remapper_histogram_partial", show(&Histogram::partial))
      .Add("Low", "row_remapper_histogram_low", show(&Histogram::low))
      .Add("None", "row_remapper_histogram_none", show(&Histogram::none));
}

void AddEcc(const NvmlGpu& gpu, LogNode* log) {
  log->Open("ECC Mode", "ecc_mode")
      .Add("Current", "current_ecc", ShowEnabled(gpu.FirstNumber("nvmlDeviceGetEccMode")))
      .Add("Pending", "pending_ecc", ShowEnabled(gpu.SecondNumber("nvmlDeviceGetEccMode")));
  LogNode& errors = log->Open("ECC Errors", "ecc_errors");
  AddEccCounters(gpu, 0, &errors.Open("Volatile", "volatile"));
  AddEccCounters(gpu, 1, &errors.Open("Aggregate", "aggregate"));
  AddRetiredPages(gpu, &log->Open("Retired Pages", "retired_pages"));
  AddRemappedRows(gpu, log);
}

void AddHeatAndPower(const NvmlGpu& gpu, LogNode* log) {
  constexpr const char* kThreshold = "nvmlDeviceGetTemperatureThreshold";
  constexpr const char* kConstraints = "nvmlDeviceGetPowerManagementLimitConstraints";
  log->Open("Temperature", "temperature")
      .Add("GPU Current Temp", "gpu_temp", Celsius(gpu.Number("nvmlDeviceGetTemperature", 0)))
      .Add("GPU Shutdown Temp", "gpu_temp_max_threshold", Celsius(gpu.Number(kThreshold, 0)))
      .Add("GPU Slowdown Temp", "gpu_temp_slow_threshold", Celsius(gpu.Number(kThreshold, 1)))
      .Add("GPU Max Operating Temp", "gpu_temp_max_gpu_threshold",
           Celsius(gpu.Number(kThreshold, 3)))
      .Add("Memory Current Temp", "memory_temp", Celsius(gpu.FieldNumber(nvml::kFieldMemoryTemp)))
      .Add("Memory Max Operating Temp", "gpu_temp_max_mem_threshold",
           Celsius(gpu.Number(kThreshold, 2)));
  log->Open("GPU Power Readings", "gpu_power_readings")
      .Add("Average Power Draw", "average_power_draw",
           ShowWatts(gpu.FieldNumber(nvml::kFieldPowerAverage)))
      .Add("Instantaneous Power Draw", "instant_power_draw",
           ShowWatts(gpu.FieldNumber(nvml::kFieldPowerInstant)))
      .Add("Current Power Limit", "current_power_limit",
           ShowWatts(gpu.Number("nvmlDeviceGetEnforcedPowerLimit")))
      .Add("Requested Power Limit", "requested_power_limit",
           ShowWatts(gpu.Number("nvmlDeviceGetPowerManagementLimit")))
      .Add("Default Power Limit", "default_power_limit",
           ShowWatts(gpu.Number("nvmlDeviceGetPowerManagementDefaultLimit")))
      .Add("Min Power Limit", "min_power_limit", ShowWatts(gpu.FirstNumber(kConstraints)))
      .Add("Max Power Limit", "max_power_limit", ShowWatts(gpu.SecondNumber(kConstraints)));
}

void AddClocks(const NvmlGpu& gpu, LogNode* log) {
  auto add = [&gpu, log](const char* label, const char* tag, const char* function,
                         bool with_sm_and_video) {
    LogNode& clocks = log->Open(label, tag);
    clocks.Add("Graphics", "graphics_clock", Megahertz(gpu.Number(function, nvml::kClockGraphics)));
    if (with_sm_and_video)
      clocks.Add("SM", "sm_clock", Megahertz(gpu.Number(function, nvml::kClockSm)));
    clocks.Add("Memory", "mem_clock", Megahertz(gpu.Number(function, nvml::kClockMem)));
    if (with_sm_and_video)
      clocks.Add("Video", "video_clock", Megahertz(gpu.Number(function, nvml::kClockVideo)));
  };
  add("Clocks", "clocks", "nvmlDeviceGetClockInfo", /*with_sm_and_video=*/true);
  add("Applications Clocks", "applications_clocks", "nvmlDeviceGetApplicationsClock",
      /*with_sm_and_video=*/false);
  add("Default Applications Clocks", "default_applications_clocks",
      "nvmlDeviceGetDefaultApplicationsClock", /*with_sm_and_video=*/false);
  add("Max Clocks", "max_clocks", "nvmlDeviceGetMaxClockInfo", /*with_sm_and_video=*/true);
}

void AddFabric(const NvmlGpu& gpu, LogNode* log) {
  log->Open("Fabric", "fabric")
      .Add("State", "state", gpu.FabricState())
      .Add("Status", "status", gpu.FabricStatus())
      .Add("CliqueId", "cliqueId", gpu.FabricClique())
      .Add("ClusterUUID", "clusterUuid", gpu.FabricCluster());
}

void AddProcesses(const NvmlGpu& gpu, LogNode* log) {
  const std::vector<ListedProcess> processes = gpu.Processes();
  if (processes.empty()) {
    log->Add("Processes", "processes", "None");
    return;
  }
  LogNode& section = log->Open("Processes", "processes");
  for (const ListedProcess& process : processes) {
    const std::string memory =
        process.memory_mib == kNotAvailable ? kNotAvailable : process.memory_mib + " MiB";
    section.Open("Process", "process_info")
        .Add("GPU instance ID", "gpu_instance_id", kNotAvailable)
        .Add("Compute instance ID", "compute_instance_id", kNotAvailable)
        .Add("Process ID", "pid", std::to_string(process.pid))
        .Add("Type", "type", process.type)
        .Add("Name", "process_name", process.name)
        .Add("Used GPU Memory", "used_memory", memory);
  }
}

}  // namespace

LogNode GpuSections(const NvmlGpu& gpu) {
  LogNode log;
  log.is_section = true;
  AddIdentity(gpu, &log);
  AddPci(gpu, &log);
  AddPerformance(gpu, &log);
  AddMemory(gpu, &log);
  AddEcc(gpu, &log);
  AddHeatAndPower(gpu, &log);
  AddClocks(gpu, &log);
  AddFabric(gpu, &log);
  AddProcesses(gpu, &log);
  return log;
}

}  // namespace tessera::smi
