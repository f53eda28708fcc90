// SPDX-License-Identifier: Apache-2.0
// The GPUs that a CUDA program sees: GPUs whose device node it may open, filtered by
// CUDA_VISIBLE_DEVICES with the driver's rules.
#pragma once

#include <cstdint>
#include <vector>

#include "src/sim/state.h"

namespace tessera::cuda {

// Indices into the state, in the order of the program's device ordinals.
std::vector<uint32_t> NodesOf(const sim::State& state);
// Applies CUDA_VISIBLE_DEVICES to `gpus`. Null: not set. Entries are indices, UUIDs and prefixes of
// UUIDs. The list ends at the first entry that names no GPU or several; a repeated GPU empties it.
std::vector<uint32_t> ApplyVisibleDevices(const sim::State& state, std::vector<uint32_t> gpus,
                                          const char* value);

}  // namespace tessera::cuda
