// SPDX-License-Identifier: Apache-2.0
#include "src/console/cluster_model.h"

#include <utility>

#include "src/base/log.h"
#include "src/console/insight.h"

namespace tessera::console {
namespace {

// Computing reasons for more pods than this would delay all events.
constexpr size_t kMaxReasons = 500;

size_t HashOf(std::string_view text) { return std::hash<std::string_view>()(text); }

}  // namespace

ClusterModel::ClusterModel(kube::Client& client, ModelOptions options, Delegate& delegate)
    : client_(client),
      runner_(client.runner()),
      options_(std::move(options)),
      delegate_(delegate),
      probe_(client, options_.probe_interval,
             {.on_answer = [this] { OnRecovered(ledger::ServerProbe::kPath); },
              .on_silence =
                  [this](const Status& status, WallTime since) {
                    SetOutage(ledger::ServerProbe::kPath, status, since);
                  }}) {
  StartFeed(device::MemoryUnit::kGiB, !options_.feed.quota_name.empty());
}

void ClusterModel::StartFeed(device::MemoryUnit unit, bool with_quota) {
  feed_.reset();
  outages_.Clear();  // the outages belong to the feed that has ended
  synced_ = false;
  with_quota_ = with_quota;
  ledger::LedgerOptions options;
  options.policy = options_.policy;
  options.gpu_mem_unit = unit;
  auto ledger = ledger::ClusterLedger::Make(options, &runner_.clock());
  // The policy was checked with the flags.
  TESSERA_CHECK(ledger.ok());
  ledger_ = *std::move(ledger);
  ledger::FeedOptions feed = options_.feed;
  feed.keeps_objects = false;
  feed.keeps_scheduling_constraints = true;
  feed.reports_pod_runs = true;
  runs_.clear();
  if (!with_quota) feed.quota_name.clear();
  ledger::ClusterFeed::Delegate& self = *this;
  feed_ = std::make_unique<ledger::ClusterFeed>(client_, *ledger_, feed, self);
}

// Posted, because the calling feed must not be destroyed inside its callback.
void ClusterModel::StartFeedLater(device::MemoryUnit unit, bool with_quota) {
  runner_.Post([this, unit, with_quota, weak = weak_.Get()] {
    if (weak) StartFeed(unit, with_quota);
  });
}

void ClusterModel::OnSynced() {
  const device::MemoryUnit unit = ledger_->OfferedMemoryUnit();
  if (unit != ledger_->options().gpu_mem_unit) return StartFeedLater(unit, with_quota_);
  synced_ = true;
  // OnPodGone is not called for pods that end before the feed is synced.
  std::erase_if(runs_, [&](const auto& run) { return !ledger_->pods().contains(run.first); });
  nodes_.clear();
  pods_.clear();
  reasons_.clear();
  pending_ = {};
  for (const auto& [name, entry] : ledger_->nodes()) pending_.nodes.insert(name);
  for (const auto& [uid, pod] : ledger_->pods()) pending_.pods.insert(uid);
  UpdateReasons();
  UpdatePublished();
  ++version_;
  delegate_.OnState();
}

void ClusterModel::OnNode(const std::string& name) {
  pending_.nodes.insert(name);
  SchedulePublish();
}

void ClusterModel::OnPodChanged(const Uid& uid) {
  pending_.pods.insert(uid);
  SchedulePublish();
}

void ClusterModel::OnPodRun(const kube::PodObject& pod) {
  const bool running = pod.phase == kube::PodPhase::kRunning;
  if (!running && pod.run_summary == kube::PodRunSummary{}) {
    runs_.erase(pod.meta.uid);
  } else {
    runs_[pod.meta.uid] = {running, pod.run_summary};
  }
}

void ClusterModel::OnQuota() {
  quota_problem_ = Status::Ok();
  if (synced_) ScheduleReasons();
}

void ClusterModel::SchedulePublish() {
  if (std::exchange(publish_scheduled_, true)) return;
  // A change after a pause is published at once, because a user may be waiting for the change.
  const Duration wait = last_published_ + kPublishInterval - runner_.clock().Now();
  runner_.PostDelayed(std::max(wait, Duration::zero()), [this, weak = weak_.Get()] {
    if (!weak) return;
    publish_scheduled_ = false;
    last_published_ = runner_.clock().Now();
    if (synced_) Publish();
  });
  ScheduleReasons();
}

void ClusterModel::Publish() {
  const Changes changed = UpdatePublished();
  if (changed.nodes.empty() && changed.pods.empty()) return;
  ++version_;
  delegate_.OnChanges(changed);
}

ClusterModel::Changes ClusterModel::UpdatePublished() {
  Changes pending = std::exchange(pending_, {});
  Changes changed;
  for (const Uid& uid : pending.pods) {
    // The text of a node lists its pods.
    const std::string old_node = NodeOf(uid);
    if (PublishPod(uid)) changed.pods.insert(uid);
    pending.nodes.insert({old_node, NodeOf(uid)});
  }
  for (const std::string& name : pending.nodes) {
    if (PublishNode(name)) changed.nodes.insert(name);
  }
  return changed;
}

void ClusterModel::Flush() {
  if (synced_ && !(pending_.nodes.empty() && pending_.pods.empty())) Publish();
}

std::string ClusterModel::NodeOf(const Uid& uid) const {
  const auto pod = pods_.find(uid);
  return pod == pods_.end() ? "" : pod->second.node;
}

bool ClusterModel::PublishNode(const std::string& name) {
  const ledger::NodeEntry* node = ledger_->FindNode(name);
  if (node == nullptr || !node->has_gpus_or_problem()) return nodes_.erase(name) > 0;
  const size_t hash = HashOf(NodeText(name, nullptr));
  const auto [known, is_new] = nodes_.try_emplace(name, hash);
  return is_new || std::exchange(known->second, hash) != hash;
}

bool ClusterModel::PublishPod(const Uid& uid) {
  const auto pod = ledger_->pods().find(uid);
  if (pod == ledger_->pods().end()) return pods_.erase(uid) > 0;
  const size_t hash = HashOf(PodText(uid));
  const auto [known, is_new] = pods_.try_emplace(uid);
  known->second.node = pod->second.node;
  return std::exchange(known->second.hash, hash) != hash || is_new;
}

std::string ClusterModel::NodeText(
    const std::string& name,
    const std::function<bool(const std::string& ns)>& sees_namespace) const {
  const ledger::NodeEntry* node = ledger_->FindNode(name);
  TESSERA_CHECK(node != nullptr);
  return NodeJson(*ledger_, *node, {sees_namespace, options_.other_tenants});
}

std::string ClusterModel::PodText(const Uid& uid) const {
  const auto reason = reasons_.find(uid);
  const auto run = runs_.find(uid);
  return PodJson(ledger_->pods().at(uid), ledger_->options().gpu_mem_unit,
                 reason == reasons_.end() ? "" : reason->second,
                 run == runs_.end() ? PodRunState{} : run->second);
}

void ClusterModel::ScheduleReasons() {
  if (std::exchange(reasons_scheduled_, true)) return;
  runner_.PostDelayed(kReasonsInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    reasons_scheduled_ = false;
    if (!synced_) return;
    UpdateReasons();
    Publish();
  });
}

