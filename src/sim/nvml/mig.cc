// SPDX-License-Identifier: Apache-2.0
// The functions of MIG: a GPU may be in MIG mode, but has no instances.
#include "src/sim/nvml/session.h"

namespace tessera::nvml {
namespace {

// The result of a function for MIG instances on a whole GPU.
Return NotASlice(const char* function, Device device, const void* target) {
  const Gpu gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(target != nullptr);
  return gpu.facts().mig_capable != 0 ? Return::kInvalidArgument : Return::kNotSupported;
}

// The result of a function that needs MIG mode.
Return MigIsOff(const char* function, Device device, const void* target) {
  const Gpu gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(target != nullptr);
  return Return::kNotSupported;
}

// The result of a function on an instance: no valid handle of an instance exists.
Return NoInstance(const char* function) {
  const Enter call(function);
  return call.result() != Return::kSuccess ? call.result() : Return::kInvalidArgument;
}

}  // namespace

Return nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(current != nullptr && pending != nullptr);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  const unsigned mode = gpu.live().mig_mode.load() != 0 ? kFeatureEnabled : kFeatureDisabled;
  *current = mode;
  *pending = mode;
  return Return::kSuccess;
}

// "Returns zero if MIG is not supported or enabled."
Return nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* count) {
  NVML_ENTER_DEVICE(gpu, device);
  return Put(count, 0U);
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned, Device* mig) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mig != nullptr);
  return gpu.facts().mig_capable != 0 ? Return::kNotFound : Return::kNotSupported;
}

Return nvmlDeviceIsMigDeviceHandle(Device device, unsigned* is_mig) {
  NVML_ENTER_CACHED(gpu, device);
  return Put(is_mig, 0U);
}

Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device mig, Device* device) {
  NVML_ENTER_DEVICE(gpu, mig);
  NVML_REQUIRE(device != nullptr);
  return Return::kInvalidArgument;
}

Return nvmlDeviceGetGpuInstanceId(Device device, unsigned* id) {
  return NotASlice(__func__, device, id);
}
Return nvmlDeviceGetComputeInstanceId(Device device, unsigned* id) {
  return NotASlice(__func__, device, id);
}

Return nvmlDeviceGetAttributes(Device device, DeviceAttributes* attributes) {
  return MigIsOff(__func__, device, attributes);
}
Return nvmlDeviceGetAttributes_v2(Device device, DeviceAttributes* attributes) {
  return MigIsOff(__func__, device, attributes);
}
Return nvmlDeviceGetGpuInstanceProfileInfo(Device device, unsigned, GpuInstanceProfileInfo* info) {
  return MigIsOff(__func__, device, info);
}
Return nvmlDeviceGetGpuInstances(Device device, unsigned, GpuInstance*, unsigned* count) {
  return MigIsOff(__func__, device, count);
}
Return nvmlDeviceGetGpuInstanceById(Device device, unsigned, GpuInstance* instance) {
  return MigIsOff(__func__, device, instance);
}
Return nvmlDeviceGetGpuInstanceRemainingCapacity(Device device, unsigned, unsigned* count) {
  return MigIsOff(__func__, device, count);
}

Return nvmlGpuInstanceGetInfo(GpuInstance, GpuInstanceInfo*) { return NoInstance(__func__); }
Return nvmlGpuInstanceGetComputeInstanceById(GpuInstance, unsigned, ComputeInstance*) {
  return NoInstance(__func__);
}
Return nvmlGpuInstanceGetComputeInstanceProfileInfo(GpuInstance, unsigned, unsigned,
                                                    ComputeInstanceProfileInfo*) {
  return NoInstance(__func__);
}
Return nvmlComputeInstanceGetInfo(ComputeInstance, ComputeInstanceInfo*) {
  return NoInstance(__func__);
}
Return nvmlComputeInstanceGetInfo_v2(ComputeInstance, ComputeInstanceInfo*) {
  return NoInstance(__func__);
}

}  // namespace tessera::nvml
