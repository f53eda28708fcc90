// SPDX-License-Identifier: Apache-2.0
#include <signal.h>

#include <utility>

#include "src/base/file.h"
#include "src/base/run_service.h"
#include "src/operator/operator.h"

namespace tessera::operators {

int RunOperator(OperatorOptions options) {
  const Fd signals = BlockSignals({SIGTERM, SIGINT});
  EpollTaskRunner runner;
  net::IoThread io;
  OperatorProgram program(&runner, &io, DefaultRendering(), std::move(options));
  return RunService(
      "tessera-operator", signals, &runner, [&] { return program.Start(); },
      [&](std::function<void()> on_left) { program.Stop(std::move(on_left)); });
}

}  // namespace tessera::operators
