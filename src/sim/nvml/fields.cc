// SPDX-License-Identifier: Apache-2.0
// nvmlDeviceGetFieldValues: many values in one call, each with its own result.
#include "src/sim/nvml/model.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

// What a GPU needs to have a field.
enum class Needs : std::uint8_t {
  kNothing,
  kEcc,
  kRetiredPages,
  kRemappedRows,
  kNvLink,
  kMemorySensor
};

bool Has(const GpuCall& gpu, Needs needs) {
  switch (needs) {
    case Needs::kNothing:
      return true;
    case Needs::kEcc:
      return gpu.facts().ecc_enabled != 0;
    case Needs::kRetiredPages:
      return gpu.facts().ecc_enabled != 0 && !gpu.remaps_rows();
    case Needs::kRemappedRows:
      return gpu.facts().ecc_enabled != 0 && gpu.remaps_rows();
    case Needs::kNvLink:
      return gpu.facts().nvlink_count > 0;
    case Needs::kMemorySensor:
      return HasMemoryTemperature(gpu);
  }
  return false;
}

void PutUnsigned(unsigned value, FieldValue* field) {
  field->value_type = kValueUnsignedInt;
  field->value.ui = value;
  field->result = Return::kSuccess;
}

// Writes the value of a field also if the GPU does not have the field.
void PutValue(const GpuCall& gpu, Needs needs, bool is_long, std::uint64_t value,
              FieldValue* field) {
  if (is_long) {
    field->value_type = kValueUnsignedLongLong;
    field->value.ull = value;
  } else {
    PutUnsigned(static_cast<unsigned>(value), field);
  }
  field->result = Has(gpu, needs) ? Return::kSuccess : Return::kNotSupported;
}

unsigned ActiveLinks(const GpuCall& gpu, bool only_switches) {
  unsigned count = 0;
  for (const sim::NvLink& link : gpu.facts().links) {
    if (link.active == 0) continue;
    if (!only_switches || link.remote_type == kNvLinkSwitch) ++count;
  }
  return count;
}

unsigned CommonLinkSpeed(const GpuCall& gpu) {
  return ActiveLinks(gpu, /*only_switches=*/false) > 0 ? gpu.facts().nvlink_mbps : 0;
}

struct FieldRow {
  unsigned id;
  Needs needs;
  bool is_long;
  std::uint64_t (*value)(const GpuCall& gpu);
};
#define FIELD(id, needs, is_long, value)                                           \
  {                                                                                \
    id, Needs::needs, is_long,                                                     \
        []([[maybe_unused]] const GpuCall& gpu) -> std::uint64_t { return value; } \
  }
