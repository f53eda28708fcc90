// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/inject.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <ranges>

#include "api/nvml_abi.h"
#include "src/base/strings.h"
#include "src/sim/futex.h"

namespace tessera::sim {
namespace {

constexpr uint32_t kRecoveryReset = 1;
constexpr uint64_t kXidDoubleBit = 48;
constexpr uint64_t kXidRepaired = 63;
constexpr uint64_t kXidRepairFailed = 64;
constexpr uint64_t kXidOffTheBus = 79;
// Values of CUresult that calls of existing contexts return.
constexpr uint32_t kCudaUnknown = 999;
constexpr uint32_t kCudaEccUncorrectable = 214;

// XIDs for which NVIDIA's catalog requires a reset of the GPU.
constexpr uint64_t kXidsThatRequireReset[] = {48, 64, 74, 79, 95, 119, 120, 140, 143};

void KillContexts(SimGpuState* gpu_state, uint32_t result) {
  gpu_state->poison_result = result;
  gpu_state->poison_epoch.fetch_add(1);
  FutexWakeAll(&gpu_state->poison_epoch);  // programs that wait for the GPU
}

// Marks a bad row or page that is repaired at the next reset.
void SetRepairPending(State* state, uint32_t gpu) {
  SimGpuState& gpu_state = state->gpu_state(gpu);
  if (state->facts(gpu).row_banks != 0) {
    gpu_state.remapped_pending = 1;
  } else {
    gpu_state.retired_pending = 1;
  }
}

}  // namespace

void InjectXid(State* state, uint32_t gpu, uint64_t code) {
  if (std::ranges::count(kXidsThatRequireReset, code) != 0) {
    state->gpu_state(gpu).recovery_action = kRecoveryReset;
  }
  state->PostEvent(gpu, nvml::kEventXid, code);
}

void InjectLost(State* state, uint32_t gpu) {
  SimGpuState& gpu_state = state->gpu_state(gpu);
  gpu_state.lost = 1;
  KillContexts(&gpu_state, kCudaUnknown);
  InjectXid(state, gpu, kXidOffTheBus);
}

void InjectEcc(State* state, uint32_t gpu, uint64_t corrected, uint64_t uncorrected) {
  SimGpuState& gpu_state = state->gpu_state(gpu);
  gpu_state.ecc_corrected_volatile += corrected;
  gpu_state.ecc_corrected_aggregate += corrected;
  gpu_state.ecc_uncorrected_volatile += uncorrected;
  gpu_state.ecc_uncorrected_aggregate += uncorrected;
  if (corrected != 0) state->PostEvent(gpu, nvml::kEventSingleBitEcc, 0);
  if (uncorrected == 0) return;
  SetRepairPending(state, gpu);
  KillContexts(&gpu_state, kCudaEccUncorrectable);
  state->PostEvent(gpu, nvml::kEventDoubleBitEcc, 0);
  InjectXid(state, gpu, kXidDoubleBit);
}

void InjectRepairs(State* state, uint32_t gpu, const Repairs& repairs) {
  SimGpuState& gpu_state = state->gpu_state(gpu);
  const bool has_rows = state->facts(gpu).row_banks != 0;
  (has_rows ? gpu_state.remapped_corrected : gpu_state.retired_corrected) += repairs.correctable;
  (has_rows ? gpu_state.remapped_uncorrected : gpu_state.retired_uncorrected) +=
      repairs.uncorrectable;
  if (repairs.pending) SetRepairPending(state, gpu);
  if (repairs.correctable != 0 || repairs.uncorrectable != 0 || repairs.pending) {
    InjectXid(state, gpu, kXidRepaired);
  }
  if (!repairs.failed) return;
  gpu_state.remapped_failed = 1;
  InjectXid(state, gpu, kXidRepairFailed);
}

void Recover(State* state, uint32_t gpu) {
  SimGpuState& gpu_state = state->gpu_state(gpu);
  for (auto* value :
       {&gpu_state.temperature_c, &gpu_state.memory_temperature_c, &gpu_state.power_mw,
        &gpu_state.utilization_gpu, &gpu_state.utilization_memory}) {
    value->store(kDerived);
  }
  gpu_state.ecc_corrected_volatile = 0;
  gpu_state.ecc_uncorrected_volatile = 0;
  gpu_state.remapped_uncorrected += gpu_state.remapped_pending.exchange(0);
  gpu_state.retired_uncorrected += gpu_state.retired_pending.exchange(0);
  for (auto* setting :
       {&gpu_state.power_limit_mw, &gpu_state.locked_graphics_min, &gpu_state.locked_graphics_max,
        &gpu_state.locked_mem_min, &gpu_state.locked_mem_max, &gpu_state.application_graphics,
        &gpu_state.application_mem}) {
    setting->store(0);
  }
  state->UpdateThrottling(gpu);
  gpu_state.thermal_throttling_before_ns = 0;
  gpu_state.power_throttling_before_ns = 0;
  gpu_state.recovery_action = 0;
  gpu_state.lost = 0;
  for (const Fault& fault : state->file().faults) {
    if (fault.state == kFaultActive && fault.gpu == int32_t(gpu)) {
      state->ClearFaults(fault.function, int32_t(gpu));
    }
  }
}

Result<uint32_t> NvmlResultFromText(const std::string& text) {
  std::string name = text;
  for (char& c : name) c = char(std::toupper(uint8_t(c)));
  if (name.starts_with("NVML_ERROR_")) name.erase(0, 11);
  for (const nvml::ReturnName& result : nvml::kReturnNames) {
    if (result.name == name) return uint32_t(result.value);
  }
  auto number = ParseInt(text);
  if (number.ok() && *number > 0 && *number <= 999) return uint32_t(*number);
  return Error(
      Code::kInvalidArgument, "invalid NVML error \"{}\": want 1 to 999 or one of {}", text,
      fmt::join(nvml::kReturnNames | std::views::transform(&nvml::ReturnName::name), ", "));
}

}  // namespace tessera::sim
