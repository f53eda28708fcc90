// SPDX-License-Identifier: Apache-2.0
// Memory, modes, and memory errors.
#include <unistd.h>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

enum ErrorType : unsigned { kCorrected, kUncorrected, kErrorTypes };
enum CounterType : unsigned { kVolatile, kAggregate, kCounterTypes };
enum EccLocation : unsigned { kL1, kL2, kDram, kRegisterFile, kSram = 7, kLocations };

std::uint64_t EccCount(const GpuCall& gpu, unsigned type, unsigned counter) {
  const sim::SimGpuState& gpu_state = gpu.gpu_state();
  if (type == kCorrected) {
    return counter == kVolatile ? gpu_state.ecc_corrected_volatile
                                : gpu_state.ecc_corrected_aggregate;
  }
  return counter == kVolatile ? gpu_state.ecc_uncorrected_volatile
                              : gpu_state.ecc_uncorrected_aggregate;
}

// The checks that all functions for ECC counters need.
Return CheckEcc(const GpuCall& gpu, unsigned type, unsigned counter, const void* result) {
  NVML_REQUIRE(type < kErrorTypes && counter < kCounterTypes && result != nullptr);
  return gpu.facts().ecc_enabled != 0 ? Return::kSuccess : Return::kNotSupported;
}

// The pages retired for `cause`: 0 several corrected errors, 1 an uncorrected error. The address of
// a page derives from its position in the list.
Return GetRetiredPages(const char* function, Device device, unsigned cause, unsigned* count,
                       std::uint64_t* addresses, std::uint64_t* timestamps) {
  constexpr std::uint64_t kPageBytes = 4096;
  constexpr std::uint64_t kPagesApart = 40503;
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(cause < 2 && count != nullptr);
  if (gpu.remaps_rows()) return Return::kNotSupported;
  const sim::SimGpuState& gpu_state = gpu.gpu_state();
  const unsigned capacity = *count;
  *count = static_cast<unsigned>(cause == 0 ? gpu_state.retired_corrected
                                            : gpu_state.retired_uncorrected);
  if (*count == 0) return Return::kSuccess;
  if (capacity < *count || addresses == nullptr) return Return::kInsufficientSize;
  const std::uint64_t pages = gpu.facts().memory_bytes / kPageBytes;
  for (unsigned i = 0; i < *count; ++i) {
    addresses[i] = (i * 2 + cause + 1) * kPagesApart % pages * kPageBytes;
    if (timestamps != nullptr) timestamps[i] = gpu.state().file().created_ns / 1000;
  }
  return Return::kSuccess;
}

// Only Windows has driver models.
Return GetDriverModel(const char* function, Device device, const unsigned* current,
                      const unsigned* pending) {
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(current != nullptr && pending != nullptr);
  return Return::kNotSupported;
}

// Total, reserved and used memory of a GPU, or of the GPU instance of a MIG device.
MemoryV2 MemoryOf(const GpuCall& gpu) {
  MemoryV2 memory = {};
  if (gpu.instance_plus_1() != 0) {
    memory.total = gpu.mig_profile().memory_bytes;
    memory.used = gpu.state().UsedBytes(gpu.gpu_index(), gpu.gpu_instance());
    return memory;
  }
  memory.total = gpu.facts().memory_bytes;
  memory.reserved = gpu.facts().reserved_bytes;
  memory.used = gpu.state().UsedBytes(gpu.gpu_index());
  return memory;
}

Return SetMode(const GpuCall& gpu, sim::AtomicU32* mode, unsigned value) {
  NVML_REQUIRE_ADMIN(gpu);
  mode->store(value);
  return Return::kSuccess;
}

}  // namespace

