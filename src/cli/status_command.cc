// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "src/cli/options.h"
#include "src/cli/session.h"
#include "src/cli/status.h"
#include "src/cli/status_reader.h"
#include "src/cli/verbs.h"
#include "src/net/io_thread.h"

namespace tessera::cli {
namespace {

constexpr Duration kPause = std::chrono::seconds(1);
constexpr int kExitProblem = 1;

struct StatusOptions {
  ClusterOptions cluster;
  StyleOptions style;
  bool wait = false;
};

class StatusCommand {
 public:
  StatusCommand(const StatusOptions& options, Style style, kube::Config config)
      : wait_(options.wait),
        style_(std::move(style)),
        end_(runner_.clock().Now() + options.cluster.timeout()),
        client_(io_, runner_, std::move(config), ClientOptionsOf(options.cluster.timeout())),
        reader_(client_) {}

  int Run() {
    runner_.Post([this] { Read(); });
    runner_.Run();
    return exit_code_;
  }

 private:
  void Read() {
    reader_.Read([this](const Result<InstallationObjects>& objects) { OnObjects(objects); });
  }

  void OnObjects(const Result<InstallationObjects>& objects) {
    if (!objects.ok()) return Quit(Fail(objects.status()));
    const InstallationStatus status = StatusOf(*objects);
    const bool late = runner_.clock().Now() + kPause > end_;
    if (!status.works() && wait_ && !late) {
      runner_.PostDelayed(kPause, [this] { Read(); });
      return;
    }
    const Result<std::string> text = ShowStatus(status, style_);
    if (!text.ok()) return Quit(Fail(text.status()));
    if (const int failed = PrintOut(*text)) return Quit(failed);
    if (status.works()) return Quit(0);
    Quit(wait_ ? InfoOf(Code::kDeadlineExceeded).exit_code : kExitProblem);
  }

  void Quit(int exit_code) {
    exit_code_ = exit_code;
    runner_.Quit();
  }

  const bool wait_;
  const Style style_;
  EpollTaskRunner runner_;
  const MonotonicTime end_;
  net::IoThread io_;
  kube::Client client_;
  StatusReader reader_;
  int exit_code_ = 0;
};

int RunStatus(const StatusOptions& options) {
  Result<Style> style = StyleOf(options.style);
  if (!style.ok()) return Fail(style.status());
  Result<kube::Config> config = ConfigOf(options.cluster);
  if (!config.ok()) return Fail(config.status());
  return StatusCommand(options, *std::move(style), *std::move(config)).Run();
}

}  // namespace

Action AddStatus(CLI::App* app) {
  auto options = std::make_shared<StatusOptions>();
  app->add_flag("--wait", options->wait, "wait until all of them work, at most --timeout");
  AddOutputOption(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  app->footer("Exit codes: 0 all works; 1 something does not; 75 it still does not after --wait.");
  return [options] { return RunStatus(*options); };
}

}  // namespace tessera::cli
