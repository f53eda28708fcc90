// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <utility>

#include "src/cli/session.h"
#include "src/cli/status.h"
#include "src/cli/status_reader.h"
#include "src/cli/text.h"
#include "src/net/io_thread.h"

namespace tessera::cli {
namespace {

constexpr Duration kPause = std::chrono::seconds(1);
constexpr int kExitProblem = 1;

class StatusCommand {
 public:
  StatusCommand(const CliOptions& line, Style style, kube::Config config)
      : line_(line),
        style_(style),
        end_(runner_.clock().Now() + std::chrono::seconds(line.timeout_s)),
        client_(io_, runner_, std::move(config),
                ClientOptionsOf(std::chrono::seconds(line.timeout_s))),
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
    if (!objects.ok()) {
      std::fprintf(stderr, "tessera: %s\n", Printable(objects.status().message()).c_str());
      return Quit(InfoOf(objects.status().code()).exit_code);
    }
    const InstallationStatus status = StatusOf(*objects);
    const bool late = runner_.clock().Now() + kPause > end_;
    if (!status.works() && line_.wait && !late) {
      runner_.PostDelayed(kPause, [this] { Read(); });
      return;
    }
    std::fputs(ShowStatus(status, style_).c_str(), stdout);
    if (std::fflush(stdout) != 0) return Quit(InfoOf(Code::kInternal).exit_code);
    if (status.works()) return Quit(0);
    Quit(line_.wait ? InfoOf(Code::kDeadlineExceeded).exit_code : kExitProblem);
  }

  void Quit(int exit_code) {
    exit_code_ = exit_code;
    runner_.Quit();
  }

  const CliOptions& line_;
  const Style style_;
  EpollTaskRunner runner_;
  const MonotonicTime end_;
  net::IoThread io_;
  kube::Client client_;
  StatusReader reader_;
  int exit_code_ = 0;
};

}  // namespace

int RunStatus(const CliOptions& line, Style style, kube::Config config) {
  return StatusCommand(line, style, std::move(config)).Run();
}

}  // namespace tessera::cli
