// SPDX-License-Identifier: Apache-2.0
// `tessera top`: the GPU usage of containers with a share, once or repeatedly. Unlike other
// commands it reads only the agents' pages, and needs no ledger (src/ledger).
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/names.h"
#include "src/cli/agents.h"
#include "src/cli/gpu_pods.h"
#include "src/cli/options.h"
#include "src/cli/output/text.h"
#include "src/cli/session.h"
#include "src/cli/usage.h"
#include "src/cli/verbs.h"
#include "src/cli/view.h"
#include "src/device/request.h"
#include "src/kube/client.h"
#include "src/kube/informer.h"
#include "src/kube/objects.h"
#include "src/net/io_thread.h"

namespace tessera::cli {
namespace {

// The sampling interval of the agents.
constexpr Duration kRefreshInterval = std::chrono::seconds(1);
// How often -w lists the nodes, which are large objects.
constexpr Duration kNodesInterval = std::chrono::minutes(1);

struct TopOptions {
  ClusterOptions cluster;
  NamespaceOptions ns;
  StyleOptions style;
  std::string pod;  // NAME, NAMESPACE/NAME or pod/NAME; "": all pods
  std::string selector;
  bool watch = false;
};

// Lists the objects of one type once, page by page, without a watch. Objects that cannot be decoded
// are skipped. The client must outlive the lister, and runs the callbacks on its runner.
template <typename T>
class ObjectLister {
 public:
  using Done = std::function<void(Result<std::vector<T>>)>;

  explicit ObjectLister(kube::Client& client, kube::KeptFields kept_fields = {})
      : client_(client), kept_fields_(std::move(kept_fields)) {}

  // Calls `done` once, but not after the lister is destroyed; a later Read cancels an earlier one.
  // `query.type` is that of T.
  void Read(kube::ListQuery query, Done done) {
    objects_.clear();
    done_ = std::move(done);
    query.type = T::kType;
    query.encoding = kube::Encoding::kProtobuf;
    ReadPage(query);
  }

 private:
  void ReadPage(const kube::ListQuery& query) {
    listing_ = client_.List(query, [this, query](const Result<kube::ListPage>& page) {
      if (!page.ok()) return std::exchange(done_, nullptr)(page.status());
      for (const kube::RawObject& raw : page->items) {
        T object;
        if (kube::DecodeObject(raw, kept_fields_, &object).ok()) {
          objects_.push_back(std::move(object));
        }
      }
      if (page->continue_token.empty()) {
        return std::exchange(done_, nullptr)(std::move(objects_));
      }
      kube::ListQuery next = query;
      next.continue_token = page->continue_token;
      ReadPage(next);
    });
  }

  kube::Client& client_;
  const kube::KeptFields kept_fields_;
  std::vector<T> objects_;
  Done done_;
  kube::Operation listing_;
};

class Top {
 public:
  Top(TopOptions options, Style style, kube::Config config)
      : options_(std::move(options)),
        style_(std::move(style)),
        ns_(NamespaceOf(options_, config.default_namespace)),
        pod_(PodKeyIn(options_.pod, ns_).second),
        client_(io_, runner_, std::move(config), ClientOptionsOf(options_.cluster.timeout())),
        reader_(client_),
        pods_(client_),
        nodes_(client_, KeptNodeFields()) {}

  int Run() {
    runner_.Post([this] { Read(); });
    runner_.Run();
    return exit_code_;
  }

 private:
  // The fields that HasGpuResources reads.
  static kube::KeptFields KeptNodeFields() {
    return {.label = [](std::string_view) { return false; },
            .annotation = [](std::string_view key) { return key == names::kAnnotationDevices; },
            .resource = device::IsGpuResource};
  }

  static std::string NamespaceOf(const TopOptions& options, const std::string& default_namespace) {
    const std::string ns = options.ns.Resolve(default_namespace);
    return options.pod.empty() ? ns : PodKeyIn(options.pod, ns).first;
  }

  void Read() {
    if (!pod_.empty()) return ReadPod();
    if (options_.selector.empty()) return ReadAgents("");
    pods_.Read({.ns = ns_, .label_selector = options_.selector},
               [this](const Result<std::vector<kube::PodObject>>& pods) {
                 if (!pods.ok()) {
                   return Print(pods.status().Annotate("cannot list the pods of --selector"));
                 }
                 selected_.clear();
                 for (const kube::PodObject& pod : *pods) selected_.insert(kube::KeyOf(pod.meta));
                 ReadAgents("");
               });
  }

  void ReadPod() {
    pod_operation_ = client_.Get(kube::Pod(ns_, pod_), [this](const Result<Json>& json) {
      if (json.status().code() == Code::kNotFound) return FindSimilarNames();
      if (!json.ok()) return Print(json.status());
      kube::PodObject pod;
      const Status status = kube::DecodeObject(kube::RawObject(*json), {}, &pod);
      if (!status.ok()) return Print(status);
      std::string reason = ReasonForNoShare(pod);
      if (reason.empty() && pod.node_name.empty()) {
        reason = fmt::format(
            "pod {0} has no share of a GPU yet: it waits for a node: see "
            "\"tessera explain {0}\"",
            kube::KeyOf(pod.meta));
      }
      if (!reason.empty()) return Print(Status(Code::kNotFound, std::move(reason)));
      selected_ = {kube::KeyOf(pod.meta)};
      ReadAgents(pod.node_name);
    });
  }

