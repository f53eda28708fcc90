// SPDX-License-Identifier: Apache-2.0
// The state of the simulated NVML in a process between nvmlInit and nvmlShutdown: the mapped state
// of the node, the visible GPUs, and their handles. Every exported function constructs NodeCall or
// GpuCall, so that the order of checks (initialized, handle, injected failure, lost) is always the
// same.
//
// Threads: any. The state is never unmapped, so a call that races with nvmlShutdown stays safe.
// Errors are NVML's return codes. Nothing here throws; a failed allocation returns kMemory.
#pragma once

#include <cstdint>

#include "api/nvml_abi.h"
#include "src/sim/state.h"

#define NVML_EXPORT __attribute__((visibility("default")))

namespace tessera::nvml {

extern "C" {
#define NVML_FUNCTION(name, parameters) NVML_EXPORT Return name parameters;
#include "api/nvml_functions.inc"
#undef NVML_FUNCTION
NVML_EXPORT const char* nvmlErrorString(Return result);
}

// The target of a handle, which lives as long as the library.
struct DeviceTag {
  std::uint32_t gpu;              // index in the state
  std::uint32_t instance_plus_1;  // 1 + index of a compute instance (MIG device); 0: the whole GPU
};

// The GPUs that this process sees, in NVML's order.
struct VisibleGpus {
  std::uint32_t count = 0;
  std::uint32_t gpus[sim::kMaxGpus] = {};
};

Return InitSession(const char* function);
Return ShutdownSession(const char* function);

// The CUDA version of the node's driver, such as 12040, also before nvmlInit. Without a node, a
// number above every version.
unsigned CudaVersion();

enum class FaultCheck { kNow, kLater };

// A call without a device. Calls that look up their device check injected failures afterwards
// (FaultCheck::kLater), so that a failure of one GPU counts once.
class NodeCall {
 public:
  explicit NodeCall(const char* function, FaultCheck fault_check = FaultCheck::kNow);

  Return result() const { return result_; }
  sim::State& state() const { return *state_; }
  const VisibleGpus& visible() const;

 private:
  Return result_ = Return::kUninitialized;
  sim::State* state_ = nullptr;
};

enum class WhenLost { kFail, kAnswer };

// Whether a function supports MIG devices.
enum class MigDevice { kNotSupported, kSupported };

// A call on a device.
class GpuCall {
 public:
  // Return::kNotSupported: the device is a MIG device, and the function has no answer for MIG
  // devices.
  GpuCall(const char* function, Device device, WhenLost when_lost = WhenLost::kFail,
          MigDevice mig_device = MigDevice::kNotSupported);
  // For the second device of a call: only checks the handle.
  explicit GpuCall(Device device);

  Return result() const { return result_; }
  sim::State& state() const { return *state_; }
  std::uint32_t gpu_index() const { return gpu_; }
  // 1 + index of the compute instance of a MIG device; 0: the whole GPU.
  std::uint32_t instance_plus_1() const { return instance_plus_1_; }
  // REQUIRES: a MIG device.
  sim::ComputeInstance& compute_instance() const {
    return gpu_state().compute_instances[instance_plus_1_ - 1];
  }
  std::uint32_t gpu_instance() const { return compute_instance().gpu_instance.load(); }
  const sim::MigProfile& mig_profile() const { return state_->ProfileOf(gpu_, gpu_instance()); }
  const sim::GpuFacts& facts() const { return state_->facts(gpu_); }
  sim::SimGpuState& gpu_state() const { return state_->gpu_state(gpu_); }
  bool at_least(Architecture architecture) const { return facts().architecture >= architecture; }
  // Ampere and later replace bad rows of memory by spare rows; older GPUs retire pages.
  bool remaps_rows() const { return facts().row_banks != 0; }

 private:
  Return result_ = Return::kUninitialized;
  sim::State* state_ = nullptr;
  std::uint32_t gpu_ = 0;
  std::uint32_t instance_plus_1_ = 0;
};

#define NVML_ENTER(call)         \
  const NodeCall call(__func__); \
  if (call.result() != Return::kSuccess) return call.result()
#define NVML_ENTER_DEVICE(gpu, device) \
  const GpuCall gpu(__func__, device); \
  if (gpu.result() != Return::kSuccess) return gpu.result()
// Enters a function that also has an answer for a MIG device.
#define NVML_ENTER_DEVICE_OR_MIG(gpu, device)                                  \
  const GpuCall gpu(__func__, device, WhenLost::kFail, MigDevice::kSupported); \
  if (gpu.result() != Return::kSuccess) return gpu.result()
// Enters a function whose answer the driver caches, so that it works for a lost GPU.
#define NVML_ENTER_CACHED(gpu, device)                                           \
  const GpuCall gpu(__func__, device, WhenLost::kAnswer, MigDevice::kSupported); \
  if (gpu.result() != Return::kSuccess) return gpu.result()
#define NVML_REQUIRE(condition) \
  if (!(condition)) return Return::kInvalidArgument

Device HandleOf(std::uint32_t gpu);
Device HandleOfMigDevice(std::uint32_t gpu, std::uint32_t compute_instance);

// Settings apply to the whole node, so the real driver requires CAP_SYS_ADMIN.
bool MayChange(const GpuCall& gpu);
#define NVML_REQUIRE_ADMIN(gpu) \
  if (!MayChange(gpu)) return Return::kNoPermission

// kInsufficientSize: `text` and its NUL do not fit. kNotSupported: empty text.
Return CopyText(const char* text, char* buffer, unsigned length);

template <typename T>
Return Put(T* target, T value) {
  NVML_REQUIRE(target != nullptr);
  *target = value;
  return Return::kSuccess;
}

// Define the function `name`, whose only answer is a value or a text of a GPU. MIG devices have no
// answer. The expression may use `gpu`, a GpuCall.
#define NVML_VALUE(name, type, value)             \
  Return name(Device device, type* target) {      \
    NVML_ENTER_DEVICE(gpu, device);               \
    return Put(target, static_cast<type>(value)); \
  }
#define NVML_TEXT(name, text)                                 \
  Return name(Device device, char* buffer, unsigned length) { \
    NVML_ENTER_DEVICE(gpu, device);                           \
    return CopyText(text, buffer, length);                    \
  }

// CLOCK_REALTIME in microseconds, the clock of samples.
std::uint64_t NowUs();

}  // namespace tessera::nvml
