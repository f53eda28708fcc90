// SPDX-License-Identifier: Apache-2.0
#include "src/base/run_service.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>

#include "src/base/log.h"
#include "src/base/version.h"

namespace tessera {

int RunService(const char* name, const Fd& signals, EpollTaskRunner* runner,
               const std::function<Status()>& start,
               const std::function<void(std::function<void()> on_stopped)>& stop) {
  Status status;
  bool stopping = false;
  runner->WatchReadable(signals.get(), [&] {
    signalfd_siginfo info;
    if (::read(signals.get(), &info, sizeof(info)) != sizeof(info)) return;
    if (std::exchange(stopping, true)) return runner->Quit();
    Log(Severity::kInfo, fmt::format("{} stops after a signal", name),
        {{"signal", info.ssi_signo}});
    stop([runner] { runner->Quit(); });
  });
  runner->Post([&] {
    Log(Severity::kInfo, fmt::format("{} starts", name), {{"version", kTesseraVersion}});
    status = start();
    if (!status.ok()) runner->Quit();
  });
  runner->Run();
  runner->Unwatch(signals.get());
  return status.ok() ? 0 : LogFailure(status);
}

int LogFailure(const Status& status) {
  Log(Severity::kError, status.message());
  return InfoOf(status.code()).exit_code;
}

}  // namespace tessera
