// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/feed.h"

#include <utility>

namespace tessera::ledger {

Result<placement::QuotaConfig> QuotaIn(const kube::ConfigMapObject& map, std::string_view key) {
  const auto text = map.data.find(key);
  if (text == map.data.end()) return placement::QuotaConfig{};
  return placement::ParseQuota(text->second)
      .Annotate(fmt::format("ConfigMap {}/{}: {}", map.meta.ns, map.meta.name, key));
}

struct ClusterFeed::State {
  State(kube::Client& client, ClusterLedger& ledger, FeedOptions options, Delegate& delegate)
      : client(client), ledger(ledger), options(std::move(options)), delegate(delegate) {}

  // One handler for each informer.
  struct NodeHandler : kube::Informer<kube::NodeObject>::Handler {
    explicit NodeHandler(State& state) : state(state) {}
    void OnAdded(const kube::NodeObject& now) override { Set(now); }
    void OnChanged(const kube::NodeObject&, const kube::NodeObject& now) override { Set(now); }
    void OnRemoved(const kube::NodeObject& last) override { Remove(last.meta.name); }
    void OnOutline(const kube::NodeObject& now) override { Set(now); }
    void OnOutlineRemoved(const Uid& uid) override {
      const NodeEntry* node = state.ledger.FindNode(uid);
      if (node != nullptr) Remove(std::string(node->node.name));
    }
    void OnSynced() override { state.WatchPods(); }
    void OnError(const Status& status, Duration) override {
      state.delegate.OnError("nodes", status);
    }
    void OnRecovered() override { state.delegate.OnRecovered("nodes"); }
    void Set(const kube::NodeObject& now) {
      const NodeEntry* before = state.ledger.FindNode(now.meta.name);
      const std::string known = before == nullptr ? "" : before->problem;
      if (!state.ledger.SetNode(now)) return;
      if (state.synced) state.delegate.OnNode(now.meta.name);
      const std::string& problem = state.ledger.FindNode(now.meta.name)->problem;
      if (problem.empty() || problem == known) return;
      // The problem names the node.
      state.delegate.OnInvalid("nodes", Status(Code::kInvalidArgument, problem));
    }
    void Remove(const std::string& name) {
      state.ledger.RemoveNode(name);
      if (state.synced) state.delegate.OnNode(name);
    }
    State& state;
  };

  struct PodHandler : kube::Informer<kube::PodObject>::Handler {
    explicit PodHandler(State& state) : state(state) {}
    void OnAdded(const kube::PodObject& now) override { Set(now); }
    void OnChanged(const kube::PodObject&, const kube::PodObject& now) override { Set(now); }
    void OnRemoved(const kube::PodObject& last) override { Remove(last.meta.uid); }
    void OnOutline(const kube::PodObject& now) override {
      HasNoGpus(now) ? state.ledger.SetPod(now) : Set(now);
    }
    void OnOutlineRemoved(const Uid& uid) override {
      state.ledger.pods().contains(uid) ? Remove(uid) : state.ledger.RemovePod(uid);
    }
    void OnSynced() override { state.OnPartSynced(&state.pods_synced); }
    void OnError(const Status& status, Duration) override {
      state.delegate.OnError("pods", status);
    }
    void OnRecovered() override { state.delegate.OnRecovered("pods"); }
    void Set(const kube::PodObject& now) {
      state.ledger.SetPod(now);
      if (state.options.reports_pod_runs) state.delegate.OnPodRun(now);
      if (state.synced) state.delegate.OnPod(now);
    }
    void Remove(const Uid& uid) {
      state.ledger.RemovePod(uid);
      if (state.synced) state.delegate.OnPodGone(uid);
    }
    State& state;
  };

  struct QuotaHandler : kube::Informer<kube::ConfigMapObject>::Handler {
    explicit QuotaHandler(State& state) : state(state) {}
    void OnAdded(const kube::ConfigMapObject& now) override { Set(now); }
    void OnChanged(const kube::ConfigMapObject&, const kube::ConfigMapObject& now) override {
      Set(now);
    }
    void OnRemoved(const kube::ConfigMapObject&) override {
      exists = false;
      Apply({});
    }
    void OnSynced() override {
      if (!exists) state.delegate.OnQuota();
      state.OnPartSynced(&state.quota_synced);
    }
    void OnError(const Status& status, Duration) override {
      state.delegate.OnError("quota", status);
    }
    void Set(const kube::ConfigMapObject& now) {
      exists = true;
      Result<placement::QuotaConfig> config = QuotaIn(now, state.options.quota_key);
      if (!config.ok()) return state.delegate.OnInvalid("quota", config.status());
      Apply(*std::move(config));
    }
    void Apply(placement::QuotaConfig config) {
      state.ledger.SetQuota(std::move(config));
      state.delegate.OnQuota();
    }
    State& state;
    bool exists = false;  // the API server has the ConfigMap
  };

