// SPDX-License-Identifier: Apache-2.0
// Waits, for a bounded time, until nothing of a kind is left. Threads: the runner's.
#pragma once

#include <cstddef>
#include <functional>

#include "src/base/task_runner.h"

namespace tessera::scheduler {

// Asks `left` until it says 0 or `patience` is over, then calls `on_done` with what it said last.
// Both are called from tasks of their own.
void Drain(TaskRunner& runner, Duration patience, std::function<size_t()> left,
           std::function<void(size_t left)> on_done);

}  // namespace tessera::scheduler
