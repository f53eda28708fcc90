// SPDX-License-Identifier: Apache-2.0
// Injects failures into a running node, for `simgpu inject`. Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"
#include "src/sim/state.h"

namespace tessera::sim {

// Reports an XID as the driver does. If the XID requires a reset, sets the recovery action too.
void InjectXid(State* state, uint32_t gpu, uint64_t code);
// The GPU falls off the bus: XID 79, NVML returns GPU_IS_LOST, CUDA contexts die.
void InjectLost(State* state, uint32_t gpu);
// Adds to the counters and reports events. Uncorrected errors also report XID 48 and end contexts.
void InjectEcc(State* state, uint32_t gpu, uint64_t corrected, uint64_t uncorrected);
// Memory that the driver has taken out of use: remapped rows, or retired pages on older GPUs.
struct Repairs {
  uint64_t correctable = 0;    // repairs after corrected errors
  uint64_t uncorrectable = 0;  // repairs after uncorrected errors
  bool pending = false;        // a repair waits for a reset
  bool failed = false;         // a repair found no spare row
};
// Adds to the counters of NVML, and reports XID 63 for repairs and XID 64 for a failed repair.
void InjectRepairs(State* state, uint32_t gpu, const Repairs& repairs);
// Makes the GPU healthy, as a reset does. Clears the lost state, the recovery action, injected
// values, volatile counters and the faults of this GPU. Completes pending repairs, and restores
// default settings. Existing contexts stay dead.
void Recover(State* state, uint32_t gpu);

// Parses a name of nvmlReturn_t without NVML_ERROR_, or a number.
Result<uint32_t> NvmlResultFromText(const std::string& text);

}  // namespace tessera::sim
