// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/guard.h"

#include <poll.h>

#include <chrono>
#include <string>

#include "src/base/log.h"

namespace tessera::engine {

void GuardEngine(const std::function<ConfigureOptions()>& options, const HostRoot* host) {
  constexpr int kIntervalMs =
      std::chrono::duration_cast<std::chrono::milliseconds>(kGuardInterval).count();
  std::string problem;
  for (;; ::poll(nullptr, 0, kIntervalMs)) {
    const ConfigureOptions now = options();
    const Status recovered = Configurator(now, host).Recover();
    // A damaged record stays until an operator removes it: log it once.
    if (recovered.message() == problem) continue;
    problem = recovered.message();
    if (recovered.ok()) continue;
    Log(Severity::kError, problem);
    if (recovered.code() != Code::kAborted) continue;
    const bool serves = Reloader(now.reload, host).AwaitEngine();
    Log(serves ? Severity::kInfo : Severity::kError,
        fmt::format(
            "{} {}", NameOf(now.engine),
            serves ? "serves again" : "does not serve, although its original files are restored"));
  }
}

}  // namespace tessera::engine
