// SPDX-License-Identifier: Apache-2.0
// nvmlDeviceGetFieldValues: many values in one call, each with its own result.
#include "src/sim/nvml/model.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

void PutUnsigned(unsigned value, FieldValue* field) {
  field->value_type = kValueUnsignedInt;
  field->value.ui = value;
  field->result = Return::kSuccess;
}

unsigned Unsigned(const sim::AtomicU64& value) { return static_cast<unsigned>(value.load()); }

void PutLong(std::uint64_t value, FieldValue* field) {
  field->value_type = kValueUnsignedLongLong;
  field->value.ull = value;
  field->result = Return::kSuccess;
}

unsigned ActiveLinks(const GpuCall& gpu, bool only_switches) {
  unsigned count = 0;
  for (const sim::NvLink& link : gpu.facts().links) {
    if (link.active == 0) continue;
    if (!only_switches || link.remote_type == kNvLinkSwitch) ++count;
  }
  return count;
}

// The link of the field's scope. False: the GPU does not have the link.
bool FindLink(const GpuCall& gpu, const FieldValue& field, const sim::NvLink** link) {
  if (field.scope_id >= gpu.facts().nvlink_count || field.scope_id >= sim::kMaxLinks) return false;
  *link = &gpu.facts().links[field.scope_id];
  return true;
}

// A condition for a field.
enum class FieldRequirement : std::uint8_t { kNone, kNvLink };

// Counters that stay 0, because no injection changes them.
struct ZeroFields {
  unsigned first, last;
  FieldRequirement requirement;
  bool is_long;
};
constexpr ZeroFields kZeroFields[] = {
    {32, 59, FieldRequirement::kNvLink, true},  // errors of links 0 to 5, and their totals
    {76, 81, FieldRequirement::kNone, true},    // nanoseconds for which policies lowered the clocks
    {95, 95, FieldRequirement::kNone, false},   // roll-overs of the PCIe replay counter
    {96, 119, FieldRequirement::kNvLink, true},    // errors of links 6 to 11
    {138, 141, FieldRequirement::kNvLink, true},   // traffic
    {148, 163, FieldRequirement::kNvLink, true},   // data errors, and errors of the link `scope_id`
    {167, 167, FieldRequirement::kNvLink, false},  // power state: high speed
    {169, 169, FieldRequirement::kNone, false},    // recoveries of the PCIe link
    {173, 183, FieldRequirement::kNone, false},    // errors of PCIe
    {197, 198, FieldRequirement::kNone, true},     // traffic of PCIe
    {251, 253, FieldRequirement::kNone, true},     // nanoseconds of slowdown, up to NVML 13.0
    {269, 271, FieldRequirement::kNone, true},     // the same fields in later versions
};

// The Fill functions return true if they know the field, and then write its value.
bool FillZeroFields(const GpuCall& gpu, FieldValue* field) {
  for (const ZeroFields& zeros : kZeroFields) {
    if (field->field_id < zeros.first || field->field_id > zeros.last) continue;
    if (zeros.is_long) {
      PutLong(0, field);
    } else {
      PutUnsigned(0, field);
    }
    const bool missing =
        zeros.requirement == FieldRequirement::kNvLink && gpu.facts().nvlink_count == 0;
    if (missing) field->result = Return::kNotSupported;
    return true;
  }
  return false;
}

// All injected errors are errors of device memory.
bool FillEcc(const GpuCall& gpu, FieldValue* field) {
  const sim::SimGpuState& gpu_state = gpu.gpu_state();
  switch (field->field_id) {
    case kFieldEccCurrent:
      PutUnsigned(gpu.facts().ecc_enabled, field);
      return true;
    case kFieldEccPending:
      PutUnsigned(gpu_state.ecc_mode_pending, field);
      return true;
    case kFieldEccSbeVolatile:
    case kFieldEccSbeVolatileDevice:
      PutLong(gpu_state.ecc_corrected_volatile, field);
      break;
    case kFieldEccDbeVolatile:
    case kFieldEccDbeVolatileDevice:
      PutLong(gpu_state.ecc_uncorrected_volatile, field);
      break;
    case kFieldEccSbeAggregate:
    case kFieldEccSbeAggregateDevice:
      PutLong(gpu_state.ecc_corrected_aggregate, field);
      break;
    case kFieldEccDbeAggregate:
    case kFieldEccDbeAggregateDevice:
      PutLong(gpu_state.ecc_uncorrected_aggregate, field);
      break;
    default:
      if (field->field_id < kFieldEccFirstLocation || field->field_id > kFieldEccLastLocation) {
        return false;
      }
      if (gpu.at_least(kArchTuring)) {  // no counter for each on-chip memory
        field->result = Return::kNotSupported;
        return true;
      }
      PutLong(0, field);
  }
  if (gpu.facts().ecc_enabled == 0) field->result = Return::kNotSupported;
  return true;
}

