// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <utility>

#include "src/base/file.h"
#include "src/base/run_service.h"
#include "src/scheduler/scheduler.h"

namespace tessera::scheduler {

int RunScheduler(SchedulerOptions options) {
  const Fd signals = BlockSignals({SIGTERM, SIGINT});
  EpollTaskRunner runner;
  net::IoThread io;
  Scheduler scheduler(&runner, &io, std::move(options));
  return RunService(
      "tessera-scheduler", signals, &runner, [&] { return scheduler.Start(); },
      [&](std::function<void()> on_stopped) { scheduler.Stop(std::move(on_stopped)); });
}

}  // namespace tessera::scheduler