  void FindSimilarNames() {
    pods_.Read({.ns = ns_}, [this](const Result<std::vector<kube::PodObject>>& pods) {
      std::vector<std::string> names;
      for (size_t i = 0; pods.ok() && i < pods->size(); ++i) names.push_back((*pods)[i].meta.name);
      Print(Error(Code::kNotFound, "there is no pod \"{}\" in namespace {}{}", pod_, ns_,
                  DidYouMean(pod_, names)));
    });
  }

  // Reads the agent of one node, or all agents if `node` is "".
  void ReadAgents(const std::string& node) {
    reader_.Read(node, [this, node](Result<ClusterUses> uses) {
      if (uses.ok() && (!pod_.empty() || !options_.selector.empty())) {
        std::erase_if(uses->uses, [this](const ContainerUse& use) {
          return !selected_.contains(kube::KeyOf(use.ns, use.pod));
        });
      }
      if (uses.ok() && !pod_.empty() && uses->uses.empty() && uses->problems.empty()) {
        uses =
            Error(Code::kNotFound,
                  "no container of pod {0}/{1} that has a share runs on node {2}: see \"kubectl -n "
                  "{0} describe pod {1}\"",
                  ns_, pod_, node);
      }
      if (!uses.ok() || !node.empty()) return Print(uses);
      ReadNodes(*std::move(uses));
    });
  }

  // Finds nodes with GPUs and without an agent. A user who may not list nodes does not see them.
  void ReadNodes(ClusterUses uses) {
    const MonotonicTime now = runner_.clock().Now();
    if (nodes_read_at_ && now < *nodes_read_at_ + kNodesInterval) {
      return PrintWithNodes(std::move(uses));
    }
    nodes_.Read({}, [this, now, uses = std::move(uses)](
                        const Result<std::vector<kube::NodeObject>>& nodes) mutable {
      nodes_read_at_ = now;
      gpu_nodes_.clear();
      for (size_t i = 0; nodes.ok() && i < nodes->size(); ++i) {
        if (HasGpuResources((*nodes)[i])) gpu_nodes_.insert((*nodes)[i].meta.name);
      }
      if (!nodes.ok() && nodes.status().code() != Code::kPermissionDenied) {
        std::fprintf(stderr, "tessera: nodes without an agent are unknown: %s\n",
                     Printable(nodes.status().message()).c_str());
      }
      PrintWithNodes(std::move(uses));
    });
  }

  void PrintWithNodes(ClusterUses uses) {
    std::ranges::set_difference(
        gpu_nodes_, uses.agent_nodes,
        std::inserter(uses.nodes_without_agent, uses.nodes_without_agent.end()));
    Print(std::move(uses));
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
      for (const std::string& node : uses->nodes_without_agent) {
        std::fprintf(stderr, "tessera: %s\n", Printable(TextOfNodeWithoutAgent(node)).c_str());
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
    const bool has_written = options_.watch && !last_output_.empty();
    const bool on_terminal = ::isatty(STDOUT_FILENO) == 1;
    if (options_.watch && on_terminal) std::fputs(kClearScreen, stdout);
    if (has_written && !on_terminal) std::fputs("\n", stdout);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0;
  }

  const TopOptions options_;
  const Style style_;
  const std::string ns_;   // "": all
  const std::string pod_;  // "": all
  EpollTaskRunner runner_;
  net::IoThread io_;
  kube::Client client_;
  AgentReader reader_;
  ObjectLister<kube::PodObject> pods_;
  ObjectLister<kube::NodeObject> nodes_;
  std::set<std::string> gpu_nodes_;
  std::optional<MonotonicTime> nodes_read_at_;
  kube::Operation pod_operation_;
  std::set<std::string> selected_;  // "ns/name"
  std::string last_output_;
  int exit_code_ = 0;
};

}  // namespace

Action AddTop(CLI::App* app) {
  auto options = std::make_shared<TopOptions>();
  app->add_option("POD", options->pod, "only this pod: NAME or NAMESPACE/NAME");
  AddNamespaceOption(app, &options->ns);
  AddAllNamespacesOption(app, &options->ns);
  AddSelectorOption(app, &options->selector, "only pods with these labels");
  AddWatchOption(app, &options->watch);
  AddListOptions(app, &options->style);
  AddClusterOptions(app, &options->cluster);
  return [options] {
    Result<Style> style = StyleOf(options->style);
    if (!style.ok()) return Fail(style.status());
    const Status name =
        CheckNameWithoutSelector(options->pod, options->selector, options->style, options->ns);
    if (!name.ok()) return Fail(name);
    Result<kube::Config> config = ConfigOf(options->cluster);
    if (!config.ok()) return Fail(config.status());
    return Top(*options, *std::move(style), *std::move(config)).Run();
  };
}

}  // namespace tessera::cli
