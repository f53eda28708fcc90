// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/version.h"
#include "src/console/console.h"

namespace tessera::console {
namespace {

Result<kube::Config> ConfigOf(const ConsoleOptions& options) {
  if (options.context.empty()) return kube::FindConfig(options.kubeconfig);
  if (!options.kubeconfig.empty()) {
    return kube::LoadKubeconfigs(options.kubeconfig, options.context);
  }
  const char* paths = ::getenv("KUBECONFIG");
  if (paths != nullptr && *paths != '\0') return kube::LoadKubeconfigs(paths, options.context);
  return Error(Code::kInvalidArgument, "--context needs a kubeconfig: add --kubeconfig");
}

int Fail(const Status& status) {
  Log(Severity::kError, status.message());
  return InfoOf(status.code()).exit_code;
}

}  // namespace

int RunConsole(ConsoleOptions options) {
  const Fd signals = BlockSignals({SIGTERM, SIGINT});
  Result<kube::Config> config = ConfigOf(options);
  if (!config.ok()) return Fail(config.status());
  EpollTaskRunner runner;
  net::IoThread io;
  Status status;
  WebConsole console(io, runner, *std::move(config), std::move(options));
  runner.WatchReadable(signals.get(), [&] {
    signalfd_siginfo info;
    if (::read(signals.get(), &info, sizeof(info)) == sizeof(info)) runner.Quit();
  });
  runner.Post([&] {
    status = console.Start([&](const Result<std::string>& url) {
      if (!url.ok()) {
        status = url.status();
        return runner.Quit();
      }
      std::printf("%s\n", url->c_str());
      std::fflush(stdout);
    });
    if (!status.ok()) return runner.Quit();
    Log(Severity::kInfo, "tessera-console serves",
        {{"version", kTesseraVersion}, {"address", console.address().ToString()}});
  });
  runner.Run();
  runner.Unwatch(signals.get());
  return status.ok() ? 0 : Fail(status);
}

}  // namespace tessera::console
