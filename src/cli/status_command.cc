// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "src/cli/options.h"
#include "src/cli/status.h"
#include "src/cli/verbs.h"

namespace tessera::cli {
namespace {

constexpr Duration kStatusPollInterval = std::chrono::seconds(1);
constexpr Duration kMetricsTimeout = std::chrono::seconds(3);
constexpr int kExitProblem = 1;

struct StatusOptions {
  ClusterOptions cluster;
  StyleOptions style;
  std::string selector;
  bool wait = false;
};

int RunStatus(const StatusOptions& options) {
  const Result<Style> style = StyleOf(options.style);
  if (!style.ok()) return Fail(style.status());
  Result<kube::Config> config = ConfigOf(options.cluster);
  if (!config.ok()) return Fail(config.status());
  ClusterClient api(*std::move(config), options.cluster.timeout(), kMetricsTimeout);
  const MonotonicTime end = api.Now() + options.cluster.timeout();
  InstallationStatus status;
  for (;;) {
    const Result<InstallationObjects> objects = ReadInstallation(api, options.selector);
    if (!objects.ok()) return Fail(objects.status());
    status = StatusOf(*objects);
    if (status.works() || !options.wait || api.Now() + kStatusPollInterval > end) break;
    api.Sleep(kStatusPollInterval);
  }
  const Result<std::string> text = ShowStatus(status, *style);
  if (!text.ok()) return Fail(text.status());
  if (const int failed = PrintOut(*text)) return failed;
  if (status.works()) return 0;
  return options.wait ? InfoOf(Code::kDeadlineExceeded).exit_code : kExitProblem;
}

}  // namespace

Action AddStatus(CLI::App* app) {
  auto options = std::make_shared<StatusOptions>();
  app->add_flag("--wait", options->wait, "wait until all components work, at most --timeout");
  AddSelectorOption(app, &options->selector, "only nodes with these labels");
  AddListOptions(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  app->footer("Exit codes: 0 all works; 1 a component does not work; 75 --wait reached --timeout.");
  return [options] { return RunStatus(*options); };
}

}  // namespace tessera::cli
