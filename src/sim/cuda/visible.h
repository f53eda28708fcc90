// SPDX-License-Identifier: Apache-2.0
// Which GPUs a CUDA program sees: those whose device node it may open, narrowed by
// CUDA_VISIBLE_DEVICES with the driver's rules.
#pragma once

#include <cstdint>
#include <vector>

#include "src/sim/state.h"

namespace tessera::cuda {

// Indices into the state, in the order that the program counts them.
std::vector<uint32_t> NodesOf(const sim::State& state);
// Applies the variable to `gpus`. Null: not set. Indices, UUIDs and prefixes of UUIDs; the list
// ends at the first entry that names no GPU, or more than one; a GPU that stands twice empties it.
std::vector<uint32_t> ApplyVisibleDevices(const sim::State& state, std::vector<uint32_t> gpus,
                                          const char* value);

}  // namespace tessera::cuda
