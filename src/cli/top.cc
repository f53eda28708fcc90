// SPDX-License-Identifier: Apache-2.0
#include "src/cli/top.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "src/cli/agents.h"
#include "src/cli/text.h"
#include "src/net/io_thread.h"

namespace tessera::cli {
namespace {

// The sampling interval of the agents.
constexpr Duration kRefreshInterval = std::chrono::seconds(1);
constexpr const char* kClearScreen = "\033[H\033[2J\033[3J";

kube::ClientOptions OptionsOf(const CliOptions& line) {
  kube::ClientOptions options;
  options.user_agent = "tessera-cli";
  options.deadline = std::chrono::seconds(line.timeout_s);
  options.max_attempts = 2;
  return options;
}

class Top {
 public:
  Top(CliOptions line, Style style, std::string ns, kube::Config config)
      : line_(std::move(line)),
        style_(style),
        ns_(line_.all_namespaces ? ""
            : line_.ns.empty()   ? std::move(ns)
                                 : line_.ns),
        client_(io_, runner_, std::move(config), OptionsOf(line_)),
        reader_(client_, std::chrono::seconds(line_.timeout_s)) {}

  int Run() {
    runner_.Post([this] { Read(); });
    runner_.Run();
    return exit_code_;
  }

 private:
  void Read() {
    reader_.Read("", [this](const Result<ClusterUses>& uses) { Print(uses); });
  }

  void Print(const Result<ClusterUses>& uses) {
    const Status problem = uses.ok() ? ProblemOf(*uses) : uses.status();
    if (!problem.ok()) {
      std::fprintf(stderr, "tessera: %s\n", Printable(problem.message()).c_str());
      exit_code_ = InfoOf(problem.code()).exit_code;
    } else {
      exit_code_ = 0;
      for (const auto& [node, status] : uses->problems) {
        std::fprintf(stderr, "tessera: node %s: %s\n", Printable(node).c_str(),
                     Printable(status.message()).c_str());
      }
      const std::string text = ShowTop(*uses, ns_, style_, !line_.no_headers);
      if (text != last_ && !Write(text)) return runner_.Quit();
      last_ = text;
    }
    if (!line_.watch) return runner_.Quit();
    runner_.PostDelayed(kRefreshInterval, [this] { Read(); });
  }

  bool Write(const std::string& text) {
    const bool again = line_.watch && !last_.empty();
    const bool on_terminal = ::isatty(STDOUT_FILENO) == 1;
    if (line_.watch && on_terminal) std::fputs(kClearScreen, stdout);
    if (again && !on_terminal) std::fputs("\n", stdout);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  }

  const CliOptions line_;
  const Style style_;
  const std::string ns_;  // "": all
  EpollTaskRunner runner_;
  net::IoThread io_;
  kube::Client client_;
  AgentReader reader_;
  std::string last_;
  int exit_code_ = 0;
};

}  // namespace

Status ProblemOf(const ClusterUses& uses) {
  if (!uses.uses.empty() || uses.problems.empty()) return Status::Ok();
  const auto& [node, status] = *uses.problems.begin();
  const std::string what = fmt::format("no agent reports usage; the one of node {}", node);
  if (status.code() != Code::kPermissionDenied) return status.Annotate(what);
  return status.Annotate(
      "no permission to read from the agents: ask an administrator for get on pods/proxy in their "
      "namespace (Role tessera-view-usage)");
}

int RunTop(const CliOptions& line, Style style, const std::string& ns, kube::Config config) {
  return Top(line, style, ns, std::move(config)).Run();
}

}  // namespace tessera::cli
