// SPDX-License-Identifier: Apache-2.0
#include "src/cli/ledger_command.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "src/cli/agents.h"
#include "src/cli/commands.h"
#include "src/cli/follower.h"
#include "src/cli/gpu_pods.h"
#include "src/cli/output/text.h"
#include "src/cli/session.h"
#include "src/cli/usage.h"

namespace tessera::cli {
namespace {

constexpr Duration kWatchInterval = std::chrono::seconds(1);

// Runs one command: waits for the cluster, prints, and repeats if it watches.
class LedgerCommandRun {
 public:
  LedgerCommandRun(LedgerCommandOptions options, Style style, const std::string& default_namespace)
      : options_(std::move(options)),
        style_(std::move(style)),
        ns_(options_.ns.Resolve(default_namespace)) {
    options_.node = NodeNameIn(options_.node);
    for (std::string& name : options_.names)
      name = ListsPods() ? PodNameIn(name) : NodeNameIn(name);
  }

  // Ends the program. `load_config` reloads the configuration.
  [[noreturn]] void Run(kube::Config config, Follower::LoadConfig load_config) {
    EpollTaskRunner runner;
    net::IoThread io;
    runner_ = &runner;
    runner.Post([&] {
      follower_ = std::make_unique<Follower>(
          io, runner,
          SessionOptions{.config = std::move(config),
                         .policy = options_.policy,
                         .timeout = options_.cluster.timeout(),
                         .follow = options_.watch,
                         .pods_ns = PodsNamespace(),
                         .kept_pod = KeptPod(),
                         .node_selector = ListsPods() ? "" : options_.selector,
                         .pod_selector = ListsPods() ? options_.selector : ""},
          std::move(load_config), [this](const Status& status) { OnReady(status); });
    });
    runner.Run();
    // The output is complete. Skips the destructors, because those of a large ledger take
    // noticeable time.
    std::fflush(nullptr);
    std::_Exit(exit_code_);
  }

 private:
  void OnReady(const Status& status) {
    if (!status.ok()) return Quit(Fail(status));
    const Status& quota = session().quota_problem();
    if (!quota.ok()) {
      std::fprintf(stderr, "tessera: quotas are unknown: %s\n", Printable(quota.message()).c_str());
    }
    if (options_.verb == LedgerVerb::kLimit) return ChangeLimits();
    if (options_.verb == LedgerVerb::kExplain) return ReadWarnings();
    Print();
  }

  const ledger::PodEntry* EntryOf(const kube::PodObject& pod) const {
    const auto& pods = session().ledger().pods();
    const auto entry = pods.find(pod.meta.uid);
    return entry == pods.end() ? nullptr : &entry->second;
  }

  // A user who may not list Events sees the explanation without them.
  void ReadWarnings() {
    const Result<const kube::PodObject*> pod = FindPod();
    if (!pod.ok()) return Print();
    const kube::ObjectMeta& meta = (*pod)->meta;
    const kube::ListQuery query = WarningsQuery(meta.ns, meta.uid);
    list_operation_ = session().client().List(query, [this](const Result<kube::ListPage>& page) {
      if (page.ok()) warnings_ = WarningsIn(page->items);
      ReadUsage();
    });
  }

  // Reads the pod's usage from the agent of its node. The explanation is printed also without it.
  void ReadUsage() {
    const Result<const kube::PodObject*> pod = FindPod();
    if (!pod.ok() || (*pod)->node_name.empty()) return Print();
    agent_reader_ = std::make_unique<AgentReader>(session().client());
    agent_reader_->Read((*pod)->node_name, [this](Result<ClusterUses> uses) {
      uses_ = std::move(uses);
      Print();
    });
  }

  void ChangeLimits() {
    const Result<const kube::PodObject*> pod = FindPod();
    if (!pod.ok()) return Quit(Fail(pod.status()));
    const ledger::PodEntry* entry = EntryOf(**pod);
    if (entry == nullptr) {
      return Quit(Fail(Status(Code::kInvalidArgument, ReasonForNoShare(**pod))));
    }
    const Result<Json> patch = LimitPatch(*entry, options_.limits);
    if (!patch.ok()) return Quit(Fail(patch.status()));
    if ((*pod)->node_name.empty()) return PatchLimits(**pod, *patch, ClusterUses());
    // The agent reports whether the containers have a limiter.
    agent_reader_ = std::make_unique<AgentReader>(session().client());
    agent_reader_->Read((*pod)->node_name,
                        [this, pod = **pod, patch = *patch](Result<ClusterUses> uses) {
                          PatchLimits(pod, patch, std::move(uses));
                        });
  }

  void PatchLimits(const kube::PodObject& pod, const Json& patch, Result<ClusterUses> uses) {
    std::vector<ContainerUse> pod_uses;
    if (uses.ok()) pod_uses = UsesOf(*uses, pod.meta.ns, pod.meta.name);
    const Status limited = CheckLimited(pod_uses, options_.limits);
    if (!limited.ok()) return Quit(Fail(limited));
    const ledger::PodEntry* entry = EntryOf(pod);
    std::string text;
    if (entry != nullptr) text = LimitText(*entry, options_.limits, pod_uses);
    patch_operation_ = session().client().Patch(
        kube::Pod(pod.meta.ns, pod.meta.name), kube::PatchKind::kMerge, patch,
        {.field_manager = "tessera"},
        [this, text = std::move(text),
         usage_problem = UsageProblem(uses)](const Result<Json>& answer) {
          if (!answer.ok()) return Quit(Fail(answer.status()));
          if (!usage_problem.ok() && usage_problem.code() != Code::kPermissionDenied) {
            return Quit(
                Fail(usage_problem.Annotate("the limit is recorded and does not hold yet")));
          }
          std::fputs(text.c_str(), stdout);
          if (usage_problem.ok()) return Quit(0);
          std::fputs(
              "tessera: cannot check that the limit holds: reading from the agents needs Role "
              "tessera-view-usage\n",
              stderr);
          Quit(0);
        });
  }

