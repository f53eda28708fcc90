// SPDX-License-Identifier: Apache-2.0
#include "src/cli/run.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "src/cli/command_line.h"
#include "src/cli/session.h"
#include "src/cli/text.h"

namespace tessera::cli {
namespace {

constexpr Duration kWatchEvery = std::chrono::seconds(1);
constexpr const char* kClearScreen = "\033[H\033[2J\033[3J";

bool IsPerson() {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0') &&
         (term == nullptr || std::string_view(term) != "dumb");
}

int Fail(const Status& status) {
  std::fprintf(stderr, "tessera: %s\n", Printable(status.message()).c_str());
  return InfoOf(status.code()).exit_code;
}

// One run of a command: waits for the cluster, prints, and goes on where it watches.
class Command {
 public:
  Command(CommandLine line, std::string default_namespace)
      : line_(std::move(line)), style_{line_.format, IsPerson()} {
    if (line_.ns.empty()) line_.ns = std::move(default_namespace);
  }

  // Ends the program.
  [[noreturn]] void Run(kube::Config config) {
    EpollTaskRunner runner;
    net::IoThread io;
    runner_ = &runner;
    runner.Post([&] {
      session_ = std::make_unique<Session>(
          io, runner,
          SessionOptions{std::move(config), line_.policy, std::chrono::seconds(line_.timeout_s)},
          [this](const Status& status) { OnReady(status); });
    });
    runner.Run();
    // The answer is out. To take the account of a large cluster apart, pod by pod, would only keep a
    // person waiting.
    std::fflush(nullptr);
    std::_Exit(exit_code_);
  }

 private:
  void OnReady(const Status& status) {
    if (!status.ok()) return Quit(Fail(status));
    const Status& quota = session_->quota_problem();
    if (!quota.ok()) {
      std::fprintf(stderr, "tessera: quotas are not known: %s\n",
                   Printable(quota.message()).c_str());
    }
    Print();
  }

  void Print() {
    const Result<std::string> text = Answer();
    if (!text.ok()) return Quit(Fail(text.status()));
    if (*text != last_) {
      if (line_.watch && ::isatty(STDOUT_FILENO) == 1) std::fputs(kClearScreen, stdout);
      if (line_.watch && ::isatty(STDOUT_FILENO) == 0 && !last_.empty()) std::fputs("\n", stdout);
      std::fwrite(text->data(), 1, text->size(), stdout);
      if (std::fflush(stdout) != 0) return Quit(Fail(Status::FromErrno("stdout", errno)));
      last_ = *text;
    }
    if (!line_.watch) return Quit(AnswerCode());
    runner_->PostDelayed(kWatchEvery, [this] { Print(); });
  }

  Result<std::string> Answer() {
    ledger::ClusterLedger& ledger = session_->ledger();
    if (line_.verb == Verb::kExplain) {
      ASSIGN_OR_RETURN(const kube::PodObject* pod, FindPod());
      return Explain(ledger, session_->facts(), *pod, style_);
    }
    const View view(ledger, session_->facts());
    switch (line_.verb) {
      case Verb::kNodes:
        return ShowNodes(view, style_);
      case Verb::kGpus:
        return ShowGpus(view, line_.node, style_);
      case Verb::kPods:
        return ShowPods(view, line_.all_namespaces ? "" : line_.ns, style_);
      case Verb::kQuota:
        return ShowQuota(view, quota_namespace_, session_->quota_problem(), style_);
      default:
        return InspectGpushare(view, {line_.details, line_.node});
    }
  }

  // Quotas that are not known are an answer to everything but to the question for them.
  int AnswerCode() const {
    if (line_.verb != Verb::kQuota) return 0;
    return InfoOf(session_->quota_problem().code()).exit_code;
  }

  Result<const kube::PodObject*> FindPod() {
    std::string ns = line_.ns, name = line_.pod;
    if (const size_t slash = name.find('/'); slash != std::string::npos) {
      const std::string before = name.substr(0, slash);
      name = name.substr(slash + 1);
      // As kubectl writes it: pod/NAME.
      if (before != "pod" && before != "pods" && before != "po") ns = before;
    }
    const kube::PodObject* pod = session_->FindPod(ns, name);
    if (pod == nullptr) return NoSuchPod(session_->ledger(), ns, name);
    return pod;
  }

  void Quit(int exit_code) {
    exit_code_ = exit_code;
    runner_->Quit();
  }

  CommandLine line_;
  const std::string quota_namespace_ = line_.ns;  // as it was typed
  const Style style_;
  EpollTaskRunner* runner_ = nullptr;
  std::unique_ptr<Session> session_;
  std::string last_;
  int exit_code_ = 0;
};

}  // namespace

int RunCli(int argc, const char* const* argv) {
  CommandLine line;
  if (const std::optional<int> done = ParseCommandLine(argc, argv, &line)) return *done;
  Result<kube::Config> config = FindClusterConfig(line.kubeconfig, line.context, ::getenv);
  if (!config.ok()) return Fail(config.status());
  std::string ns = config->default_namespace;
  Command(std::move(line), std::move(ns)).Run(*std::move(config));
}

}  // namespace tessera::cli
