// SPDX-License-Identifier: Apache-2.0
// The GPUs and MIG devices that a CUDA program sees: GPUs whose device node it may open, filtered
// by CUDA_VISIBLE_DEVICES with the driver's rules.
#pragma once

#include <cstdint>
#include <vector>

#include "src/sim/state.h"

namespace tessera::cuda {

// A GPU, or a compute instance of a GPU in MIG mode.
struct VisibleDevice {
  uint32_t gpu = 0;
  uint32_t instance = sim::kMaxInstances;  // index in the state; kMaxInstances: whole GPU
};

// The devices of a program. `visible_devices` is CUDA_VISIBLE_DEVICES; null: not set. As with the
// real driver, a process that sees a compute instance sees no other device. A GPU in MIG mode
// without compute instances is not visible.
std::vector<VisibleDevice> FindDevices(const sim::State& state, const char* visible_devices);

// The indices in the state of the GPUs whose device files this process may open.
std::vector<uint32_t> OpenableGpus(const sim::State& state);
// Filters `gpus` by the value of CUDA_VISIBLE_DEVICES; null: not set. Entries are indices, UUIDs
// and prefixes of UUIDs. The list ends at the first entry that names no GPU or several GPUs. If the
// list names one GPU twice, the result is empty.
std::vector<uint32_t> ApplyVisibleDevices(const sim::State& state, std::vector<uint32_t> gpus,
                                          const char* value);

}  // namespace tessera::cuda
