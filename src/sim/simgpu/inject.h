// SPDX-License-Identifier: Apache-2.0
// What `simgpu inject` does to a node that runs. Threads: any.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/status.h"
#include "src/sim/state.h"

namespace tessera::sim {

// An XID as the driver reports it. Those after which the driver asks for a reset set that, too.
void InjectXid(State* state, uint32_t gpu, uint64_t code);
// Off the bus: XID 79, NVML answers GPU_IS_LOST, CUDA contexts die.
void InjectLost(State* state, uint32_t gpu);
// Adds to the counters and raises their events; uncorrected ones are XID 48 and end contexts.
void InjectEcc(State* state, uint32_t gpu, uint64_t corrected, uint64_t uncorrected);
// Memory that the driver has taken out of use: rows that spare ones replace, or pages on GPUs that
// have no spare rows.
struct Repairs {
  uint64_t correctable = 0;    // done, after corrected errors
  uint64_t uncorrectable = 0;  // done, after uncorrected errors
  bool pending = false;        // one that waits for a reset
  bool failed = false;         // no spare row was left
};
// Adds to the counters of NVML, and raises XID 63 for repairs and XID 64 for one that failed.
void InjectRepairs(State* state, uint32_t gpu, const Repairs& repairs);
// MIG mode on or off, without slices. REQUIRES: the GPU can.
void SetMigMode(State* state, uint32_t gpu, bool on);
// All is well again, as after a reset: not lost, no action wanted, derived values, volatile
// counters at zero, pending repairs done, settings of root at their defaults, no faults of this
// GPU. Contexts from before stay dead.
void Recover(State* state, uint32_t gpu);

// A name of nvmlReturn_t without NVML_ERROR_, or a number.
Result<uint32_t> NvmlResultFromText(const std::string& text);

}  // namespace tessera::sim
