// SPDX-License-Identifier: Apache-2.0
// Runs a program that serves until it is told to stop.
#pragma once

#include <functional>

#include "src/base/file.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"

namespace tessera {

// Calls `start` on the runner, and runs it until a signal of `signals` (BlockSignals, called before
// any thread starts). The first signal calls `stop`, which calls its argument when the program has
// left; the second ends the run at once. Returns the exit code: 0, or that of an error of `start`,
// which is logged. Threads: the calling one is the runner's.
int RunService(const char* name, const Fd& signals, EpollTaskRunner* runner,
               const std::function<Status()>& start,
               const std::function<void(std::function<void()> on_left)>& stop);

}  // namespace tessera
