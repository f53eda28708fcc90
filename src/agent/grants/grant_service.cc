// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "src/agent/grants/granted_annotations.h"
#include "src/agent/grants/start_waits.h"
#include "src/agent/grants/token_request.h"
#include "src/base/log.h"
#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

// Returns the entries of all other pods as conflicts, so that the entries of deleted pods are
// released.
std::vector<GrantLedger::Conflict> EntriesOfOtherPods(const GrantLedger& ledger,
                                                      const ContainerRef& requester) {
  std::vector<GrantLedger::Conflict> all;
  for (const auto& [key, entry] : ledger.entries()) {
    if (key.first == requester.pod_uid || entry.shares.empty()) continue;
    all.push_back({key, entry.shares.front().uuid, entry.holder});
  }
  return all;
}

// Whether the kubelet named GPUs other than those that the container gets.
bool KubeletNamedOthers(const GrantLedger::Entry& entry) {
  std::vector<std::string> kubelet_gpus = NamedGpus(entry.claims);
  std::vector<std::string> granted_gpus = device::UuidsOf(entry.shares);
  std::ranges::sort(kubelet_gpus);
  std::ranges::sort(granted_gpus);
  return !kubelet_gpus.empty() && kubelet_gpus != granted_gpus;
}

}  // namespace

GrantService::GrantService(TaskRunner* runner, GrantOptions options, const DeviceSetHolder* devices,
                           const grant::TokenSigner* signer, GrantLedger* ledger,
                           PodResources* kubelet, Pods* pods, OnUsageChanged on_usage_changed)
    : runner_(runner),
      options_(std::move(options)),
      devices_(devices),
      signer_(signer),
      ledger_(ledger),
      pods_(pods),
      on_usage_changed_(std::move(on_usage_changed)),
      dialects_{.gpu_mem_unit = options_.gpu_mem_unit},
      limits_(options_.limits_dir, options_.limits_fail_open),
      limit_changes_(options_.limits_dir, &limits_, ledger, pods),
      occupancy_(ledger, pods),
      planner_(&options_.description, ledger, &occupancy_, &dialects_, pods != nullptr),
      ended_pods_(runner, ledger, kubelet, pods, options_.release, options_.metrics,
                  [this] { ScheduleUsageRefresh(); }),
      unredeemed_(runner, &ended_pods_, pods, ledger, options_.agent_installed_at,
                  options_.on_unredeemed, options_.metrics) {
  if (pods_ != nullptr) pods_->Start(this);
  if (pods_ != nullptr && options_.on_unredeemed) unredeemed_.Start();
  ScheduleUsageRefresh();
}

GrantService::~GrantService() = default;

void GrantService::Handle(const grant::GrantRequest& request, Reply reply) {
  PendingRequest pending{
      .requester = {request.pod_uid, request.pod_namespace, request.pod_name, request.container},
      .variables = request.variables,
      .release_deadline = runner_->clock().Now() + kGrantWait,
      .reply = std::move(reply)};
  Result<std::vector<Claim>> claims = OpenTokens(request, *signer_);
  if (!claims.ok()) return pending.reply(claims.status());
  pending.claims = *std::move(claims);
  for (const Claim& claim : pending.claims) {
    const Status status =
        ledger_->CheckToken(claim.nonce, pending.requester, runner_->clock().WallNow());
    if (!status.ok()) return pending.reply(status);
  }
  Decide(std::move(pending));
}

void GrantService::Decide(PendingRequest pending) {
  const bool needs_no_pod = pods_ == nullptr || !pending.requester.owner_known() ||
                            pods_->pods().contains(pending.requester.pod_uid) ||
                            ledger_->Find(pending.requester) != nullptr;
  if (needs_no_pod) return PlanAndBind(std::move(pending));
  WaitForPod(std::move(pending));
}

Status GrantService::SetHolder(const ContainerRef& placeholder, const ContainerRef& holder) {
  const GrantLedger::Entry* entry = ledger_->Find(placeholder);
  if (entry == nullptr) return Status(Code::kNotFound, "no such grant");
  device::Assignment chosen;
  if (const auto* before = ledger_->ChosenFor(holder.pod_uid)) chosen = *before;
  chosen.containers.erase(placeholder.container);
  chosen.containers[holder.container] = entry->shares;
  RETURN_IF_ERROR(ledger_->SetHolder(GrantLedger::KeyOf(placeholder), holder, &chosen));
  ScheduleUsageRefresh();
  PublishAssignment(holder.pod_uid);
  return Status::Ok();
}

