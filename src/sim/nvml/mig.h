// SPDX-License-Identifier: Apache-2.0
// Handles and helpers of the functions for MIG instances.
#pragma once

#include <cstdint>

#include "src/sim/nvml/session.h"

namespace tessera::nvml {

// The targets of handles, which live as long as the library. The handle of a destroyed instance is
// invalid until a new instance takes the same place in the table.
struct GpuInstanceTag {
  static constexpr auto kTable = &sim::SimGpuState::gpu_instances;
  std::uint32_t gpu, instance;
};
struct ComputeInstanceTag {
  static constexpr auto kTable = &sim::SimGpuState::compute_instances;
  std::uint32_t gpu, instance;
};

GpuInstance HandleOfGpuInstance(std::uint32_t gpu, std::uint32_t instance);
ComputeInstance HandleOfComputeInstance(std::uint32_t gpu, std::uint32_t instance);
// The device of an instance; null for another pointer, so that the call reports an invalid handle.
Device DeviceOf(const GpuInstanceTag* handle);
Device DeviceOf(const ComputeInstanceTag* handle);

// A call on a GPU in MIG mode. kNotSupported: MIG mode is off.
class MigGpuCall : public GpuCall {
 public:
  MigGpuCall(const char* function, Device device) : GpuCall(function, device) {}
  Return result() const {
    if (GpuCall::result() != Return::kSuccess) return GpuCall::result();
    return state().IsMigEnabled(gpu_index()) ? Return::kSuccess : Return::kNotSupported;
  }
};

// A call on an instance of a GPU.
template <typename Tag>
class InstanceCall {
 public:
  InstanceCall(const char* function, const Tag* handle) : gpu_(function, DeviceOf(handle)) {
    if (gpu_.result() != Return::kSuccess) return;
    index_ = handle->instance;
    if (instance().present.load() != 0) result_ = Return::kSuccess;
  }

  Return result() const { return gpu_.result() == Return::kSuccess ? result_ : gpu_.result(); }
  const GpuCall& gpu() const { return gpu_; }
  sim::State& state() const { return gpu_.state(); }
  std::uint32_t gpu_index() const { return gpu_.gpu_index(); }
  std::uint32_t instance_index() const { return index_; }
  auto& instance() const { return (gpu_.gpu_state().*Tag::kTable)[index_]; }

 private:
  const GpuCall gpu_;
  std::uint32_t index_ = 0;
  Return result_ = Return::kInvalidArgument;
};
using ComputeInstanceCall = InstanceCall<ComputeInstanceTag>;

class GpuInstanceCall : public InstanceCall<GpuInstanceTag> {
 public:
  using InstanceCall::InstanceCall;
  const sim::MigProfile& profile() const {
    return state().ProfileOf(gpu_index(), instance_index());
  }
};

// Converts an errno of the MIG functions of State (src/sim/state.h).
Return ReturnFromErrno(int error);

// Writes the placements of `starts` (bit n: start n). If `placements` is null, writes only their
// number.
Return PutPlacements(std::uint32_t starts, unsigned size, Placement* placements, unsigned* count);

#define NVML_ENTER_MIG_MODE(gpu, device)  \
  const MigGpuCall gpu(__func__, device); \
  if (gpu.result() != Return::kSuccess) return gpu.result()
#define NVML_ENTER_GPU_INSTANCE(call, handle)   \
  const GpuInstanceCall call(__func__, handle); \
  if (call.result() != Return::kSuccess) return call.result()

}  // namespace tessera::nvml
