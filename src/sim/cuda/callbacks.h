// SPDX-License-Identifier: Apache-2.0
// Functions of the program that run when a stream gets to them. The first one starts a thread of the
// driver, as in the real one. They may not call CUDA; nothing of ours is locked while they run.
#pragma once

#include <cstdint>
#include <functional>

namespace tessera::cuda {

// Runs `function` once it is `when_ns` (CLOCK_MONOTONIC), after those of earlier moments.
void RunAt(uint64_t when_ns, std::function<void()> function);
// Returns when all functions up to `when_ns` have run.
void WaitForCallbacks(uint64_t when_ns);

}  // namespace tessera::cuda
