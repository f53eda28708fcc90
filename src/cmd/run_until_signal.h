// SPDX-License-Identifier: Apache-2.0
// Runs tessera-operator or tessera-scheduler until a signal ends it.
#pragma once

#include <signal.h>

#include <functional>
#include <utility>

#include "src/base/file.h"
#include "src/base/run_service.h"
#include "src/base/task_runner.h"
#include "src/net/io_thread.h"

namespace tessera {

// Makes a Program of `args` on a new runner and a new I/O thread, starts it, and stops it at
// SIGTERM or SIGINT. Returns the exit code.
template <typename Program, typename... Args>
int RunUntilSignal(const char* name, Args&&... args) {
  const Fd signals = BlockSignals({SIGTERM, SIGINT});
  EpollTaskRunner runner;
  net::IoThread io;
  Program program(&runner, &io, std::forward<Args>(args)...);
  return RunService(
      name, signals, &runner, [&] { return program.Start(); },
      [&](std::function<void()> on_stopped) { program.Stop(std::move(on_stopped)); });
}

}  // namespace tessera
