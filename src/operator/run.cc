// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <utility>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/version.h"
#include "src/operator/operator.h"

namespace tessera::operators {

int RunOperator(OperatorOptions options) {
  const Fd signals = BlockSignals({SIGTERM, SIGINT});
  EpollTaskRunner runner;
  net::IoThread io;
  Status status;
  bool leaving = false;
  OperatorProgram program(&runner, &io, DefaultRendering(), std::move(options));
  runner.WatchReadable(signals.get(), [&] {
    signalfd_siginfo info;
    if (::read(signals.get(), &info, sizeof(info)) != sizeof(info)) return;
    // The second signal ends the program at once.
    if (std::exchange(leaving, true)) return runner.Quit();
    Log(Severity::kInfo, "leaving", {{"signal", info.ssi_signo}});
    program.Stop([&runner] { runner.Quit(); });
  });
  runner.Post([&] {
    Log(Severity::kInfo, "tessera-operator starts", {{"version", kTesseraVersion}});
    status = program.Start();
    if (!status.ok()) runner.Quit();
  });
  runner.Run();
  runner.Unwatch(signals.get());
  if (status.ok()) return 0;
  Log(Severity::kError, status.message());
  return InfoOf(status.code()).exit_code;
}

}  // namespace tessera::operators
