// SPDX-License-Identifier: Apache-2.0
// MIG mode, MIG devices, and GPU instances. mig_compute.cc has compute instances.
#include "src/sim/nvml/mig.h"

#include <bit>
#include <cerrno>
#include <cstdio>

namespace tessera::nvml {
namespace {

// One tag for each instance of each GPU. A tag holds the indices of its GPU and of its instance.
template <typename Tag>
struct TagTable {
  Tag tags[sim::kMaxGpus][sim::kMaxInstances];

  Tag* At(std::uint32_t gpu, std::uint32_t instance) {
    tags[gpu][instance] = {gpu, instance};
    return &tags[gpu][instance];
  }
  Device DeviceOf(const Tag* handle) const {
    const Tag* first = &tags[0][0];
    const Tag* end = first + sim::kMaxGpus * sim::kMaxInstances;
    if (handle == nullptr || handle < first || handle >= end) return nullptr;
    return HandleOf(handle->gpu);
  }
};
TagTable<GpuInstanceTag> g_gpu_instances;
TagTable<ComputeInstanceTag> g_compute_instances;

// The index of the profile whose number (NVML_GPU_INSTANCE_PROFILE_*) or id (of nvidia-smi) is
// `value`; kMaxMigProfiles if the GPU has no such profile.
std::uint32_t FindProfile(const GpuCall& gpu, std::uint32_t sim::MigProfile::*key, unsigned value) {
  std::uint32_t i = 0;
  for (; i < sim::kMaxMigProfiles; ++i) {
    const sim::MigProfile& profile = gpu.facts().mig_profiles[i];
    if (profile.name[0] != '\0' && profile.*key == value) break;
  }
  return i;
}

Return GetProfileInfo(const char* function, Device device, unsigned number,
                      sim::MigProfile* profile) {
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  const std::uint32_t index = FindProfile(gpu, &sim::MigProfile::number, number);
  if (index == sim::kMaxMigProfiles) return Return::kNotSupported;
  *profile = gpu.facts().mig_profiles[index];
  return Return::kSuccess;
}

// Fills the fields that all versions have.
template <typename Info>
void FillInfo(const sim::MigProfile& profile, Info* info) {
  info->id = profile.id;
  info->slices = profile.slices;
  info->instances = profile.instances;
  info->multiprocessors = profile.sm_count;
  info->copy_engines = profile.copy_engines;
  info->decoders = profile.decoders;
  info->encoders = profile.encoders;
  info->jpegs = profile.jpegs;
  info->ofas = profile.ofas;
  info->memory_mb = profile.memory_bytes >> 20;
}

Return GetPlacements(const char* function, Device device, unsigned profile_id,
                     Placement* placements, unsigned* count) {
  const GpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(count != nullptr);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  const std::uint32_t index = FindProfile(gpu, &sim::MigProfile::id, profile_id);
  NVML_REQUIRE(index < sim::kMaxMigProfiles);
  const sim::MigProfile& profile = gpu.facts().mig_profiles[index];
  return PutPlacements(profile.starts, profile.size, placements, count);
}

Return CreateInstance(const char* function, Device device, unsigned profile_id, std::uint32_t start,
                      GpuInstance* instance) {
  const MigGpuCall gpu(function, device);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(instance != nullptr);
  NVML_REQUIRE_ADMIN(gpu);
  const std::uint32_t profile = FindProfile(gpu, &sim::MigProfile::id, profile_id);
  if (profile == sim::kMaxMigProfiles) return Return::kNotSupported;
  std::uint32_t created = 0;
  const int error = gpu.state().CreateGpuInstance(gpu.gpu_index(), profile, start, &created);
  if (error == 0) *instance = HandleOfGpuInstance(gpu.gpu_index(), created);
  return ReturnFromErrno(error);
}

Return GetAttributes(const char* function, Device device, DeviceAttributes* attributes) {
  const GpuCall gpu(function, device, WhenLost::kFail, MigDevice::kSupported);
  if (gpu.result() != Return::kSuccess) return gpu.result();
  NVML_REQUIRE(attributes != nullptr);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  NVML_REQUIRE(gpu.instance_plus_1() != 0);
  const sim::MigProfile& profile = gpu.mig_profile();
  const std::uint32_t slices = gpu.compute_instance().slices.load();
  *attributes = {gpu.state().MultiprocessorsOf(gpu.gpu_index(), gpu.gpu_instance(), slices),
                 profile.copy_engines,
                 profile.decoders,
                 profile.encoders,
                 profile.jpegs,
                 profile.ofas,
                 profile.slices,
                 slices,
                 profile.memory_bytes >> 20};
  return Return::kSuccess;
}

}  // namespace

GpuInstance HandleOfGpuInstance(std::uint32_t gpu, std::uint32_t instance) {
  return g_gpu_instances.At(gpu, instance);
}
ComputeInstance HandleOfComputeInstance(std::uint32_t gpu, std::uint32_t instance) {
  return g_compute_instances.At(gpu, instance);
}

Device DeviceOf(const GpuInstanceTag* handle) { return g_gpu_instances.DeviceOf(handle); }
Device DeviceOf(const ComputeInstanceTag* handle) { return g_compute_instances.DeviceOf(handle); }

Return ReturnFromErrno(int error) {
  switch (error) {
    case 0:
      return Return::kSuccess;
    case EINVAL:
      return Return::kInvalidArgument;
    case ENOSPC:
      return Return::kInsufficientResources;
    case EBUSY:
      return Return::kInUse;
    case EROFS:
      return Return::kNoPermission;
    default:
      return Return::kUnknown;
  }
}

Return PutPlacements(std::uint32_t starts, unsigned size, Placement* placements, unsigned* count) {
  const unsigned capacity = *count;
  *count = static_cast<unsigned>(std::popcount(starts));
  if (placements == nullptr) return Return::kSuccess;
  if (capacity < *count) return Return::kInsufficientSize;
  for (; starts != 0; starts &= starts - 1) {
    *placements++ = {static_cast<unsigned>(std::countr_zero(starts)), size};
  }
  return Return::kSuccess;
}

Return nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  NVML_REQUIRE(current != nullptr && pending != nullptr);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  *current = gpu.gpu_state().mig_mode.load();
  *pending = gpu.gpu_state().mig_pending.load();
  return Return::kSuccess;
}

