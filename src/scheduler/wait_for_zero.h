// SPDX-License-Identifier: Apache-2.0
// Waits, for a bounded time, until a count is 0. Threads: the runner's.
#pragma once

#include <cstddef>
#include <functional>

#include "src/base/task_runner.h"

namespace tessera::scheduler {

// Polls `remaining` until it returns 0 or `limit` has passed, then calls `on_done` with the last
// count. Returns at once; tasks of the runner call both functions.
void WaitForZero(TaskRunner& runner, Duration limit, std::function<size_t()> remaining,
                 std::function<void(size_t remaining)> on_done);

}  // namespace tessera::scheduler