#define UNSIGNED(id, needs, value) FIELD(id, needs, false, value)
#define LONG(id, needs, value) FIELD(id, needs, true, value)
constexpr FieldRow kFields[] = {
    UNSIGNED(kFieldEccCurrent, kNothing, gpu.facts().ecc_enabled),
    UNSIGNED(kFieldEccPending, kNothing, gpu.gpu_state().ecc_mode_pending),
    // All injected errors are errors of device memory.
    LONG(kFieldEccSbeVolatile, kEcc, gpu.gpu_state().ecc_corrected_volatile),
    LONG(kFieldEccSbeVolatileDevice, kEcc, gpu.gpu_state().ecc_corrected_volatile),
    LONG(kFieldEccDbeVolatile, kEcc, gpu.gpu_state().ecc_uncorrected_volatile),
    LONG(kFieldEccDbeVolatileDevice, kEcc, gpu.gpu_state().ecc_uncorrected_volatile),
    LONG(kFieldEccSbeAggregate, kEcc, gpu.gpu_state().ecc_corrected_aggregate),
    LONG(kFieldEccSbeAggregateDevice, kEcc, gpu.gpu_state().ecc_corrected_aggregate),
    LONG(kFieldEccDbeAggregate, kEcc, gpu.gpu_state().ecc_uncorrected_aggregate),
    LONG(kFieldEccDbeAggregateDevice, kEcc, gpu.gpu_state().ecc_uncorrected_aggregate),
    LONG(kFieldRetiredSbe, kRetiredPages, gpu.gpu_state().retired_corrected),
    LONG(kFieldRetiredDbe, kRetiredPages, gpu.gpu_state().retired_uncorrected),
    UNSIGNED(kFieldRetiredPending, kRetiredPages, gpu.gpu_state().retired_pending),
    UNSIGNED(kFieldRetiredPendingSbe, kRetiredPages, 0),
    UNSIGNED(kFieldRetiredPendingDbe, kRetiredPages, gpu.gpu_state().retired_pending),
    UNSIGNED(kFieldRemappedCorrectable, kRemappedRows, gpu.gpu_state().remapped_corrected),
    UNSIGNED(kFieldRemappedUncorrectable, kRemappedRows, gpu.gpu_state().remapped_uncorrected),
    UNSIGNED(kFieldRemappedPending, kRemappedRows, gpu.gpu_state().remapped_pending != 0),
    UNSIGNED(kFieldRemappedFailure, kRemappedRows, gpu.gpu_state().remapped_failed != 0),
    UNSIGNED(kFieldResetStatus, kNothing, gpu.gpu_state().recovery_action == kRecoveryResetGpu),
    UNSIGNED(kFieldDrainAndResetStatus, kNothing,
             gpu.gpu_state().recovery_action == kRecoveryDrainAndReset),
    UNSIGNED(kFieldMemoryTemp, kMemorySensor, MemoryTemperatureOf(gpu)),
    LONG(kFieldTotalEnergy, kNothing, EnergyOf(gpu)),
    LONG(kFieldEnergy, kNothing, EnergyOf(gpu)),
    UNSIGNED(kFieldPowerAverage, kNothing, PowerOf(gpu)),
    UNSIGNED(kFieldPowerInstant, kNothing, PowerOf(gpu)),
    UNSIGNED(kFieldPowerMinLimit, kNothing, gpu.facts().power_min_mw),
    UNSIGNED(kFieldPowerMaxLimit, kNothing, gpu.facts().power_max_mw),
    UNSIGNED(kFieldPowerDefaultLimit, kNothing, gpu.facts().power_limit_mw),
    UNSIGNED(kFieldPowerRequestedLimit, kNothing, PowerLimitOf(gpu)),
    UNSIGNED(kFieldPowerCurrentLimit, kNothing, PowerLimitOf(gpu)),
    // Nanoseconds for which power and heat lowered the clocks.
    LONG(kFieldPowerViolation, kNothing, gpu.state().PowerThrottlingNs(gpu.gpu_index())),
    LONG(kFieldThermalViolation, kNothing, gpu.state().ThermalThrottlingNs(gpu.gpu_index())),
    LONG(kFieldHwThermalSlowdown, kNothing, gpu.state().ThermalThrottlingNs(gpu.gpu_index())),
    LONG(kFieldHwThermalSlowdownNew, kNothing, gpu.state().ThermalThrottlingNs(gpu.gpu_index())),
    UNSIGNED(kFieldPcieReplay, kNothing, gpu.gpu_state().pcie_replays),
    UNSIGNED(kFieldNvLinkCount, kNothing, gpu.facts().nvlink_count),
    UNSIGNED(kFieldNvSwitchConnectedLinks, kNothing, ActiveLinks(gpu, /*only_switches=*/true)),
    UNSIGNED(kFieldNvLinkSpeedCommon, kNvLink, CommonLinkSpeed(gpu)),
    UNSIGNED(kFieldC2cLinkCount, kNothing, 0),
};
#undef LONG
#undef UNSIGNED
#undef FIELD

// Counters that stay 0, because no injection changes them. Ids that kFields also has (252 and 270)
// have the value from there.
struct ZeroFields {
  unsigned first, last;
  Needs needs;
  bool is_long;
};
constexpr ZeroFields kZeroFields[] = {
    {32, 59, Needs::kNvLink, true},      // errors of links 0 to 5, and their totals
    {76, 81, Needs::kNothing, true},     // nanoseconds for which policies lowered the clocks
    {95, 95, Needs::kNothing, false},    // roll-overs of the PCIe replay counter
    {96, 119, Needs::kNvLink, true},     // errors of links 6 to 11
    {138, 141, Needs::kNvLink, true},    // traffic
    {148, 163, Needs::kNvLink, true},    // data errors, and errors of the link `scope_id`
    {167, 167, Needs::kNvLink, false},   // power state: high speed
    {169, 169, Needs::kNothing, false},  // recoveries of the PCIe link
    {173, 183, Needs::kNothing, false},  // errors of PCIe
    {197, 198, Needs::kNothing, true},   // traffic of PCIe
    {251, 253, Needs::kNothing, true},   // nanoseconds of slowdown, up to NVML 13.0
    {269, 271, Needs::kNothing, true},   // the same fields in later versions
};