// A mode that cannot change now stays pending, and `activation` has the reason.
Return nvmlDeviceSetMigMode(Device device, unsigned mode, Return* activation) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(activation != nullptr && mode <= kFeatureEnabled);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  NVML_REQUIRE_ADMIN(gpu);
  *activation = ReturnFromErrno(gpu.state().SetMigMode(gpu.gpu_index(), mode == kFeatureEnabled));
  return Return::kSuccess;
}

// NVML's documentation: "Returns zero if MIG is not supported or enabled."
NVML_VALUE(nvmlDeviceGetMaxMigDeviceCount, unsigned,
           gpu.state().IsMigEnabled(gpu.gpu_index()) ? gpu.facts().max_mig_devices : 0)

Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* mig) {
  NVML_ENTER_DEVICE(gpu, device);
  NVML_REQUIRE(mig != nullptr);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  const std::uint32_t instance = gpu.state().InstanceByRank(gpu.gpu_index(), index);
  if (instance == sim::kMaxInstances) return Return::kNotFound;
  *mig = HandleOfMigDevice(gpu.gpu_index(), instance);
  return Return::kSuccess;
}

Return nvmlDeviceIsMigDeviceHandle(Device device, unsigned* is_mig) {
  NVML_ENTER_CACHED(gpu, device);
  return Put(is_mig, gpu.instance_plus_1() != 0 ? 1U : 0U);
}

Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device mig, Device* device) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, mig);
  NVML_REQUIRE(device != nullptr && gpu.instance_plus_1() != 0);
  return Put(device, HandleOf(gpu.gpu_index()));
}

Return nvmlDeviceGetGpuInstanceId(Device device, unsigned* id) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  NVML_REQUIRE(gpu.instance_plus_1() != 0);
  return Put(id, gpu.gpu_state().gpu_instances[gpu.gpu_instance()].id.load());
}
Return nvmlDeviceGetComputeInstanceId(Device device, unsigned* id) {
  NVML_ENTER_DEVICE_OR_MIG(gpu, device);
  if (gpu.facts().mig_capable == 0) return Return::kNotSupported;
  NVML_REQUIRE(gpu.instance_plus_1() != 0);
  return Put(id, gpu.compute_instance().id.load());
}

Return nvmlDeviceGetAttributes(Device device, DeviceAttributes* attributes) {
  return GetAttributes(__func__, device, attributes);
}
Return nvmlDeviceGetAttributes_v2(Device device, DeviceAttributes* attributes) {
  return GetAttributes(__func__, device, attributes);
}

Return nvmlDeviceGetGpuInstanceProfileInfo(Device device, unsigned number,
                                           GpuInstanceProfileInfo* info) {
  sim::MigProfile profile;
  const Return result = GetProfileInfo(__func__, device, number, &profile);
  if (result != Return::kSuccess) return result;
  NVML_REQUIRE(info != nullptr);
  FillInfo(profile, info);
  info->p2p_supported = 0;
  return Return::kSuccess;
}