  void Print() {
    Result<std::string> text = Render();
    if (!text.ok()) return Quit(Fail(text.status()));
    ReportStale(&*text);
    if (*text != last_output_) {
      if (options_.watch && on_terminal_) std::fputs(kClearScreen, stdout);
      if (options_.watch && !on_terminal_ && !last_output_.empty()) std::fputs("\n", stdout);
      std::fwrite(text->data(), 1, text->size(), stdout);
      if (std::fflush(stdout) != 0) return Quit(Fail(Status::FromErrno("stdout", errno)));
      last_output_ = *text;
    }
    if (!options_.watch) return Quit(ExitCode());
    runner_->PostDelayed(kWatchInterval, [this] { Print(); });
  }

  // Reports a stale session at the top of a terminal's screen, otherwise on stderr, so that the
  // output stays valid JSON.
  void ReportStale(std::string* text) {
    if (on_terminal_) {
      const std::string stale = follower_->StaleLine();
      if (!stale.empty()) text->insert(0, "*** " + stale + " ***\n\n");
      return;
    }
    const std::string notice = follower_->StaleNotice();
    if (!notice.empty()) std::fprintf(stderr, "tessera: %s\n", notice.c_str());
  }

  Session& session() const { return follower_->session(); }

  Result<std::string> Render() {
    ledger::ClusterLedger& ledger = session().ledger();
    if (options_.verb == LedgerVerb::kExplain) {
      ASSIGN_OR_RETURN(const kube::PodObject* pod, FindPod());
      return Explain(ledger, *pod, style_, uses_ ? &*uses_ : nullptr, warnings_);
    }
    const ClusterView view(ledger);
    switch (options_.verb) {
      case LedgerVerb::kNodes:
        return ShowNodes(view, style_, options_.names, options_.selector);
      case LedgerVerb::kGpus:
        return ShowGpus(view, options_.node, style_, options_.selector);
      case LedgerVerb::kPods:
        return ShowPods(view, ns_, style_, options_.names);
      case LedgerVerb::kQuota:
        // Without -n all namespaces.
        return ShowQuota(view, options_.ns.Resolve(""), session().quota_problem(), style_);
      default:
        return InspectGpushare(view, {options_.details, options_.node});
    }
  }

  // Unknown quotas are an error only for `tessera quota`.
  int ExitCode() const {
    if (options_.verb != LedgerVerb::kQuota) return 0;
    return InfoOf(session().quota_problem().code()).exit_code;
  }

  // Only `pods` can omit other namespaces: the GPUs and quotas of a cluster depend on all pods.
  std::string PodsNamespace() const { return ListsPods() ? ns_ : ""; }
  bool ListsPods() const { return options_.verb == LedgerVerb::kPods; }

  std::string KeptPod() const {
    const bool is_about_a_pod =
        options_.verb == LedgerVerb::kExplain || options_.verb == LedgerVerb::kLimit;
    return is_about_a_pod ? kube::KeyOf(PodKey().first, PodKey().second) : "";
  }

  // Namespace and name from the command line.
  std::pair<std::string, std::string> PodKey() const { return PodKeyIn(options_.pod, ns_); }

  Result<const kube::PodObject*> FindPod() {
    const auto [ns, name] = PodKey();
    const kube::PodObject* pod = session().FindPod(ns, name);
    if (pod == nullptr) return NoSuchPod(session().ledger(), ns, name);
    return pod;
  }

  void Quit(int exit_code) {
    exit_code_ = exit_code;
    runner_->Quit();
  }

  LedgerCommandOptions options_;
  const Style style_;
  const std::string ns_;  // "": all
  EpollTaskRunner* runner_ = nullptr;
  std::unique_ptr<Follower> follower_;
  std::unique_ptr<AgentReader> agent_reader_;
  std::optional<Result<ClusterUses>> uses_;
  std::vector<PodWarning> warnings_;
  kube::Operation list_operation_, patch_operation_;
  const bool on_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  std::string last_output_;
  int exit_code_ = 0;
};

}  // namespace

int RunLedgerCommand(const LedgerCommandOptions& options) {
  Result<Style> style = StyleOf(options.style);
  if (!style.ok()) return Fail(style.status());
  const std::string name = options.names.empty() ? "" : options.names.front();
  const Status names = CheckNameWithoutSelector(name, options.selector, options.style, options.ns);
  if (!names.ok()) return Fail(names);
  if (options.verb == LedgerVerb::kLimit) {
    const Status valid = CheckNewLimits(options.limits);
    if (!valid.ok()) return Fail(valid);
  }
  const auto load_config = [cluster = options.cluster] { return ConfigOf(cluster); };
  Result<kube::Config> config = load_config();
  if (!config.ok()) return Fail(config.status());
  const std::string ns = config->default_namespace;
  LedgerCommandRun(options, *std::move(style), ns).Run(*std::move(config), load_config);
}

}  // namespace tessera::cli
