// SPDX-License-Identifier: Apache-2.0
// Runs a program that serves until a signal ends it.
#pragma once

#include <functional>

#include "src/base/file.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"

namespace tessera {

// Runs `runner`, calls `start` on it, and returns after a signal. `signals`: a descriptor from
// BlockSignals, which must be called before any thread starts. The first signal calls `stop`, which
// must call `on_stopped` when the program is ready to exit. The second signal ends the run at once.
// If `start` fails, logs its error and returns the error's exit code; otherwise returns 0. Threads:
// the calling thread becomes the runner's.
int RunService(const char* name, const Fd& signals, EpollTaskRunner* runner,
               const std::function<Status()>& start,
               const std::function<void(std::function<void()> on_stopped)>& stop);

// Logs the error of a program that cannot run, and returns the program's exit code.
int LogFailure(const Status& status);

}  // namespace tessera
