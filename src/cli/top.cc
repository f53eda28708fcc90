// SPDX-License-Identifier: Apache-2.0
#include "src/cli/top.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "src/cli/agents.h"
#include "src/cli/options.h"
#include "src/cli/output/text.h"
#include "src/cli/session.h"
#include "src/cli/verbs.h"
#include "src/kube/client.h"
#include "src/kube/informer.h"
#include "src/kube/objects.h"
#include "src/net/io_thread.h"

namespace tessera::cli {
namespace {

// The sampling interval of the agents.
constexpr Duration kRefreshInterval = std::chrono::seconds(1);
constexpr const char* kClearScreen = "\033[H\033[2J\033[3J";

struct TopOptions {
  ClusterOptions cluster;
  NamespaceOptions ns;
  StyleOptions style;
  std::string selector;
  bool watch = false;
};

// The pods that a label selector selects, by the API server.
class PodSelection {
 public:
  using Done = std::function<void(Result<std::set<std::string>>)>;  // "namespace/name"

  explicit PodSelection(kube::Client& client) : client_(client) {}

  // Calls `done` once, but not after the PodSelection is destroyed. `ns`: "" for all namespaces.
  void Read(const std::string& ns, const std::string& selector, Done done);

 private:
  void ReadPage(const kube::ListQuery& query);

  kube::Client& client_;
  std::set<std::string> pods_;
  Done done_;
  kube::Operation listing_;
};

void PodSelection::Read(const std::string& ns, const std::string& selector, Done done) {
  pods_.clear();
  done_ = std::move(done);
  ReadPage({.type = kube::kPods, .ns = ns, .label_selector = selector});
}

void PodSelection::ReadPage(const kube::ListQuery& query) {
  listing_ = client_.List(query, [this, query](const Result<kube::ListPage>& page) {
    if (!page.ok()) return done_(page.status().Annotate("cannot list the pods of --selector"));
    for (const kube::RawObject& raw : page->items) {
      kube::PodObject pod;
      if (kube::DecodeObject(raw, {}, &pod).ok()) pods_.insert(kube::KeyOf(pod.meta));
    }
    if (page->continue_token.empty()) return done_(std::move(pods_));
    kube::ListQuery next = query;
    next.continue_token = page->continue_token;
    ReadPage(next);
  });
}

class Top {
 public:
  Top(TopOptions options, Style style, kube::Config config)
      : options_(std::move(options)),
        style_(std::move(style)),
        ns_(options_.ns.Resolve(config.default_namespace)),
        client_(io_, runner_, std::move(config), ClientOptionsOf(options_.cluster.timeout())),
        reader_(client_),
        pods_(client_) {}

  int Run() {
    runner_.Post([this] { Read(); });
    runner_.Run();
    return exit_code_;
  }

 private:
  void Read() {
    if (options_.selector.empty()) return ReadAgents();
    pods_.Read(ns_, options_.selector, [this](Result<std::set<std::string>> pods) {
      if (!pods.ok()) return Print(pods.status());
      selected_ = *std::move(pods);
      ReadAgents();
    });
  }

  void ReadAgents() {
    reader_.Read("", [this](Result<ClusterUses> uses) {
      if (uses.ok() && !options_.selector.empty()) {
        std::erase_if(uses->uses, [this](const ContainerUse& use) {
          return !selected_.contains(kube::KeyOf(use.ns, use.pod));
        });
      }
      Print(uses);
    });
  }

  void Print(const Result<ClusterUses>& uses) {
    const Status problem = uses.ok() ? ProblemOf(*uses) : uses.status();
    if (!problem.ok()) {
      exit_code_ = Fail(problem);
    } else {
      exit_code_ = 0;
      for (const auto& [node, status] : uses->problems) {
        std::fprintf(stderr, "tessera: node %s: %s\n", Printable(node).c_str(),
                     Printable(status.message()).c_str());
      }
      const Result<std::string> text = ShowTop(*uses, ns_, style_);
      if (!text.ok()) {
        exit_code_ = Fail(text.status());
        return runner_.Quit();
      }
      if (*text != last_output_ && !Write(*text)) return runner_.Quit();
      last_output_ = *text;
    }
    if (!options_.watch) return runner_.Quit();
    runner_.PostDelayed(kRefreshInterval, [this] { Read(); });
  }

  bool Write(const std::string& text) {
    const bool again = options_.watch && !last_output_.empty();
    const bool on_terminal = ::isatty(STDOUT_FILENO) == 1;
    if (options_.watch && on_terminal) std::fputs(kClearScreen, stdout);
    if (again && !on_terminal) std::fputs("\n", stdout);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  }

  const TopOptions options_;
  const Style style_;
  const std::string ns_;  // "": all
  EpollTaskRunner runner_;
  net::IoThread io_;
  kube::Client client_;
  AgentReader reader_;
  PodSelection pods_;
  std::set<std::string> selected_;  // "ns/name"
  std::string last_output_;
  int exit_code_ = 0;
};

}  // namespace

Status ProblemOf(const ClusterUses& uses) {
  if (!uses.uses.empty() || uses.problems.empty()) return Status::Ok();
  const auto& [node, status] = *uses.problems.begin();
  const std::string what = fmt::format("no agent reports usage; the agent of node {}", node);
  if (status.code() != Code::kPermissionDenied) return status.Annotate(what);
  return status.Annotate(
      "no permission to read from the agents: ask an administrator for get on pods/proxy in their "
      "namespace (Role tessera-view-usage)");
}

Action AddTop(CLI::App* app) {
  auto options = std::make_shared<TopOptions>();
  AddNamespaceOption(app, &options->ns);
  AddAllNamespacesOption(app, &options->ns);
  AddSelectorOption(app, &options->selector, "only pods with these labels");
  AddWatchOption(app, &options->watch);
  AddListOptions(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  return [options] {
    Result<Style> style = StyleOf(options->style);
    if (!style.ok()) return Fail(style.status());
    Result<kube::Config> config = ConfigOf(options->cluster);
    if (!config.ok()) return Fail(config.status());
    return Top(*options, *std::move(style), *std::move(config)).Run();
  };
}

}  // namespace tessera::cli