void ClusterModel::UpdateReasons() {
  std::map<Uid, std::string> reasons;
  for (const auto& [uid, pod] : ledger_->pods()) {
    if (pod.binding_state != ledger::BindingState::kWaiting || !pod.problem().empty()) continue;
    if (reasons.size() >= kMaxReasons) break;
    reasons[uid] = ReasonOf(pod);
  }
  for (const auto* map : {&reasons, &reasons_}) {
    for (const auto& item : *map) {
      const auto reason_in = [&item](const auto& other) {
        const auto found = other.find(item.first);
        return found == other.end() ? std::string() : found->second;
      };
      if (reason_in(reasons) != reason_in(reasons_)) pending_.pods.insert(item.first);
    }
  }
  reasons_ = std::move(reasons);
}

std::string ClusterModel::ReasonOf(const ledger::PodEntry& pod) {
  if (!pod.gates().empty()) return "held back by scheduling gate " + pod.gates().front();
  Result<ledger::ClusterLedger::Query> query = ledger_->MakeQuery(pod.request);
  if (!query.ok()) return query.status().message();
  return SummaryOf(*ledger_, *query);
}

std::set<std::string> ClusterModel::Namespaces() const {
  std::set<std::string> namespaces;
  for (const auto& [uid, pod] : ledger_->pods()) namespaces.insert(pod.request.ns);
  return namespaces;
}

void ClusterModel::OnError(std::string_view collection, const Status& status) {
  delegate_.OnWatchError(collection);
  if (status.code() == Code::kInvalidArgument) return OnInvalid(collection, status);
  if (collection == "quota") {
    // The last quota stays in force, because an API server that is starting may answer 403 before
    // it has loaded its roles.
    if (synced_ && with_quota_) return;
    quota_problem_ = status;
    // A user without the right to read quotas sees the cluster without them.
    if (status.code() == Code::kPermissionDenied && with_quota_) {
      StartFeedLater(ledger_->options().gpu_mem_unit, /*with_quota=*/false);
    }
    return;
  }
  SetOutage(collection, status, runner_.clock().WallNow());
}

void ClusterModel::SetOutage(std::string_view collection, const Status& status, WallTime since) {
  const bool first = outages_.empty();
  outages_.Set(collection, status, since);
  if (!first) return;
  Log(Severity::kWarning, "cannot follow the cluster, the shown state is becoming stale",
      {{"error", status.message()}});
  delegate_.OnState();
}

void ClusterModel::OnInvalid(std::string_view collection, const Status& status) {
  if (collection == "quota") quota_problem_ = status;
}

void ClusterModel::OnRecovered(std::string_view collection) {
  if (outages_.End(collection) && outages_.empty()) delegate_.OnState();
}

}  // namespace tessera::console