Return nvmlDeviceGetMemoryInfo(Device device, Memory* memory) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  NVML_REQUIRE(memory != nullptr);
  const MemoryV2 info = MemoryOf(gpu);
  memory->total = info.total;
  memory->used = info.reserved + info.used;
  memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
  return Return::kSuccess;
}

Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* memory) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  NVML_REQUIRE(memory != nullptr);
  if (memory->version != VersionOf<MemoryV2>(2)) return Return::kArgumentVersionMismatch;
  const MemoryV2 info = MemoryOf(gpu);
  memory->total = info.total;
  memory->reserved = info.reserved;
  memory->used = info.used;
  const std::uint64_t unavailable = memory->reserved + memory->used;
  memory->free = memory->total > unavailable ? memory->total - unavailable : 0;
  return Return::kSuccess;
}

// The simulation does not use BAR1.
Return nvmlDeviceGetBAR1MemoryInfo(Device device, Bar1Memory* memory) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  NVML_REQUIRE(memory != nullptr);
  // BAR1 is divided by slices of memory, of which a GPU has 8.
  const std::uint64_t parts = gpu.instance_plus_1() == 0 ? 8 : gpu.mig_profile().size;
  const std::uint64_t bytes = gpu.facts().bar1_bytes / 8 * parts;
  *memory = {bytes, bytes, 0};
  return Return::kSuccess;
}

Return nvmlDeviceGetComputeMode(Device device, unsigned* mode) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  return Put(mode, gpu.gpu_state().compute_mode.load());
}

Return nvmlDeviceSetComputeMode(Device device, unsigned mode) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mode <= kComputeExclusiveProcess);
  if (mode == kComputeExclusiveThread) return Return::kNotSupported;
  return SetMode(gpu, &gpu.gpu_state().compute_mode, mode);
}

NVML_VALUE(nvmlDeviceGetPersistenceMode, unsigned, gpu.gpu_state().persistence_mode.load())

Return nvmlDeviceSetPersistenceMode(Device device, unsigned mode) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mode <= kFeatureEnabled);
  return SetMode(gpu, &gpu.gpu_state().persistence_mode, mode);
}

NVML_VALUE(nvmlDeviceGetDisplayMode, unsigned, gpu.facts().display_mode)
NVML_VALUE(nvmlDeviceGetDisplayActive, unsigned, kFeatureDisabled)

Return nvmlDeviceGetDriverModel(Device device, unsigned* current, unsigned* pending) {
  return GetDriverModel(__func__, device, current, pending);
}
Return nvmlDeviceGetDriverModel_v2(Device device, unsigned* current, unsigned* pending) {
  return GetDriverModel(__func__, device, current, pending);
}

NVML_VALUE(nvmlDeviceGetVirtualizationMode, unsigned, 0)

Return nvmlDeviceGetAPIRestriction(Device device, unsigned api, unsigned* restricted) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(api < 2);
  return Put(restricted, kFeatureEnabled);
}

Return nvmlDeviceGetEccMode(Device device, unsigned* current, unsigned* pending) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(current != nullptr && pending != nullptr);
  *current = gpu.facts().ecc_enabled;
  *pending = gpu.gpu_state().ecc_mode_pending.load();
  return Return::kSuccess;
}

NVML_VALUE(nvmlDeviceGetDefaultEccMode, unsigned, gpu.facts().ecc_enabled)

Return nvmlDeviceGetTotalEccErrors(Device device, unsigned type, unsigned counter,
                                   std::uint64_t* count) {
  NVML_ENTER_DEVICE(gpu, device);
  const Return result = CheckEcc(gpu, type, counter, count);
  if (result == Return::kSuccess) *count = EccCount(gpu, type, counter);
  return result;
}

// All injected errors are errors of device memory.
Return nvmlDeviceGetDetailedEccErrors(Device device, unsigned type, unsigned counter,
                                      EccErrorCounts* counts) {
  NVML_ENTER_DEVICE(gpu, device);
  const Return result = CheckEcc(gpu, type, counter, counts);
  if (result != Return::kSuccess) return result;
  *counts = {};
  counts->device_memory = EccCount(gpu, type, counter);
  return Return::kSuccess;
}

