// SPDX-License-Identifier: Apache-2.0
// Settings of root: power limit, clocks, ECC. The getters are in condition.cc and memory.cc.
#include "src/sim/nvml/model.h"
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

Return SetPowerLimit(const GpuCall& gpu, unsigned milliwatts) {
  NVML_REQUIRE(milliwatts >= gpu.facts().power_min_mw && milliwatts <= gpu.facts().power_max_mw);
  NVML_REQUIRE_ADMIN(gpu);
  gpu.gpu_state().power_limit_mw.store(milliwatts);
  gpu.state().UpdateThrottling(gpu.gpu_index());
  return Return::kSuccess;
}

// Locks clocks, or unlocks them if both values are 0.
Return LockClocks(const GpuCall& gpu, sim::AtomicU32* low, sim::AtomicU32* high, unsigned min_mhz,
                  unsigned max_mhz) {
  NVML_REQUIRE_ADMIN(gpu);
  low->store(min_mhz);
  high->store(max_mhz);
  return Return::kSuccess;
}

Return LockGraphics(const GpuCall& gpu, unsigned min_mhz, unsigned max_mhz) {
  return LockClocks(gpu, &gpu.gpu_state().locked_graphics_min, &gpu.gpu_state().locked_graphics_max,
                    min_mhz, max_mhz);
}

// Locks memory clocks, which needs Ampere or later.
Return LockMemory(const GpuCall& gpu, unsigned min_mhz, unsigned max_mhz) {
  if (!gpu.at_least(kArchAmpere)) return Return::kNotSupported;
  return LockClocks(gpu, &gpu.gpu_state().locked_mem_min, &gpu.gpu_state().locked_mem_max, min_mhz,
                    max_mhz);
}

Return SetApplicationClocks(const GpuCall& gpu, unsigned memory_mhz, unsigned graphics_mhz) {
  NVML_REQUIRE_ADMIN(gpu);
  gpu.gpu_state().application_mem.store(memory_mhz);
  gpu.gpu_state().application_graphics.store(graphics_mhz);
  return Return::kSuccess;
}

}  // namespace

Return nvmlDeviceSetPowerManagementLimit(Device device, unsigned milliwatts) {
  NVML_ENTER_DEVICE(gpu, device);
  return SetPowerLimit(gpu, milliwatts);
}

Return nvmlDeviceSetPowerManagementLimit_v2(Device device, PowerValue* value) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(value != nullptr);
  if (value->version != VersionOf<PowerValue>(2)) return Return::kArgumentVersionMismatch;
  if (value->scope != 0) return Return::kNotSupported;
  return SetPowerLimit(gpu, value->milliwatts);
}

// The range may exceed the supported clocks; the GPU takes the nearest.
Return nvmlDeviceSetGpuLockedClocks(Device device, unsigned min_mhz, unsigned max_mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  const sim::GpuFacts& facts = gpu.facts();
  NVML_REQUIRE(max_mhz != 0 && min_mhz <= max_mhz && min_mhz <= facts.clock_graphics_max);
  const unsigned high = max_mhz < facts.clock_graphics_max ? max_mhz : facts.clock_graphics_max;
  return LockGraphics(gpu, min_mhz, high);
}
Return nvmlDeviceResetGpuLockedClocks(Device device) {
  NVML_ENTER_DEVICE(gpu, device);
  return LockGraphics(gpu, 0, 0);
}

Return nvmlDeviceSetMemoryLockedClocks(Device device, unsigned min_mhz, unsigned max_mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  const sim::GpuFacts& facts = gpu.facts();
  NVML_REQUIRE(max_mhz != 0 && min_mhz <= max_mhz && min_mhz <= facts.clock_mem_max);
  return LockMemory(gpu, min_mhz, max_mhz < facts.clock_mem_max ? max_mhz : facts.clock_mem_max);
}
Return nvmlDeviceResetMemoryLockedClocks(Device device) {
  NVML_ENTER_DEVICE(gpu, device);
  return LockMemory(gpu, 0, 0);
}

// Only accepts supported pairs of clocks.
Return nvmlDeviceSetApplicationsClocks(Device device, unsigned memory_mhz, unsigned graphics_mhz) {
  NVML_ENTER_DEVICE(gpu, device);
  const sim::GpuFacts& facts = gpu.facts();
  NVML_REQUIRE(memory_mhz == facts.clock_mem_max || memory_mhz == facts.clock_mem_idle);
  NVML_REQUIRE(graphics_mhz >= facts.clock_graphics_idle &&
               graphics_mhz <= facts.clock_graphics_max);
  return SetApplicationClocks(gpu, memory_mhz, graphics_mhz);
}
Return nvmlDeviceResetApplicationsClocks(Device device) {
  NVML_ENTER_DEVICE(gpu, device);
  return SetApplicationClocks(gpu, 0, 0);
}

// A real GPU applies the mode at its next boot, so only the pending mode changes.
Return nvmlDeviceSetEccMode(Device device, unsigned mode) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mode <= kFeatureEnabled);
  NVML_REQUIRE_ADMIN(gpu);
  gpu.gpu_state().ecc_mode_pending.store(mode);
  return Return::kSuccess;
}

}  // namespace tessera::nvml
