// SPDX-License-Identifier: Apache-2.0
// nvmlDeviceGetFieldValues: many small questions in one call, each with its own result.
#include "src/sim/nvml/model.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

void PutUnsigned(unsigned value, FieldValue* field) {
  field->value_type = kValueUnsignedInt;
  field->value.ui = value;
  field->result = Return::kSuccess;
}

void PutLong(std::uint64_t value, FieldValue* field) {
  field->value_type = kValueUnsignedLongLong;
  field->value.ull = value;
  field->result = Return::kSuccess;
}

unsigned ActiveLinks(const Gpu& gpu, bool only_switches) {
  unsigned count = 0;
  for (const sim::NvLink& link : gpu.facts().links) {
    if (link.active == 0) continue;
    if (!only_switches || link.remote_type == kNvLinkSwitch) ++count;
  }
  return count;
}

// The link that the field's scope names. False where the GPU has none of that number.
bool FindLink(const Gpu& gpu, const FieldValue& field, const sim::NvLink** link) {
  if (field.scope_id >= gpu.facts().nvlink_count || field.scope_id >= sim::kMaxLinks) return false;
  *link = &gpu.facts().links[field.scope_id];
  return true;
}

// True if the field is one of these; then it is answered.
bool FillErrors(const Gpu& gpu, FieldValue* field) {
  const sim::GpuLive& live = gpu.live();
  const bool ecc = gpu.facts().ecc_enabled != 0;
  const bool rows = gpu.ampere_or_newer();
  switch (field->field_id) {
    case kFieldEccCurrent:
    case kFieldEccPending: PutUnsigned(gpu.facts().ecc_enabled, field); return true;
    case kFieldEccSbeVolatile: PutLong(live.ecc_corrected_volatile, field); break;
    case kFieldEccDbeVolatile: PutLong(live.ecc_uncorrected_volatile, field); break;
    case kFieldEccSbeAggregate: PutLong(live.ecc_corrected_aggregate, field); break;
    case kFieldEccDbeAggregate: PutLong(live.ecc_uncorrected_aggregate, field); break;
    case kFieldRetiredSbe:
    case kFieldRetiredDbe: PutLong(0, field); break;
    case kFieldRetiredPending: PutUnsigned(live.retired_pending, field); break;
    case kFieldRemappedCorrectable: PutLong(live.remapped_corrected, field); break;
    case kFieldRemappedUncorrectable: PutLong(live.remapped_uncorrected, field); break;
    case kFieldRemappedPending: PutLong(live.remapped_pending, field); break;
    case kFieldRemappedFailure: PutLong(live.remapped_failed, field); break;
    default: return false;
  }
  const bool of_rows = field->field_id >= kFieldRemappedCorrectable;
  const bool of_pages = !of_rows && field->field_id >= kFieldRetiredSbe;
  if (!ecc || (of_rows && !rows) || (of_pages && rows)) field->result = Return::kNotSupported;
  return true;
}

bool FillPower(const Gpu& gpu, FieldValue* field) {
  const sim::GpuFacts& facts = gpu.facts();
  switch (field->field_id) {
    case kFieldMemoryTemp: PutUnsigned(MemoryTemperatureOf(gpu), field); return true;
    case kFieldTotalEnergy:
    case kFieldEnergy: PutLong(EnergyOf(gpu), field); return true;
    case kFieldPowerAverage:
    case kFieldPowerInstant: PutUnsigned(PowerOf(gpu), field); return true;
    case kFieldPowerMinLimit: PutUnsigned(facts.power_min_mw, field); return true;
    case kFieldPowerMaxLimit: PutUnsigned(facts.power_max_mw, field); return true;
    case kFieldPowerDefaultLimit:
    case kFieldPowerRequestedLimit:
    case kFieldPowerCurrentLimit: PutUnsigned(facts.power_limit_mw, field); return true;
    case kFieldPcieReplay:
      PutUnsigned(static_cast<unsigned>(gpu.live().pcie_replays.load()), field);
      return true;
    default: return false;
  }
}

bool FillLinks(const Gpu& gpu, FieldValue* field) {
  const sim::NvLink* link = nullptr;
  const bool has = gpu.facts().nvlink_count > 0;
  switch (field->field_id) {
    case kFieldNvLinkCount: PutUnsigned(gpu.facts().nvlink_count, field); return true;
    case kFieldNvSwitchConnectedLinks: PutUnsigned(ActiveLinks(gpu, true), field); return true;
    case kFieldC2cLinkCount: PutUnsigned(0, field); return true;
    case kFieldNvLinkSpeedCommon:
      PutUnsigned(ActiveLinks(gpu, false) > 0 ? gpu.facts().nvlink_mbps : 0, field);
      break;
    case kFieldNvLinkReplayTotal:
    case kFieldNvLinkThroughputDataTx:
    case kFieldNvLinkThroughputDataRx:
    case kFieldNvLinkThroughputRawTx:
    case kFieldNvLinkThroughputRawRx: PutLong(0, field); break;
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
    default: return false;
  }
  if (!has) field->result = Return::kNotSupported;
  return true;
}

void Fill(const Gpu& gpu, FieldValue* field) {
  field->timestamp = static_cast<std::int64_t>(NowUs());
  field->latency_us = 0;
  if (field->field_id == kFieldRecoveryAction) {  // known also of a GPU that is gone
    PutUnsigned(gpu.live().recovery_action.load(), field);
  } else if (gpu.state().lost(gpu.number())) {
    field->result = Return::kGpuIsLost;
  } else if (!FillErrors(gpu, field) && !FillPower(gpu, field) && !FillLinks(gpu, field)) {
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
