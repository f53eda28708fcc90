// SPDX-License-Identifier: Apache-2.0
#include "src/cli/snapshot.h"

#include <functional>
#include <optional>
#include <utility>

#include "src/kube/watch.h"
#include "src/placement/quota.h"

namespace tessera::cli {
namespace {

// Passes each object of a collection to a sink, once.
template <typename T>
class ListCollector final : private kube::Watch::Delegate {
 public:
  struct Sink {
    std::function<void(T)> on_object;
    std::function<void()> on_end;
    std::function<void(const Status&)> on_error;
  };

  ListCollector(kube::Client& client, kube::ListQuery query, kube::KeptFields kept_fields,
                Sink sink)
      : kept_fields_(std::move(kept_fields)), sink_(std::move(sink)) {
    query.type = T::kType;
    query.encoding = kube::Encoding::kProtobuf;
    watch_ = std::make_unique<kube::Watch>(client, std::move(query),
                                           static_cast<kube::Watch::Delegate&>(*this),
                                           kube::Watch::Options{});
  }

 private:
  void OnListBegin() override {
    if (std::exchange(has_begun_, true)) {
      sink_.on_error(Error(Code::kAborted, "the list was interrupted and restarts"));
    }
  }
  void OnListEnd() override {
    watch_.reset();
    sink_.on_end();
  }
  void OnObject(const kube::RawObject& raw) override {
    T object;
    const Status status = kube::DecodeObject(raw, kept_fields_, &object);
    if (!status.ok()) return sink_.on_error(status);
    sink_.on_object(std::move(object));
  }
  void OnDeleted(const kube::RawObject&) override {}
  void OnError(const Status& status, Duration) override { sink_.on_error(status); }

  const kube::KeptFields kept_fields_;
  const Sink sink_;
  bool has_begun_ = false;
  std::unique_ptr<kube::Watch> watch_;
};

constexpr ledger::ExtraKeptFields kExtraFields{.scheduling_constraints = true};

}  // namespace

struct Snapshot::State {
  State(kube::Client& client, ledger::ClusterLedger& ledger, Options o, Delegate& delegate)
      : ledger(ledger), options(std::move(o)), delegate(delegate) {
    nodes.emplace(client, kube::ListQuery{.label_selector = options.feed.node_selector},
                  ledger::KeptNodeFields(ledger.options().labels, kExtraFields),
                  ListCollector<kube::NodeObject>::Sink{
                      [this](const kube::NodeObject& node) { AddNode(node); },
                      [this] { OnListEnded(); }, ErrorHandlerFor("nodes")});
    pods.emplace(
        client,
        kube::ListQuery{.ns = options.feed.pods_ns, .label_selector = options.feed.pod_selector},
        ledger::KeptPodFields(kExtraFields),
        ListCollector<kube::PodObject>::Sink{
            [this](kube::PodObject pod) { AddPod(std::move(pod)); }, [this] { OnListEnded(); },
            ErrorHandlerFor("pods")});
    if (options.feed.quota_name.empty()) {
      OnListEnded();
      return;
    }
    quota.emplace(client,
                  kube::ListQuery{.ns = options.feed.quota_ns,
                                  .field_selector = "metadata.name=" + options.feed.quota_name},
                  kube::KeptFields{},
                  ListCollector<kube::ConfigMapObject>::Sink{
                      [this](const kube::ConfigMapObject& map) { SetQuota(map); },
                      [this] { OnListEnded(); }, ErrorHandlerFor("quota")});
  }

  std::function<void(const Status&)> ErrorHandlerFor(std::string_view what) {
    return [this, what](const Status& status) { delegate.OnError(what, status); };
  }

  void OnListEnded() {
    if (--pending_lists == 0) delegate.OnSynced();
  }

  void AddNode(const kube::NodeObject& node) {
    ledger.SetNode(node);
    const std::string& problem = ledger.FindNode(node.meta.name)->problem;
    if (!problem.empty()) delegate.OnError("nodes", Status(Code::kInvalidArgument, problem));
  }

  void AddPod(kube::PodObject object) {
    ledger.SetPod(object);
    if (kube::KeyOf(object.meta) == options.kept_pod) kept_pod = std::move(object);
  }

  void SetQuota(const kube::ConfigMapObject& map) {
    const Result<placement::QuotaConfig> config = ledger::QuotaIn(map, options.feed.quota_key);
    if (!config.ok()) return delegate.OnError("quota", config.status());
    ledger.SetQuota(*config);
    delegate.OnQuota();
  }

  ledger::ClusterLedger& ledger;
  const Options options;
  Delegate& delegate;
  int pending_lists = 3;  // lists that have not ended
  std::optional<kube::PodObject> kept_pod;
  std::optional<ListCollector<kube::NodeObject>> nodes;
  std::optional<ListCollector<kube::PodObject>> pods;
  std::optional<ListCollector<kube::ConfigMapObject>> quota;
};

Snapshot::Snapshot(kube::Client& client, ledger::ClusterLedger& ledger, Options options,
                   Delegate& delegate)
    : state_(std::make_unique<State>(client, ledger, std::move(options), delegate)) {}
Snapshot::~Snapshot() = default;

const kube::PodObject* Snapshot::FindPod(const std::string& key) const {
  return state_->kept_pod && kube::KeyOf(state_->kept_pod->meta) == key ? &*state_->kept_pod
                                                                        : nullptr;
}

}  // namespace tessera::cli