void GrantService::PlanAndBind(PendingRequest pending) {
  const std::shared_ptr<const DeviceSet> set = devices_->Get();
  if (set == nullptr) {
    return pending.reply(Status(Code::kUnavailable, "the GPUs of this node are not known yet"));
  }
  const Result<PlannedGrant> plan = planner_.Plan(pending, set);
  if (plan.status().code() == Code::kResourceExhausted) {
    auto conflicts = EntriesOfOtherPods(*ledger_, pending.requester);
    if (conflicts.empty()) return pending.reply(plan.status());
    return PlanAndBindAfterRelease(std::move(pending), std::move(conflicts));
  }
  if (!plan.ok()) return pending.reply(plan.status());
  auto conflicts = ledger_->Find(pending.requester) != nullptr
                       ? std::vector<GrantLedger::Conflict>()
                       : ledger_->ConflictsOf(plan->entry, set->inventory());
  if (conflicts.empty()) return pending.reply(Bind(pending, *plan, *set));
  PlanAndBindAfterRelease(std::move(pending), std::move(conflicts));
}

void GrantService::PlanAndBindAfterRelease(PendingRequest pending,
                                           std::vector<GrantLedger::Conflict> conflicts) {
  const auto shared = std::make_shared<PendingRequest>(std::move(pending));
  ended_pods_.Resolve(
      conflicts, shared->requester,
      [this, shared, conflicts](const Status& status, Duration list_time) {
        if (shared->waited != nullptr) *shared->waited += list_time;
        const std::shared_ptr<const DeviceSet> set = devices_->Get();
        if (!status.ok()) return shared->reply(status);
        const Result<PlannedGrant> plan = planner_.Plan(*shared, set);
        const Result<grant::Grant> grant =
            plan.ok() ? Bind(*shared, *plan, *set) : Result<grant::Grant>(plan.status());
        const bool is_held = grant.status().code() == Code::kFailedPrecondition ||
                             grant.status().code() == Code::kResourceExhausted;
        const auto leaving = is_held ? ended_pods_.ReasonStillHeld(conflicts) : std::nullopt;
        if (!leaving) return shared->reply(grant);
        if (runner_->clock().Now() >= shared->release_deadline) {
          return shared->reply(Error(Code::kUnavailable, "{}; the kubelet retries", *leaving));
        }
        runner_->PostDelayed(kReleasePollInterval, [this, shared, weak = weak_.Get()] {
          if (weak) PlanAndBind(std::move(*shared));
        });
      });
}

Result<grant::Grant> GrantService::Bind(const PendingRequest& pending, const PlannedGrant& plan,
                                        const DeviceSet& set) {
  // DescribeGrant rejects unhealthy GPUs, so it is called before the ledger gets an entry.
  ASSIGN_OR_RETURN(grant::Grant grant, DescribeGrant(options_.description, set, plan.entry.shares));
  const GrantLedger::Entry* before = ledger_->Find(pending.requester);
  ASSIGN_OR_RETURN(grant.limits_dir, limit_changes_.WriteGranted(
                                         before != nullptr ? *before : plan.entry, grant.devices));
  const bool is_new = before == nullptr;
  RETURN_IF_ERROR(ledger_->Bind(plan.entry, plan.chosen ? &*plan.chosen : nullptr, set.inventory(),
                                runner_->clock().WallNow()));
  for (const auto& [name, value] : plan.entry.env) grant.env.emplace(name, value);
  if (is_new) {
    if (KubeletNamedOthers(plan.entry)) options_.metrics->named_other_gpus.Add();
    ended_pods_.SchedulePrune();
    ScheduleUsageRefresh();
    // Annotations are written after the answer, because the container does not wait for them.
    runner_->Post([this, uid = pending.requester.pod_uid, weak = weak_.Get()] {
      if (!weak) return;
      PublishAssignment(uid);
      const auto* pod = pods_ != nullptr ? occupancy_.Find(uid) : nullptr;
      if (pod != nullptr) limit_changes_.OnGranted(**pod);
    });
  }
  return grant;
}

void GrantService::WaitForPod(PendingRequest pending) {
  const auto waiting = std::make_shared<PendingRequest>(std::move(pending));
  waiting_for_pod_.push_back(waiting);
  runner_->PostDelayed(kGrantWait, [this, waiting, weak = weak_.Get()] {
    if (!weak || std::erase(waiting_for_pod_, waiting) == 0) return;
    const Status last_error = pods_->last_error();
    waiting->reply(
        Error(Code::kUnavailable,
              "pod {} (uid {}) is not known to the agent of this node yet, so its assignment is "
              "unknown: {}",
              waiting->requester.PodText(), waiting->requester.pod_uid,
              last_error.ok() ? "the API server has not listed it" : last_error.message()));
  });
}