Return nvmlDeviceGetGpuInstanceProfileInfoV(Device device, unsigned number,
                                            GpuInstanceProfileInfoV2* info) {
  sim::MigProfile profile;
  const Return result = GetProfileInfo(__func__, device, number, &profile);
  if (result != Return::kSuccess) return result;
  NVML_REQUIRE(info != nullptr);
  if (info->version == VersionOf<GpuInstanceProfileInfoV2>(2)) {
    FillInfo(profile, info);
    info->p2p_supported = 0;
    std::snprintf(info->name, sizeof(info->name), "MIG %s", profile.name);
    return Return::kSuccess;
  }
  auto* latest = reinterpret_cast<GpuInstanceProfileInfoV3*>(info);
  if (latest->version != VersionOf<GpuInstanceProfileInfoV3>(3)) {
    return Return::kArgumentVersionMismatch;
  }
  FillInfo(profile, latest);
  latest->capabilities = 0;
  std::snprintf(latest->name, sizeof(latest->name), "MIG %s", profile.name);
  return Return::kSuccess;
}

Return nvmlDeviceGetGpuInstancePossiblePlacements(Device device, unsigned profile,
                                                  Placement* placements, unsigned* count) {
  return GetPlacements(__func__, device, profile, placements, count);
}
Return nvmlDeviceGetGpuInstancePossiblePlacements_v2(Device device, unsigned profile,
                                                     Placement* placements, unsigned* count) {
  return GetPlacements(__func__, device, profile, placements, count);
}

Return nvmlDeviceGetGpuInstanceRemainingCapacity(Device device, unsigned profile_id,
                                                 unsigned* count) {
  NVML_ENTER_MIG_MODE(gpu, device);
  NVML_REQUIRE(count != nullptr);
  const std::uint32_t profile = FindProfile(gpu, &sim::MigProfile::id, profile_id);
  NVML_REQUIRE(profile < sim::kMaxMigProfiles);
  const auto free =
      static_cast<unsigned>(std::popcount(gpu.state().FreeStarts(gpu.gpu_index(), profile)));
  unsigned same = 0;
  for (const sim::GpuInstance& other : gpu.gpu_state().gpu_instances) {
    if (other.present.load() != 0 && other.profile.load() == profile) ++same;
  }
  const unsigned remaining = gpu.facts().mig_profiles[profile].instances - same;
  return Put(count, free < remaining ? free : remaining);
}

Return nvmlDeviceCreateGpuInstance(Device device, unsigned profile, GpuInstance* instance) {
  return CreateInstance(__func__, device, profile, sim::State::kAnyStart, instance);
}
Return nvmlDeviceCreateGpuInstanceWithPlacement(Device device, unsigned profile,
                                                const Placement* placement, GpuInstance* instance) {
  if (placement == nullptr) instance = nullptr;
  return CreateInstance(__func__, device, profile, placement == nullptr ? 0 : placement->start,
                        instance);
}

Return nvmlGpuInstanceDestroy(GpuInstance handle) {
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE_ADMIN(call.gpu());
  return ReturnFromErrno(call.state().DestroyGpuInstance(call.gpu_index(), call.instance_index()));
}

// The instances of a profile. `count` is only written: the caller's array must have room for all of
// them.
Return nvmlDeviceGetGpuInstances(Device device, unsigned profile_id, GpuInstance* instances,
                                 unsigned* count) {
  NVML_ENTER_MIG_MODE(gpu, device);
  NVML_REQUIRE(instances != nullptr && count != nullptr);
  const std::uint32_t profile = FindProfile(gpu, &sim::MigProfile::id, profile_id);
  NVML_REQUIRE(profile < sim::kMaxMigProfiles);
  *count = 0;
  for (std::uint32_t i = 0; i < sim::kMaxInstances; ++i) {
    const sim::GpuInstance& other = gpu.gpu_state().gpu_instances[i];
    if (other.present.load() == 0 || other.profile.load() != profile) continue;
    instances[(*count)++] = HandleOfGpuInstance(gpu.gpu_index(), i);
  }
  return Return::kSuccess;
}

Return nvmlDeviceGetGpuInstanceById(Device device, unsigned id, GpuInstance* instance) {
  NVML_ENTER_MIG_MODE(gpu, device);
  NVML_REQUIRE(instance != nullptr);
  for (std::uint32_t i = 0; i < sim::kMaxInstances; ++i) {
    const sim::GpuInstance& other = gpu.gpu_state().gpu_instances[i];
    if (other.present.load() == 0 || other.id.load() != id) continue;
    return Put(instance, HandleOfGpuInstance(gpu.gpu_index(), i));
  }
  return Return::kNotFound;
}

Return nvmlGpuInstanceGetInfo(GpuInstance handle, GpuInstanceInfo* info) {
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE(info != nullptr);
  *info = {HandleOf(call.gpu_index()),
           call.instance().id.load(),
           call.profile().id,
           {call.instance().start.load(), call.profile().size}};
  return Return::kSuccess;
}

}  // namespace tessera::nvml