bool FillRepairs(const GpuCall& gpu, FieldValue* field) {
  const sim::SimGpuState& gpu_state = gpu.gpu_state();
  const bool is_row_field = field->field_id >= kFieldRemappedCorrectable;
  switch (field->field_id) {
    case kFieldRetiredSbe:
      PutLong(gpu_state.retired_corrected, field);
      break;
    case kFieldRetiredDbe:
      PutLong(gpu_state.retired_uncorrected, field);
      break;
    case kFieldRetiredPendingSbe:
      PutUnsigned(0, field);
      break;
    case kFieldRetiredPending:
    case kFieldRetiredPendingDbe:
      PutUnsigned(gpu_state.retired_pending, field);
      break;
    case kFieldRemappedCorrectable:
      PutUnsigned(Unsigned(gpu_state.remapped_corrected), field);
      break;
    case kFieldRemappedUncorrectable:
      PutUnsigned(Unsigned(gpu_state.remapped_uncorrected), field);
      break;
    case kFieldRemappedPending:
      PutUnsigned(gpu_state.remapped_pending != 0 ? 1 : 0, field);
      break;
    case kFieldRemappedFailure:
      PutUnsigned(gpu_state.remapped_failed != 0 ? 1 : 0, field);
      break;
    case kFieldResetStatus:
      PutUnsigned(gpu_state.recovery_action == kRecoveryResetGpu ? 1 : 0, field);
      return true;
    case kFieldDrainAndResetStatus:
      PutUnsigned(gpu_state.recovery_action == kRecoveryDrainAndReset ? 1 : 0, field);
      return true;
    default:
      return false;
  }
  const bool is_supported = gpu.facts().ecc_enabled != 0 && is_row_field == gpu.remaps_rows();
  if (!is_supported) field->result = Return::kNotSupported;
  return true;
}

bool FillPower(const GpuCall& gpu, FieldValue* field) {
  const sim::GpuFacts& facts = gpu.facts();
  switch (field->field_id) {
    case kFieldMemoryTemp:
      PutUnsigned(MemoryTemperatureOf(gpu), field);
      if (!HasMemoryTemperature(gpu)) field->result = Return::kNotSupported;
      return true;
    case kFieldTotalEnergy:
    case kFieldEnergy:
      PutLong(EnergyOf(gpu), field);
      return true;
    case kFieldPowerAverage:
    case kFieldPowerInstant:
      PutUnsigned(PowerOf(gpu), field);
      return true;
    case kFieldPowerMinLimit:
      PutUnsigned(facts.power_min_mw, field);
      return true;
    case kFieldPowerMaxLimit:
      PutUnsigned(facts.power_max_mw, field);
      return true;
    case kFieldPowerDefaultLimit:
      PutUnsigned(facts.power_limit_mw, field);
      return true;
    case kFieldPowerRequestedLimit:
    case kFieldPowerCurrentLimit:
      PutUnsigned(PowerLimitOf(gpu), field);
      return true;
    case kFieldPcieReplay:
      PutUnsigned(static_cast<unsigned>(gpu.gpu_state().pcie_replays.load()), field);
      return true;
    default:
      return false;
  }
}

// The time for which heat and power lowered the clocks, in nanoseconds.
bool FillThrottling(const GpuCall& gpu, FieldValue* field) {
  switch (field->field_id) {
    case kFieldPowerViolation:
      PutLong(gpu.state().PowerThrottlingNs(gpu.gpu_index()), field);
      return true;
    case kFieldThermalViolation:
    case kFieldHwThermalSlowdown:
    case kFieldHwThermalSlowdownNew:
      PutLong(gpu.state().ThermalThrottlingNs(gpu.gpu_index()), field);
      return true;
    default:
      return false;
  }
}

bool FillLinks(const GpuCall& gpu, FieldValue* field) {
  const sim::NvLink* link = nullptr;
  const bool is_supported = gpu.facts().nvlink_count > 0;
  switch (field->field_id) {
    case kFieldNvLinkCount:
      PutUnsigned(gpu.facts().nvlink_count, field);
      return true;
    case kFieldNvSwitchConnectedLinks:
      PutUnsigned(ActiveLinks(gpu, /*only_switches=*/true), field);
      return true;
    case kFieldC2cLinkCount:
      PutUnsigned(0, field);
      return true;
    case kFieldNvLinkSpeedCommon:
      PutUnsigned(ActiveLinks(gpu, /*only_switches=*/false) > 0 ? gpu.facts().nvlink_mbps : 0,
                  field);
      break;
    case kFieldNvLinkRemoteLink:
      if (!FindLink(gpu, *field, &link)) return false;
      PutUnsigned(link->remote_link, field);
      if (link->active == 0) field->result = Return::kInvalidArgument;
      return true;
    case kFieldNvLinkGetSpeed:
    case kFieldNvLinkGetState:
    case kFieldNvLinkGetVersion:
      if (!FindLink(gpu, *field, &link)) return false;
      PutUnsigned(field->field_id == kFieldNvLinkGetState   ? link->active
                  : link->active == 0                       ? 0
                  : field->field_id == kFieldNvLinkGetSpeed ? gpu.facts().nvlink_mbps
                                                            : gpu.facts().nvlink_version,
                  field);
      return true;
    default:
      return false;
  }
  if (!is_supported) field->result = Return::kNotSupported;
  return true;
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
  } else if (!FillEcc(gpu, field) && !FillRepairs(gpu, field) && !FillPower(gpu, field) &&
             !FillThrottling(gpu, field) && !FillLinks(gpu, field) && !FillLinkSpeed(gpu, field) &&
             !FillZeroFields(gpu, field)) {
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
