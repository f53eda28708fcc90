// SPDX-License-Identifier: Apache-2.0
// Compute instances. Each of their profiles is a number of slices. The profile's number in NVML is
// also its id.
#include <bit>
#include <cstdio>

#include "src/sim/nvml/mig.h"

namespace tessera::nvml {
namespace {

// Slices by profile (NVML_COMPUTE_INSTANCE_PROFILE_*).
constexpr unsigned kComputeSlices[] = {1, 2, 3, 4, 7, 8, 6, 1};

// The slices of a profile that the GPU instance supports; 0: none.
unsigned SlicesOf(const GpuInstanceCall& call, unsigned profile) {
  if (profile >= 7) return 0;  // 7 is a single slice with media engines, which no profile has here
  const unsigned slices = kComputeSlices[profile];
  const unsigned parent_slices = call.profile().slices;
  // All slices, at most half of them, or 2 of 3.
  const bool is_possible =
      slices == parent_slices || slices * 2 <= parent_slices || (slices == 2 && parent_slices == 3);
  return is_possible ? slices : 0;
}

unsigned ProfileOfSlices(unsigned slices) {
  unsigned profile = 0;
  while (kComputeSlices[profile] != slices) ++profile;
  return profile;
}

template <typename Info>
Return FillProfile(const GpuInstanceCall& call, unsigned profile, Info* info) {
  const unsigned slices = SlicesOf(call, profile);
  if (slices == 0) return Return::kNotSupported;
  const sim::MigProfile& parent = call.profile();
  info->id = profile;
  info->slices = slices;
  info->instances = parent.slices / slices;
  info->multiprocessors =
      call.state().MultiprocessorsOf(call.gpu_index(), call.instance_index(), slices);
  info->shared_copy_engines = parent.copy_engines;
  info->shared_decoders = parent.decoders;
  info->shared_encoders = parent.encoders;
  info->shared_jpegs = parent.jpegs;
  info->shared_ofas = parent.ofas;
  return Return::kSuccess;
}

Return CreateComputeInstance(const char* function, GpuInstance handle, unsigned profile,
                             std::uint32_t start, ComputeInstance* compute) {
  const GpuInstanceCall call(function, handle);
  if (call.result() != Return::kSuccess) return call.result();
  NVML_REQUIRE(compute != nullptr);
  NVML_REQUIRE_ADMIN(call.gpu());
  const unsigned slices = SlicesOf(call, profile);
  if (slices == 0) return Return::kNotSupported;
  std::uint32_t created = 0;
  const int error = call.state().CreateComputeInstance(call.gpu_index(), call.instance_index(),
                                                       slices, start, &created);
  if (error == 0) *compute = HandleOfComputeInstance(call.gpu_index(), created);
  return ReturnFromErrno(error);
}

Return GetComputeInfo(const char* function, ComputeInstance handle, ComputeInstanceInfo* info,
                      bool with_placement) {
  const ComputeInstanceCall call(function, handle);
  if (call.result() != Return::kSuccess) return call.result();
  NVML_REQUIRE(info != nullptr);
  const sim::ComputeInstance& instance = call.instance();
  info->device = HandleOf(call.gpu_index());
  info->gpu_instance = HandleOfGpuInstance(call.gpu_index(), instance.gpu_instance.load());
  info->id = instance.id.load();
  info->profile_id = ProfileOfSlices(instance.slices.load());
  // The structure of the first version ends before the placement.
  if (with_placement) info->placement = {instance.start.load(), instance.slices.load()};
  return Return::kSuccess;
}

}  // namespace

Return nvmlGpuInstanceGetComputeInstanceProfileInfo(GpuInstance handle, unsigned profile,
                                                    unsigned engine_profile,
                                                    ComputeInstanceProfileInfo* info) {
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE(info != nullptr && engine_profile == 0);
  return FillProfile(call, profile, info);
}

// Version 3 has capabilities after the name, which are 0.
Return nvmlGpuInstanceGetComputeInstanceProfileInfoV(GpuInstance handle, unsigned profile,
                                                     unsigned engine_profile,
                                                     ComputeInstanceProfileInfoV2* info) {
  constexpr unsigned kVersion3 = 3U << 24 | (sizeof(ComputeInstanceProfileInfoV2) + 4);
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE(info != nullptr && engine_profile == 0);
  const bool latest = info->version == kVersion3;
  if (!latest && info->version != VersionOf<ComputeInstanceProfileInfoV2>(2)) {
    return Return::kArgumentVersionMismatch;
  }
  const Return result = FillProfile(call, profile, info);
  if (result != Return::kSuccess) return result;
  const char* parent = call.profile().name;
  if (info->slices < call.profile().slices) {
    std::snprintf(info->name, sizeof(info->name), "MIG %uc.%s", info->slices, parent);
  } else {
    std::snprintf(info->name, sizeof(info->name), "MIG %s", parent);
  }
  if (latest) *reinterpret_cast<unsigned*>(info + 1) = 0;
  return Return::kSuccess;
}

Return nvmlGpuInstanceGetComputeInstanceRemainingCapacity(GpuInstance handle, unsigned profile,
                                                          unsigned* count) {
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE(count != nullptr);
  const unsigned slices = SlicesOf(call, profile);
  if (slices == 0) return Return::kNotSupported;
  const std::uint32_t free =
      call.state().FreeComputeStarts(call.gpu_index(), call.instance_index(), slices);
  return Put(count, static_cast<unsigned>(std::popcount(free)));
}

Return nvmlGpuInstanceGetComputeInstancePossiblePlacements(GpuInstance handle, unsigned profile,
                                                           Placement* placements, unsigned* count) {
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE(count != nullptr);
  const unsigned slices = SlicesOf(call, profile);
  if (slices == 0) return Return::kNotSupported;
  std::uint32_t starts = 0;
  for (unsigned start = 0; start + slices <= call.profile().slices;
       start += std::bit_ceil(slices)) {
    starts |= 1U << start;
  }
  return PutPlacements(starts, slices, placements, count);
}

Return nvmlGpuInstanceCreateComputeInstance(GpuInstance handle, unsigned profile,
                                            ComputeInstance* compute) {
  return CreateComputeInstance(__func__, handle, profile, sim::State::kAnyStart, compute);
}
Return nvmlGpuInstanceCreateComputeInstanceWithPlacement(GpuInstance handle, unsigned profile,
                                                         const Placement* placement,
                                                         ComputeInstance* compute) {
  if (placement == nullptr) compute = nullptr;
  return CreateComputeInstance(__func__, handle, profile,
                               placement == nullptr ? 0 : placement->start, compute);
}

Return nvmlComputeInstanceDestroy(ComputeInstance handle) {
  const ComputeInstanceCall call(__func__, handle);
  if (call.result() != Return::kSuccess) return call.result();
  NVML_REQUIRE_ADMIN(call.gpu());
  return ReturnFromErrno(
      call.state().DestroyComputeInstance(call.gpu_index(), call.instance_index()));
}

Return nvmlGpuInstanceGetComputeInstances(GpuInstance handle, unsigned profile,
                                          ComputeInstance* computes, unsigned* count) {
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE(computes != nullptr && count != nullptr);
  const unsigned slices = SlicesOf(call, profile);
  if (slices == 0) return Return::kNotSupported;
  *count = 0;
  for (std::uint32_t i = 0; i < sim::kMaxInstances; ++i) {
    const sim::ComputeInstance& other = call.gpu().gpu_state().compute_instances[i];
    if (other.present.load() == 0 || other.gpu_instance.load() != call.instance_index()) continue;
    if (other.slices.load() != slices) continue;
    computes[(*count)++] = HandleOfComputeInstance(call.gpu_index(), i);
  }
  return Return::kSuccess;
}

Return nvmlGpuInstanceGetComputeInstanceById(GpuInstance handle, unsigned id,
                                             ComputeInstance* compute) {
  NVML_ENTER_GPU_INSTANCE(call, handle);
  NVML_REQUIRE(compute != nullptr);
  for (std::uint32_t i = 0; i < sim::kMaxInstances; ++i) {
    const sim::ComputeInstance& other = call.gpu().gpu_state().compute_instances[i];
    if (other.present.load() == 0 || other.gpu_instance.load() != call.instance_index()) continue;
    if (other.id.load() == id) return Put(compute, HandleOfComputeInstance(call.gpu_index(), i));
  }
  return Return::kNotFound;
}

Return nvmlComputeInstanceGetInfo(ComputeInstance handle, ComputeInstanceInfo* info) {
  return GetComputeInfo(__func__, handle, info, /*with_placement=*/false);
}
Return nvmlComputeInstanceGetInfo_v2(ComputeInstance handle, ComputeInstanceInfo* info) {
  return GetComputeInfo(__func__, handle, info, /*with_placement=*/true);
}

}  // namespace tessera::nvml