// The Fill functions return true if they know the field, and then write its value.
bool FillField(const GpuCall& gpu, FieldValue* answer) {
  for (const FieldRow& field : kFields) {
    if (field.id != answer->field_id) continue;
    PutValue(gpu, field.needs, field.is_long, field.value(gpu), answer);
    return true;
  }
  return false;
}

bool FillZeroFields(const GpuCall& gpu, FieldValue* field) {
  for (const ZeroFields& zeros : kZeroFields) {
    if (field->field_id < zeros.first || field->field_id > zeros.last) continue;
    PutValue(gpu, zeros.needs, zeros.is_long, 0, field);
    return true;
  }
  return false;
}

// The errors of one on-chip memory, which Turing and later do not count.
bool FillEccLocation(const GpuCall& gpu, FieldValue* field) {
  const bool is_location =
      field->field_id >= kFieldEccFirstLocation && field->field_id <= kFieldEccLastLocation;
  if (!is_location || gpu.at_least(kArchTuring)) return false;
  PutValue(gpu, Needs::kEcc, /*is_long=*/true, 0, field);
  return true;
}

// The values of the link `scope_id`.
bool FillLink(const GpuCall& gpu, FieldValue* field) {
  if (field->scope_id >= gpu.facts().nvlink_count || field->scope_id >= sim::kMaxLinks)
    return false;
  const sim::NvLink& link = gpu.facts().links[field->scope_id];
  switch (field->field_id) {
    case kFieldNvLinkRemoteLink:
      PutUnsigned(link.remote_link, field);
      if (link.active == 0) field->result = Return::kInvalidArgument;
      return true;
    case kFieldNvLinkGetSpeed:
      PutUnsigned(link.active != 0 ? gpu.facts().nvlink_mbps : 0, field);
      return true;
    case kFieldNvLinkGetState:
      PutUnsigned(link.active, field);
      return true;
    case kFieldNvLinkGetVersion:
      PutUnsigned(link.active != 0 ? gpu.facts().nvlink_version : 0, field);
      return true;
    default:
      return false;
  }
}

// The speed of a link. The first twelve links have a field each.
bool FillLinkSpeed(const GpuCall& gpu, FieldValue* field) {
  const unsigned id = field->field_id;
  unsigned number = 0;
  if (id >= kFieldNvLinkSpeedFirst && id < kFieldNvLinkSpeedFirst + 6) {
    number = id - kFieldNvLinkSpeedFirst;
  } else if (id >= kFieldNvLinkSpeedSeventh && id < kFieldNvLinkSpeedSeventh + 6) {
    number = 6 + id - kFieldNvLinkSpeedSeventh;
  } else {
    return false;
  }
  if (number >= gpu.facts().nvlink_count) return false;
  PutUnsigned(gpu.facts().links[number].active != 0 ? gpu.facts().nvlink_mbps : 0, field);
  return true;
}

void Fill(const GpuCall& gpu, FieldValue* field) {
  field->timestamp = static_cast<std::int64_t>(NowUs());
  field->latency_us = 0;
  if (field->field_id == kFieldRecoveryAction) {  // also known for a lost GPU
    PutUnsigned(gpu.gpu_state().recovery_action.load(), field);
  } else if (gpu.state().is_lost(gpu.gpu_index())) {
    field->result = Return::kGpuIsLost;
  } else if (!FillField(gpu, field) && !FillEccLocation(gpu, field) && !FillLink(gpu, field) &&
             !FillLinkSpeed(gpu, field) && !FillZeroFields(gpu, field)) {
    field->result = Return::kNotSupported;
  }
}

}  // namespace

Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  NVML_ENTER_CACHED(gpu, device);
  NVML_REQUIRE(values != nullptr && count > 0);
  for (int i = 0; i < count; ++i) Fill(gpu, &values[i]);
  return Return::kSuccess;
}

}  // namespace tessera::nvml