Return nvmlDeviceGetMemoryErrorCounter(Device device, unsigned type, unsigned counter,
                                       unsigned location, std::uint64_t* count) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(location < kLocations);
  const Return result = CheckEcc(gpu, type, counter, count);
  if (result != Return::kSuccess) return result;
  // Turing and later count all on-chip memories together.
  const bool on_chip = gpu.at_least(kArchTuring) ? location == kSram : location <= kRegisterFile;
  if (location != kDram && !on_chip) return Return::kNotSupported;
  *count = location == kDram ? EccCount(gpu, type, counter) : 0;
  return Return::kSuccess;
}

Return nvmlDeviceGetSramEccErrorStatus(Device device, EccSramErrorStatus* status) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(status != nullptr);
  const unsigned version = VersionOf<EccSramErrorStatus>(1);
  if (status->version != version) return Return::kArgumentVersionMismatch;
  if (!gpu.at_least(kArchAmpere)) return Return::kNotSupported;
  *status = {};
  status->version = version;
  return Return::kSuccess;
}

Return nvmlDeviceClearEccErrorCounts(Device device, unsigned counter) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(counter < kCounterTypes);
  if (gpu.facts().ecc_enabled == 0) return Return::kNotSupported;
  NVML_REQUIRE_ADMIN(gpu);
  sim::SimGpuState& gpu_state = gpu.gpu_state();
  (counter == kVolatile ? gpu_state.ecc_corrected_volatile : gpu_state.ecc_corrected_aggregate) = 0;
  (counter == kVolatile ? gpu_state.ecc_uncorrected_volatile
                        : gpu_state.ecc_uncorrected_aggregate) = 0;
  return Return::kSuccess;
}

Return nvmlDeviceGetRetiredPages(Device device, unsigned cause, unsigned* count,
                                 std::uint64_t* addresses) {
  return GetRetiredPages(__func__, device, cause, count, addresses, nullptr);
}
Return nvmlDeviceGetRetiredPages_v2(Device device, unsigned cause, unsigned* count,
                                    std::uint64_t* addresses, std::uint64_t* timestamps) {
  return GetRetiredPages(__func__, device, cause, count, addresses, timestamps);
}

Return nvmlDeviceGetRetiredPagesPendingStatus(Device device, unsigned* pending) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(pending != nullptr);
  if (gpu.remaps_rows()) return Return::kNotSupported;
  return Put(pending,
             gpu.gpu_state().retired_pending.load() != 0 ? kFeatureEnabled : kFeatureDisabled);
}

Return nvmlDeviceGetRemappedRows(Device device, unsigned* correctable, unsigned* uncorrectable,
                                 unsigned* pending, unsigned* failure) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(correctable != nullptr && uncorrectable != nullptr && pending != nullptr &&
               failure != nullptr);
  if (!gpu.remaps_rows()) return Return::kNotSupported;
  const sim::SimGpuState& gpu_state = gpu.gpu_state();
  *correctable = static_cast<unsigned>(gpu_state.remapped_corrected.load());
  *uncorrectable = static_cast<unsigned>(gpu_state.remapped_uncorrected.load());
  *pending = gpu_state.remapped_pending.load() != 0 ? 1 : 0;
  *failure = gpu_state.remapped_failed.load() != 0 ? 1 : 0;
  return Return::kSuccess;
}

// Each remapped row is in a different bank, which then has one spare row less.
Return nvmlDeviceGetRowRemapperHistogram(Device device, RowRemapperHistogram* values) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(values != nullptr);
  if (!gpu.remaps_rows()) return Return::kNotSupported;
  const sim::SimGpuState& gpu_state = gpu.gpu_state();
  const std::uint64_t rows = gpu_state.remapped_corrected + gpu_state.remapped_uncorrected;
  const unsigned banks = gpu.facts().row_banks;
  *values = {};
  values->high = rows < banks ? static_cast<unsigned>(rows) : banks;
  values->max = banks - values->high;
  return Return::kSuccess;
}

Return nvmlDeviceGetAddressingMode(Device device, AddressingMode* mode) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mode != nullptr);
  if (mode->version != VersionOf<AddressingMode>(1)) return Return::kArgumentVersionMismatch;
  mode->value = 0;
  return Return::kSuccess;
}

}  // namespace tessera::nvml
