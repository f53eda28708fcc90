// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/fields.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "api/nvml_abi.h"

namespace tessera::agent {
namespace {

// Values of Field::factor: from bytes to MiB, from percent to a ratio, from thousandths to units.
constexpr double kMebibyte = 1.0 / (1 << 20);
constexpr double kPercent = 0.01;
constexpr double kMilli = 0.001;
constexpr bool kReal = true;
constexpr bool kInteger = false;
constexpr bool kActive = true;
constexpr bool kCommentedOut = false;

// The numbers are NVML_FI_DEV_* for kField and kFieldPair, and NVML_GPM_METRIC_* for kGpm. GPM
// reports ratios in percent, and traffic in MiB per second.
constexpr Field kFields[] = {
    {"DCGM_FI_DEV_SM_CLOCK", "gauge", FieldSource::kSmClock, 0, 1, kInteger, kActive,
     "SM clock frequency (in MHz)."},
    {"DCGM_FI_DEV_MEM_CLOCK", "gauge", FieldSource::kMemoryClock, 0, 1, kInteger, kActive,
     "Memory clock frequency (in MHz)."},
    {"DCGM_FI_DEV_MEMORY_TEMP", "gauge", FieldSource::kField, nvml::kFieldMemoryTemp, 1, kInteger,
     kActive, "Memory temperature (in C).", "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS"},
    {"DCGM_FI_DEV_GPU_TEMP", "gauge", FieldSource::kTemperature, 0, 1, kInteger, kActive,
     "GPU temperature (in C).", "DCGM_FI_DEV_GPU_TEMP_CELSIUS"},
    {"DCGM_FI_DEV_POWER_USAGE", "gauge", FieldSource::kPower, 0, kMilli, kReal, kActive,
     "Power draw (in W).", "DCGM_FI_DEV_BOARD_POWER_WATTS"},
    {"DCGM_FI_DEV_POWER_USAGE_INSTANT", "gauge", FieldSource::kField, nvml::kFieldPowerInstant,
     kMilli, kReal, kCommentedOut, "Power draw at this moment (in W).",
     "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS"},
    {"DCGM_FI_DEV_POWER_MGMT_LIMIT", "gauge", FieldSource::kField, nvml::kFieldPowerRequestedLimit,
     kMilli, kReal, kCommentedOut, "Power limit that is set (in W).",
     "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS"},
    {"DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN", "gauge", FieldSource::kField, nvml::kFieldPowerMinLimit,
     kMilli, kReal, kCommentedOut, "Lowest power limit that can be set (in W).",
     "DCGM_FI_DEV_BOARD_POWER_LIMIT_MIN_WATTS"},
    {"DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX", "gauge", FieldSource::kField, nvml::kFieldPowerMaxLimit,
     kMilli, kReal, kCommentedOut, "Highest power limit that can be set (in W).",
     "DCGM_FI_DEV_BOARD_POWER_LIMIT_MAX_WATTS"},
    {"DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "gauge", FieldSource::kField,
     nvml::kFieldPowerDefaultLimit, kMilli, kReal, kCommentedOut, "Power limit by default (in W).",
     "DCGM_FI_DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS"},
    {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", FieldSource::kField,
     nvml::kFieldTotalEnergy, 1, kInteger, kActive, "Total energy consumption since boot (in mJ)."},
    {"DCGM_FI_DEV_PCIE_TX_THROUGHPUT", "counter", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Total number of bytes transmitted through PCIe TX (in KB) via NVML."},
    {"DCGM_FI_DEV_PCIE_RX_THROUGHPUT", "counter", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Total number of bytes received through PCIe RX (in KB) via NVML."},
    {"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", FieldSource::kPcieReplays, 0, 1, kInteger,
     kActive, "Total number of PCIe retries.", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"},
    {"DCGM_FI_DEV_GPU_UTIL", "gauge", FieldSource::kGpuPercent, 0, 1, kInteger, kActive,
     "GPU utilization (in %).", "DCGM_FI_DEV_GPU_UTIL_RATIO"},
    {"DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", FieldSource::kMemoryPercent, 0, 1, kInteger, kActive,
     "Memory utilization (in %)."},
    {"DCGM_FI_DEV_ENC_UTIL", "gauge", FieldSource::kEncoderPercent, 0, 1, kInteger, kActive,
     "Encoder utilization (in %)."},
    {"DCGM_FI_DEV_DEC_UTIL", "gauge", FieldSource::kDecoderPercent, 0, 1, kInteger, kActive,
     "Decoder utilization (in %)."},
    {"DCGM_FI_DEV_XID_ERRORS", "gauge", FieldSource::kLastXid, 0, 1, kInteger, kActive,
     "Value of the last XID error encountered.", "DCGM_FI_DEV_XID_ERROR"},
    {"DCGM_FI_DEV_POWER_VIOLATION", "counter", FieldSource::kField, nvml::kFieldPowerViolation, 1,
     kInteger, kCommentedOut, "Throttling duration due to power constraints (in ns)."},
    {"DCGM_FI_DEV_THERMAL_VIOLATION", "counter", FieldSource::kField, nvml::kFieldThermalViolation,
     1, kInteger, kCommentedOut, "Throttling duration due to thermal constraints (in ns)."},
    {"DCGM_FI_DEV_SYNC_BOOST_VIOLATION", "counter", FieldSource::kField, 76, 1, kInteger,
     kCommentedOut, "Throttling duration due to sync-boost constraints (in ns)."},
    {"DCGM_FI_DEV_BOARD_LIMIT_VIOLATION", "counter", FieldSource::kField, 77, 1, kInteger,
     kCommentedOut, "Throttling duration due to board limit constraints (in ns)."},
    {"DCGM_FI_DEV_LOW_UTIL_VIOLATION", "counter", FieldSource::kField, 78, 1, kInteger,
     kCommentedOut, "Throttling duration due to low utilization (in ns)."},
    {"DCGM_FI_DEV_RELIABILITY_VIOLATION", "counter", FieldSource::kField, 79, 1, kInteger,
     kCommentedOut, "Throttling duration due to reliability constraints (in ns)."},
    {"DCGM_EXP_CLOCK_EVENTS_COUNT", "gauge", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Clock events observed during the configured time window."},
    {"DCGM_EXP_CLOCK_EVENTS_TOTAL", "counter", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Total clock events observed since exporter start."},
    {"DCGM_EXP_XID_ERRORS_COUNT", "gauge", FieldSource::kXidInWindow, 0, 1, kInteger, kCommentedOut,
     "XID errors observed during the configured time window."},
    {"DCGM_EXP_XID_ERRORS_TOTAL", "counter", FieldSource::kXidTotal, 0, 1, kInteger, kCommentedOut,
     "Total XID errors observed since exporter start."},
    {"DCGM_EXP_GPU_HEALTH_STATUS", "gauge", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Current DCGM-reported GPU health status."},
    {"DCGM_EXP_P2P_STATUS", "gauge", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Current NVLink P2P status per peer link."},
    {"DCGM_FI_DEV_FB_FREE", "gauge", FieldSource::kMemoryFree, 0, kMebibyte, kInteger, kActive,
     "Framebuffer memory free (in MiB)."},
    {"DCGM_FI_DEV_FB_USED", "gauge", FieldSource::kMemoryUsed, 0, kMebibyte, kInteger, kActive,
     "Framebuffer memory used (in MiB)."},
    {"DCGM_FI_DEV_FB_RESERVED", "gauge", FieldSource::kMemoryReserved, 0, kMebibyte, kInteger,
     kActive, "Framebuffer memory reserved (in MiB)."},
    {"DCGM_FI_DEV_FB_TOTAL", "gauge", FieldSource::kMemoryTotal, 0, kMebibyte, kInteger,
     kCommentedOut, "Framebuffer memory total (in MiB)."},
    {"DCGM_FI_DEV_FB_USED_PERCENT", "gauge", FieldSource::kMemoryUsedRatio, 0, 1, kReal,
     kCommentedOut, "Framebuffer memory used, as a ratio of what is not reserved.",
     "DCGM_FI_DEV_FB_USED_RATIO"},
    {"DCGM_FI_DEV_ECC_CURRENT", "gauge", FieldSource::kField, nvml::kFieldEccCurrent, 1, kInteger,
     kCommentedOut, "Whether ECC is on.", "DCGM_FI_DEV_ECC_MODE"},
    {"DCGM_FI_DEV_ECC_PENDING", "gauge", FieldSource::kField, nvml::kFieldEccPending, 1, kInteger,
     kCommentedOut, "Whether ECC is on after the next reset."},
    {"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "counter", FieldSource::kField, nvml::kFieldEccSbeVolatile, 1,
     kInteger, kCommentedOut, "Total number of single-bit volatile ECC errors."},
    {"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", FieldSource::kField, nvml::kFieldEccDbeVolatile, 1,
     kInteger, kCommentedOut, "Total number of double-bit volatile ECC errors."},
    {"DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "counter", FieldSource::kField, nvml::kFieldEccSbeAggregate,
     1, kInteger, kCommentedOut, "Total number of single-bit persistent ECC errors."},
    {"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "counter", FieldSource::kField, nvml::kFieldEccDbeAggregate,
     1, kInteger, kCommentedOut, "Total number of double-bit persistent ECC errors."},
    {"DCGM_FI_DEV_RETIRED_SBE", "counter", FieldSource::kField, nvml::kFieldRetiredSbe, 1, kInteger,
     kCommentedOut, "Total number of retired pages due to single-bit errors.",
     "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL"},
    {"DCGM_FI_DEV_RETIRED_DBE", "counter", FieldSource::kField, nvml::kFieldRetiredDbe, 1, kInteger,
     kCommentedOut, "Total number of retired pages due to double-bit errors.",
     "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL"},
    {"DCGM_FI_DEV_RETIRED_PENDING", "counter", FieldSource::kField, nvml::kFieldRetiredPending, 1,
     kInteger, kCommentedOut, "Total number of pages pending retirement.",
     "DCGM_FI_DEV_PAGE_RETIRED_PENDING"},
    {"DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", FieldSource::kField, 38, 1,
     kInteger, kCommentedOut, "Total number of NVLink flow-control CRC errors.",
     "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL"},
    {"DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter", FieldSource::kField, 45, 1,
     kInteger, kCommentedOut, "Total number of NVLink data CRC errors.",
     "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL"},
    {"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", FieldSource::kField, 52, 1, kInteger,
     kCommentedOut, "Total number of NVLink retries.", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL"},
    {"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", FieldSource::kField, 59, 1,
     kInteger, kCommentedOut, "Total number of NVLink recovery errors.",
     "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL"},
    {"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "counter", FieldSource::kFieldPair, 138, 1, kInteger,
     kActive, "Total number of NVLink bandwidth counters for all lanes.",
     "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL"},
    {"DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", "counter", FieldSource::kNone, 0, 1, kInteger,
     kCommentedOut,
     "The number of bytes of active NVLink rx or tx data including both header and payload.",
     "DCGM_FI_DEV_NVLINK_THROUGHPUT_L0"},
    {"DCGM_FI_DEV_VGPU_LICENSE_STATUS", "gauge", FieldSource::kNone, 0, 1, kInteger, kActive,
     "vGPU License status"},
    {"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", FieldSource::kField,
     nvml::kFieldRemappedUncorrectable, 1, kInteger, kActive,
     "Number of remapped rows for uncorrectable errors",
     "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"},
    {"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", FieldSource::kField,
     nvml::kFieldRemappedCorrectable, 1, kInteger, kActive,
     "Number of remapped rows for correctable errors", "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"},
    {"DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", FieldSource::kField, nvml::kFieldRemappedFailure, 1,
     kInteger, kActive, "Whether remapping of rows has failed", "DCGM_FI_DEV_ROW_REMAP_FAILED"},
    {"DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", FieldSource::kField, nvml::kFieldRemappedPending, 1,
     kInteger, kCommentedOut, "Whether remapping of rows waits for a reset"},
    {"DCGM_FI_DRIVER_VERSION", "label", FieldSource::kDriverVersion, 0, 1, kInteger, kActive,
     "Driver Version", "DCGM_FI_SYSTEM_DRIVER_VERSION"},
    {"DCGM_FI_NVML_VERSION", "label", FieldSource::kNvmlVersion, 0, 1, kInteger, kCommentedOut,
     "NVML Version", "DCGM_FI_SYSTEM_NVML_VERSION"},
    {"DCGM_FI_DEV_BRAND", "label", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Device Brand", "DCGM_FI_DEV_GPU_BRAND"},
    {"DCGM_FI_DEV_SERIAL", "label", FieldSource::kSerial, 0, 1, kInteger, kCommentedOut,
     "Device Serial Number", "DCGM_FI_DEV_BOARD_SERIAL"},
    {"DCGM_FI_DEV_OEM_INFOROM_VER", "label", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "OEM inforom version", "DCGM_FI_DEV_INFOROM_OEM_VERSION"},
    {"DCGM_FI_DEV_ECC_INFOROM_VER", "label", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "ECC inforom version", "DCGM_FI_DEV_INFOROM_ECC_VERSION"},
    {"DCGM_FI_DEV_POWER_INFOROM_VER", "label", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Power management object inforom version", "DCGM_FI_DEV_INFOROM_POWER_VERSION"},
    {"DCGM_FI_DEV_INFOROM_IMAGE_VER", "label", FieldSource::kNone, 0, 1, kInteger, kCommentedOut,
     "Inforom image version", "DCGM_FI_DEV_INFOROM_IMAGE_VERSION"},
    {"DCGM_FI_DEV_VBIOS_VERSION", "label", FieldSource::kVbiosVersion, 0, 1, kInteger,
     kCommentedOut, "VBIOS version of the device"},
    {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", FieldSource::kGpm, 1, kPercent, kReal, kActive,
     "Ratio of time the graphics engine is active.", "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO"},
    {"DCGM_FI_PROF_SM_ACTIVE", "gauge", FieldSource::kGpm, 2, kPercent, kReal, kCommentedOut,
     "The ratio of cycles an SM has at least 1 warp assigned.", "DCGM_FI_PROF_SM_UTIL_RATIO"},
    {"DCGM_FI_PROF_SM_OCCUPANCY", "gauge", FieldSource::kGpm, 3, kPercent, kReal, kCommentedOut,
     "The ratio of number of warps resident on an SM.", "DCGM_FI_PROF_SM_OCCUPANCY_RATIO"},
    {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", FieldSource::kGpm, 5, kPercent, kReal, kActive,
     "Ratio of cycles the tensor (HMMA) pipe is active.", "DCGM_FI_PROF_TENSOR_UTIL_RATIO"},
    {"DCGM_FI_PROF_PIPE_TENSOR_IMMA_ACTIVE", "gauge", FieldSource::kGpm, 9, kPercent, kReal,
     kCommentedOut, "Ratio of cycles the tensor (IMMA) pipe is active.",
     "DCGM_FI_PROF_IMMA_UTIL_RATIO"},
    {"DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE", "gauge", FieldSource::kGpm, 7, kPercent, kReal,
     kCommentedOut, "Ratio of cycles the tensor (HMMA) pipe is active.",
     "DCGM_FI_PROF_HMMA_UTIL_RATIO"},
    {"DCGM_FI_PROF_PIPE_TENSOR_DFMA_ACTIVE", "gauge", FieldSource::kGpm, 6, kPercent, kReal,
     kCommentedOut, "Ratio of cycles the tensor (DFMA) pipe is active.",
     "DCGM_FI_PROF_DFMA_UTIL_RATIO"},
    {"DCGM_FI_PROF_DRAM_ACTIVE", "gauge", FieldSource::kGpm, 10, kPercent, kReal, kActive,
     "Ratio of cycles the device memory interface is active sending or receiving data.",
     "DCGM_FI_PROF_DRAM_UTIL_RATIO"},
    {"DCGM_FI_PROF_PIPE_FP64_ACTIVE", "gauge", FieldSource::kGpm, 11, kPercent, kReal,
     kCommentedOut, "Ratio of cycles the fp64 pipes are active.", "DCGM_FI_PROF_FP64_UTIL_RATIO"},
    {"DCGM_FI_PROF_PIPE_FP32_ACTIVE", "gauge", FieldSource::kGpm, 12, kPercent, kReal,
     kCommentedOut, "Ratio of cycles the fp32 pipes are active.", "DCGM_FI_PROF_FP32_UTIL_RATIO"},
    {"DCGM_FI_PROF_PIPE_FP16_ACTIVE", "gauge", FieldSource::kGpm, 13, kPercent, kReal,
     kCommentedOut, "Ratio of cycles the fp16 pipes are active.", "DCGM_FI_PROF_FP16_UTIL_RATIO"},
    {"DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", FieldSource::kGpm, 20, 1 << 20, kInteger, kActive,
     "The rate of data transmitted over the PCIe bus - including both protocol headers and data "
     "payloads - in bytes per second."},
    {"DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", FieldSource::kGpm, 21, 1 << 20, kInteger, kActive,
     "The rate of data received over the PCIe bus - including both protocol headers and data "
     "payloads - in bytes per second."},
    {"DCGM_FI_PROF_NVLINK_TX_BYTES", "gauge", FieldSource::kGpm, 61, 1 << 20, kInteger,
     kCommentedOut, "The rate of data transmitted over NVLink, in bytes per second."},
    {"DCGM_FI_PROF_NVLINK_RX_BYTES", "gauge", FieldSource::kGpm, 60, 1 << 20, kInteger,
     kCommentedOut, "The rate of data received over NVLink, in bytes per second."},
};

// A field of DCGM that is not read from NVML.
constexpr Field kFieldWithoutValue;

constexpr std::string_view kNamesWithoutValue =
#include "src/agent/exporter/dcgm_names.inc"
    ;

bool IsNameOfDcgm(std::string_view name) {
  constexpr std::string_view kPrefix = "DCGM_FI_";
  if (!name.starts_with(kPrefix)) return false;
  std::string listed;
  for (const char c : name.substr(kPrefix.size())) {
    const bool is_digit = c >= '0' && c <= '9';
    if (is_digit && listed.ends_with("_L#")) continue;
    listed += is_digit && listed.ends_with("_L") ? '#' : c;
  }
  const size_t at = (" " + std::string(kNamesWithoutValue)).find(" " + listed + " ");
  return at != std::string::npos;
}

}  // namespace

std::span<const Field> AllFields() { return kFields; }

const Field* FindField(std::string_view name) {
  if (name.empty()) return nullptr;
  const auto* const found = std::ranges::find_if(kFields, [name](const Field& field) {
    return field.name == name || field.newer_name == name;
  });
  if (found != std::end(kFields)) return found;
  return IsNameOfDcgm(name) ? &kFieldWithoutValue : nullptr;
}

}  // namespace tessera::agent
