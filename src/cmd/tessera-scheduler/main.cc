// SPDX-License-Identifier: Apache-2.0
// tessera-scheduler: chooses nodes and GPUs for pods, as an extender of kube-scheduler.
#include <CLI/CLI.hpp>
#include <string>

#include "src/base/log.h"
#include "src/base/parse_flags.h"
#include "src/base/version.h"
#include "src/cmd/tessera-scheduler/flags.h"
#include "src/scheduler/scheduler.h"

int main(int argc, char** argv) {
  CLI::App app{"Chooses nodes and GPUs for pods, as an extender of kube-scheduler.",
               "tessera-scheduler"};
  app.set_version_flag("--version", std::string(tessera::kTesseraVersion));
  app.footer("SIGTERM completes current bindings and releases the Lease.");
  tessera::SchedulerFlags flags;
  tessera::AddSchedulerFlags(&app, &flags);
  if (const auto done = tessera::ParseFlags(&app, argc, argv)) return *done;
  tessera::ConfigureLogFormat(flags.log_format);
  const auto options = tessera::ToOptions(flags);
  if (!options.ok()) {
    tessera::Log(tessera::Severity::kError, options.status().message());
    return tessera::InfoOf(options.status().code()).exit_code;
  }
  return tessera::scheduler::RunScheduler(*options);
}