void GrantService::OnInventoryChanged() {
  if (pods_ != nullptr) {
    for (const auto& [uid, pod] : pods_->pods()) AddOtherPluginGrants(pod);
  }
  ScheduleUsageRefresh();
}

void GrantService::OnPod(const Uid& uid) {
  const auto found = pods_->pods().find(uid);
  const bool is_gone = found == pods_->pods().end();
  if (is_gone) {
    occupancy_.Forget(uid);
    if (options_.take_over != nullptr) options_.take_over->Forget(uid);
    limit_changes_.Forget(uid);
  } else {
    occupancy_.OnPodAdded(uid);
    AddOtherPluginGrants(found->second);
    // A patch that an earlier agent sent before it died may arrive after the patch of this agent.
    if (ledger_->ChosenFor(uid) != nullptr) PublishAssignment(uid);
    limit_changes_.OnPod(*found->second);
  }
  std::vector<std::shared_ptr<PendingRequest>> answerable;
  std::erase_if(waiting_for_pod_, [&](const auto& pending) {
    if (is_gone || pending->requester.pod_uid != uid) return false;
    answerable.push_back(pending);
    return true;
  });
  for (const auto& pending : answerable) PlanAndBind(std::move(*pending));
  if (is_gone || found->second->ended) ended_pods_.ScheduleCheck();
  UpdateAdmissionOrder();
  ScheduleUsageRefresh();
}

void GrantService::OnPodsSynced() {
  // Grants may have been made while the API server was unreachable, also by an agent that has
  // crashed since.
  std::set<Uid> uids;
  for (const auto& [key, entry] : ledger_->entries()) uids.insert(key.first);
  for (const Uid& uid : uids) PublishAssignment(uid);
  ended_pods_.ScheduleCheck();
  ScheduleUsageRefresh();
}

void GrantService::AddOtherPluginGrants(const std::shared_ptr<const PodInfo>& pod) {
  const auto set = devices_->Get();
  if (set == nullptr || options_.take_over == nullptr) return;
  if (!options_.take_over->AddEntries(*pod, occupancy_.AnnotatedAssignmentOf(pod, set), *set,
                                      dialects_, runner_->clock().WallNow())) {
    return;
  }
  ended_pods_.SchedulePrune();
  PublishAssignment(pod->uid);
}

void GrantService::PublishAssignment(const Uid& uid) {
  const auto set = devices_->Get();
  if (pods_ == nullptr || set == nullptr) return;
  const PodInfo* pod = pods_->Find(uid);
  if (pod == nullptr) return;
  const auto now = runner_->clock().WallNow().time_since_epoch();
  const StringMap annotations = AnnotationsAfterGrant(
      *pod, ledger_->ChosenFor(uid), set->inventory(), set->shares().gpu_mem_unit(),
      options_.node_name, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  if (!annotations.empty()) pods_->Annotate(*pod, annotations);
}

// The update is not delayed, because the kubelet may call right now.
void GrantService::UpdateAdmissionOrder() {
  const auto set = devices_->Get();
  if (options_.admission_order == nullptr || set == nullptr) return;
  options_.admission_order->Set(occupancy_.WaitingContainers(set, dialects_.gpu_mem_unit));
}

void GrantService::ScheduleUsageRefresh() {
  if (!on_usage_changed_ || usage_refresh_scheduled_) return;
  usage_refresh_scheduled_ = true;
  // Pods come in bursts, and the kubelet updates the Node only every ten seconds.
  runner_->PostDelayed(kUsagePublishDelay, [this, weak = weak_.Get()] {
    if (!weak) return;
    usage_refresh_scheduled_ = false;
    RefreshUsage();
  });
}

// Reads first which IDs the kubelet has allocated.
void GrantService::RefreshUsage() {
  if (ledger_->entries().empty() && (pods_ == nullptr || pods_->pods().empty()))
    return PublishUsage();
  ended_pods_.ListKubeletPods([this](const Result<PodDevices>& kubelet_pods) {
    if (kubelet_pods.ok()) {
      occupancy_.SetKubeletDevices(*kubelet_pods);
      UpdateAdmissionOrder();
    }
    PublishUsage();
  });
}

void GrantService::PublishUsage() {
  if (!options_.limits_dir.empty()) limits_.RemoveExcept(ledger_->entries());
  const auto set = devices_->Get();
  if (set == nullptr) return;
  on_usage_changed_(
      std::make_shared<NodeUse>(NodeUse{occupancy_.Accounts(set), occupancy_.allocated_ids()}));
}

}  // namespace tessera::agent