  struct BudgetHandler : kube::Informer<kube::PodDisruptionBudgetObject>::Handler {
    explicit BudgetHandler(State& state) : state(state) {}
    using Object = kube::PodDisruptionBudgetObject;
    void OnAdded(const Object& now) override { state.ledger.budgets().Set(now); }
    void OnChanged(const Object&, const Object& now) override { state.ledger.budgets().Set(now); }
    void OnRemoved(const Object& last) override {
      state.ledger.budgets().Remove(last.meta.ns, last.meta.name);
    }
    void OnSynced() override { state.ledger.budgets().SetKnown(); }
    void OnError(const Status& status, Duration) override {
      state.delegate.OnError("budgets", status);
    }
    State& state;
  };
  static kube::KeptFields KeptFieldsOfBudgets() {
    const auto none = [](std::string_view) { return false; };
    return {.label = none, .annotation = none};
  }

  ExtraKeptFields ExtraFields() const {
    return {.pod_labels = options.watches_budgets || options.keeps_pod_labels,
            .scheduling_constraints = options.keeps_scheduling_constraints,
            .pod_runs = options.reports_pod_runs};
  }

  template <typename T>
  static bool IsAnyObject(const T&) {
    return true;
  }

  void Start() {
    nodes = std::make_unique<kube::Informer<kube::NodeObject>>(
        client, kube::ListQuery{.label_selector = options.node_selector},
        KeptNodeFields(ledger.options().labels, ExtraFields()), node_handler,
        kube::Watch::Options{}, options.keeps_objects ? nullptr : IsAnyObject<kube::NodeObject>);
    if (options.watches_budgets) {
      budgets = std::make_unique<kube::Informer<kube::PodDisruptionBudgetObject>>(
          client, kube::ListQuery{}, KeptFieldsOfBudgets(), budget_handler);
    }
    quota_synced = options.quota_name.empty();
    if (quota_synced) return;
    quotas = std::make_unique<kube::Informer<kube::ConfigMapObject>>(
        client,
        kube::ListQuery{.ns = options.quota_ns,
                        .field_selector = "metadata.name=" + options.quota_name},
        kube::KeptFields{}, quota_handler);
  }
  // Excludes pods that have ended, because they hold nothing. A watch with this selector reports a
  // pod as deleted when it ends.
  static constexpr const char* kNotEnded = "status.phase!=Succeeded,status.phase!=Failed";

  // Called once all nodes are known.
  void WatchPods() {
    if (pods) return;
    const bool all = options.watches_all_pods;
    pods = std::make_unique<kube::Informer<kube::PodObject>>(
        client,
        kube::ListQuery{.ns = options.pods_ns,
                        .label_selector = options.pod_selector,
                        .field_selector = all ? "" : kNotEnded},
        KeptPodFields(ExtraFields()), pod_handler, kube::Watch::Options{},
        !options.keeps_objects ? IsAnyObject<kube::PodObject>
        : all                  ? nullptr
                               : HasNoGpus);
  }
  void OnPartSynced(bool* part) {
    *part = true;
    if (synced || !pods_synced || !quota_synced) return;
    synced = true;
    delegate.OnSynced();
  }

  kube::Client& client;
  ClusterLedger& ledger;
  const FeedOptions options;
  Delegate& delegate;
  NodeHandler node_handler{*this};
  PodHandler pod_handler{*this};
  QuotaHandler quota_handler{*this};
  BudgetHandler budget_handler{*this};
  bool pods_synced = false, quota_synced = false, synced = false;
  std::unique_ptr<kube::Informer<kube::NodeObject>> nodes;
  std::unique_ptr<kube::Informer<kube::ConfigMapObject>> quotas;
  std::unique_ptr<kube::Informer<kube::PodDisruptionBudgetObject>> budgets;
  std::unique_ptr<kube::Informer<kube::PodObject>> pods;
};

ClusterFeed::ClusterFeed(kube::Client& client, ClusterLedger& ledger, FeedOptions options,
                         Delegate& delegate)
    : state_(std::make_unique<State>(client, ledger, std::move(options), delegate)) {
  state_->Start();
}
ClusterFeed::~ClusterFeed() = default;

bool ClusterFeed::synced() const { return state_->synced; }

const kube::PodObject* ClusterFeed::FindPod(const std::string& key) const {
  return state_->pods ? state_->pods->Find(key) : nullptr;
}

}  // namespace tessera::ledger
