// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_service.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "api/names.h"
#include "src/agent/grants/granted_annotations.h"
#include "src/agent/grants/local_choice.h"
#include "src/agent/grants/token_request.h"
#include "src/agent/grants/unredeemed.h"
#include "src/base/log.h"
#include "src/device/pod_annotations.h"

namespace tessera::agent {
namespace {

// GPUs that pods other than `uid` hold by tokens that name them.
std::set<std::string, std::less<>> ContestedGpus(const GrantLedger& ledger, const Uid& uid) {
  std::set<std::string, std::less<>> contested;
  for (const auto& [key, entry] : ledger.entries()) {
    if (key.first == uid) continue;
    const std::vector<std::string> named = NamedGpus(entry.claims);
    for (const device::DeviceShare& share : entry.shares) {
      if (std::find(named.begin(), named.end(), share.uuid) != named.end()) {
        contested.insert(share.uuid);
      }
    }
  }
  return contested;
}

// Entries of all other pods, as conflicts that are released if their pods are gone.
std::vector<GrantLedger::Conflict> AllOthers(const GrantLedger& ledger,
                                             const ContainerRef& requester) {
  std::vector<GrantLedger::Conflict> all;
  for (const auto& [key, entry] : ledger.entries()) {
    if (key.first == requester.pod_uid || entry.shares.empty()) continue;
    all.push_back({key, entry.shares.front().uuid, entry.holder});
  }
  return all;
}

ReleaseOptions WithMetrics(ReleaseOptions release, GrantMetrics* metrics) {
  release.metrics = metrics;
  return release;
}

// Whether the kubelet named GPUs other than those that the container gets.
bool KubeletNamedOthers(const GrantLedger::Entry& entry) {
  std::vector<std::string> named = NamedGpus(entry.claims);
  std::vector<std::string> given;
  for (const device::DeviceShare& share : entry.shares) given.push_back(share.uuid);
  std::sort(named.begin(), named.end());
  std::sort(given.begin(), given.end());
  return !named.empty() && named != given;
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
      ended_(runner, ledger, kubelet, pods, WithMetrics(options_.release, options_.metrics),
             [this] { ScheduleUsage(); }) {
  if (pods_ != nullptr) pods_->Start(this);
  if (pods_ != nullptr && options_.on_unredeemed) ScheduleTokenCheck();
  ScheduleUsage();
}

GrantService::~GrantService() = default;

void GrantService::Handle(const grant::GrantRequest& request, Reply reply) {
  if (request.kind == grant::GrantRequest::Kind::kPing) {
    grant::Grant pong;
    pong.agent_version = options_.description.version;
    return reply(std::move(pong));
  }
  PendingRequest pending{
      .requester = {request.pod_uid, request.pod_namespace, request.pod_name, request.container},
      .variables = request.variables,
      .release_deadline = runner_->clock().Now() + kPodWait,
      .reply = std::move(reply)};
  Result<std::vector<Claim>> claims = OpenTokens(request);
  if (!claims.ok()) return pending.reply(claims.status());
  pending.claims = *std::move(claims);
  for (const Claim& claim : pending.claims) {
    const Status status =
        ledger_->Check(claim.nonce, pending.requester, runner_->clock().WallNow());
    if (!status.ok()) return pending.reply(status);
  }
  Decide(std::move(pending));
}

void GrantService::Decide(PendingRequest pending) {
  const bool known = pods_ == nullptr || !pending.requester.owner_known() ||
                     pods_->pods().contains(pending.requester.pod_uid) ||
                     ledger_->Find(pending.requester) != nullptr;
  if (known) return Answer(std::move(pending));
  Wait(std::move(pending));
}

Status GrantService::SetHolder(const ContainerRef& unknown, const ContainerRef& holder) {
  const GrantLedger::Entry* entry = ledger_->Find(unknown);
  if (entry == nullptr) return Status(Code::kNotFound, "no such grant");
  device::Assignment chosen;
  if (const auto* before = ledger_->ChosenFor(holder.pod_uid)) chosen = *before;
  chosen.containers.erase(unknown.container);
  chosen.containers[holder.container] = entry->shares;
  RETURN_IF_ERROR(ledger_->SetHolder(GrantLedger::KeyOf(unknown), holder, &chosen));
  ScheduleUsage();
  PublishAssignment(holder.pod_uid);
  return Status::Ok();
}

Result<std::vector<Claim>> GrantService::OpenTokens(const grant::GrantRequest& request) const {
  std::vector<Claim> claims;
  for (const grant::Token& token : request.tokens) {
    const auto& served = ServedResources();
    const auto resource = std::find_if(served.begin(), served.end(), [&](const std::string& one) {
      return grant::TokenVariable(one) == token.variable;
    });
    if (resource == served.end()) {
      return Error(Code::kInvalidArgument,
                   "{} names no resource of this node: tokens are given by Allocate, not written "
                   "into pods",
                   token.variable);
    }
    if (std::any_of(claims.begin(), claims.end(),
                    [&](const Claim& claim) { return claim.resource == *resource; })) {
      return Error(
          Code::kInvalidArgument,
          "{} is set twice in the container: remove the one that the pod or its image sets",
          token.variable);
    }
    ASSIGN_OR_RETURN(grant::TokenContent content,
                     signer_->Verify(*resource, token.value).Annotate(token.variable));
    claims.push_back({content.nonce, *resource, std::move(content.ids)});
  }
  return claims;
}

void GrantService::Answer(PendingRequest pending) {
  const std::shared_ptr<const DeviceSet> set = devices_->Get();
  if (set == nullptr) {
    return pending.reply(Status(Code::kUnavailable, "the GPUs of this node are not known yet"));
  }
  const Result<PlannedGrant> planned = PlanFor(pending, set);
  if (planned.status().code() == Code::kResourceExhausted) {
    auto others = AllOthers(*ledger_, pending.requester);
    if (others.empty()) return pending.reply(planned.status());
    return AnswerAfterRelease(std::move(pending), std::move(others));
  }
  if (!planned.ok()) return pending.reply(planned.status());
  auto conflicts = ledger_->Find(pending.requester) != nullptr
                       ? std::vector<GrantLedger::Conflict>()
                       : ledger_->ConflictsOf(planned->entry, set->inventory());
  if (conflicts.empty()) return pending.reply(Bind(pending, *planned, *set));
  AnswerAfterRelease(std::move(pending), std::move(conflicts));
}

void GrantService::AnswerAfterRelease(PendingRequest pending,
                                      std::vector<GrantLedger::Conflict> conflicts) {
  const auto shared = std::make_shared<PendingRequest>(std::move(pending));
  ended_.Resolve(
      conflicts, shared->requester,
      [this, shared, conflicts](const Status& status, Duration list_time) {
        if (shared->waited != nullptr) *shared->waited += list_time;
        const std::shared_ptr<const DeviceSet> set = devices_->Get();
        if (!status.ok()) return shared->reply(status);
        const Result<PlannedGrant> planned = PlanFor(*shared, set);
        const Result<grant::Grant> grant =
            planned.ok() ? Bind(*shared, *planned, *set) : Result<grant::Grant>(planned.status());
        const bool held = grant.status().code() == Code::kFailedPrecondition ||
                          grant.status().code() == Code::kResourceExhausted;
        const auto leaving = held ? ended_.ReasonStillHeld(conflicts) : std::nullopt;
        if (!leaving) return shared->reply(grant);
        if (runner_->clock().Now() >= shared->release_deadline) {
          return shared->reply(Error(Code::kUnavailable, "{}; the kubelet retries", *leaving));
        }
        runner_->PostDelayed(kReleasePollInterval, [this, shared, weak = weak_.Get()] {
          if (weak) Answer(std::move(*shared));
        });
      });
}

Result<GrantService::PlannedGrant> GrantService::PlanFor(
    const PendingRequest& pending, const std::shared_ptr<const DeviceSet>& set) {
  const ContainerRef& requester = pending.requester;
  const GrantLedger::Entry* entry = ledger_->Find(requester);
  if (pending.claims.empty() && (entry == nullptr || !entry->claims.empty())) {
    return Error(Code::kNotFound, "container {} of pod {} has no token and no earlier grant",
                 requester.container, requester.PodText());
  }
  if (entry != nullptr) {
    PlannedGrant again{*entry, {}};
    again.entry.claims = pending.claims;
    return again;
  }
  if (pods_ == nullptr || !requester.owner_known()) {
    ASSIGN_OR_RETURN(
        const device::DeviceRequest request,
        RequestOfTokens(requester.container, pending.claims, set->shares().gpu_mem_unit()));
    return PlanLocally(pending, request, set);
  }
  const std::shared_ptr<const PodInfo>* found = occupancy_.Find(requester.pod_uid);
  if (found == nullptr) {
    return Error(Code::kFailedPrecondition, "pod {} (uid {}) has been deleted", requester.PodText(),
                 requester.pod_uid);
  }
  const PodInfo& pod = **found;
  if (!pod.request.ok()) return pod.request.status().Annotate("pod " + pod.Text());
  const device::ContainerRequest* container =
      FindContainerRequest(*pod.request, requester.container);
  if (container == nullptr) {
    return Error(Code::kInvalidArgument,
                 "container {} of pod {} requests no GPU, but shows a token", requester.container,
                 pod.Text());
  }
  const device::Assignment assignment = occupancy_.AssignmentOf(requester.pod_uid, set);
  const auto shares = assignment.containers.find(requester.container);
  if (shares != assignment.containers.end()) {
    return PlanAssigned(pending, *pod.request, *container, shares->second, *set);
  }
  const Status& unreadable = occupancy_.AssignedTo(*found, set).status;
  if (!unreadable.ok()) return unreadable.Annotate("pod " + pod.Text());
  return PlanLocally(pending, *pod.request, set);
}

GrantService::PlannedGrant GrantService::PlanAssigned(
    const PendingRequest& pending, const device::DeviceRequest& request,
    const device::ContainerRequest& container, const std::vector<device::DeviceShare>& shares,
    const DeviceSet& set) const {
  PlannedGrant planned;
  planned.entry.holder = pending.requester;
  planned.entry.phase = container.phase;
  planned.entry.dialect = container.dialect;
  planned.entry.shares = shares;
  planned.entry.env = DialectEnv(request, container, shares, set.inventory(), dialects_);
  // The journal keeps the variables with the grant, because a restarted agent needs them.
  std::ranges::copy_if(pending.variables, std::inserter(planned.entry.env, planned.entry.env.end()),
                       [](const auto& each) { return device::IsLimitVariable(each.first); });
  planned.entry.claims = pending.claims;
  planned.entry.guessed = pending.requester_is_guess;
  return planned;
}

Result<GrantService::PlannedGrant> GrantService::PlanLocally(
    const PendingRequest& pending, const device::DeviceRequest& request,
    const std::shared_ptr<const DeviceSet>& set) {
  LocalDemand local{.pod_uid = pending.requester.pod_uid,
                    .request = &request,
                    .container = pending.requester.container,
                    .phases_known = pods_ != nullptr && pending.requester.owner_known(),
                    .named = NamedGpus(pending.claims),
                    .contested = ContestedGpus(*ledger_, pending.requester.pod_uid)};
  // An unhealthy or missing GPU that the kubelet named is the more useful error.
  for (const std::string& uuid : local.named) {
    RETURN_IF_ERROR(
        DescribeDevice(options_.description, *set, {.uuid = uuid, .compute = kWholeGpu}).status());
  }
  local.assigned = occupancy_.AssignmentOf(pending.requester.pod_uid, set);
  ASSIGN_OR_RETURN(device::Assignment chosen, ChooseLocally(local, *set, occupancy_.Accounts(set)));
  const device::ContainerRequest* container =
      FindContainerRequest(request, pending.requester.container);
  if (container == nullptr || !chosen.containers.contains(pending.requester.container)) {
    return Error(Code::kInvalidArgument, "container {} of pod {} requests no GPU of this agent",
                 pending.requester.container, pending.requester.PodText());
  }
  PlannedGrant planned =
      PlanAssigned(pending, request, *container,
                   chosen.containers.find(pending.requester.container)->second, *set);
  planned.chosen = std::move(chosen);
  return planned;
}

Result<grant::Grant> GrantService::Bind(const PendingRequest& pending, const PlannedGrant& planned,
                                        const DeviceSet& set) {
  // This rejects unhealthy GPUs, so it precedes the entry.
  ASSIGN_OR_RETURN(grant::Grant grant,
                   DescribeGrant(options_.description, set, planned.entry.shares));
  const GrantLedger::Entry* before = ledger_->Find(pending.requester);
  ASSIGN_OR_RETURN(grant.limits_dir,
                   WriteLimits(before != nullptr ? *before : planned.entry, grant.devices));
  const bool fresh = before == nullptr;
  RETURN_IF_ERROR(ledger_->Bind(planned.entry, planned.chosen ? &*planned.chosen : nullptr,
                                set.inventory(), runner_->clock().WallNow()));
  for (const auto& [name, value] : planned.entry.env) grant.env.emplace(name, value);
  if (fresh) {
    if (options_.metrics != nullptr && KubeletNamedOthers(planned.entry)) {
      options_.metrics->named_other_gpus.Add();
    }
    ended_.SchedulePrune();
    ScheduleUsage();
    // This follows the answer, because the container does not wait for annotations.
    runner_->Post([this, uid = pending.requester.pod_uid, weak = weak_.Get()] {
      if (!weak) return;
      PublishAssignment(uid);
      const auto* pod = pods_ != nullptr ? occupancy_.Find(uid) : nullptr;
      if (pod != nullptr) limit_changes_.OnGranted(**pod);
    });
  }
  return grant;
}

Result<std::string> GrantService::WriteLimits(const GrantLedger::Entry& entry,
                                              std::vector<grant::GrantedDevice> devices) {
  const auto disabled = entry.env.find(std::string(names::kEnvCgpuDisable));
  const bool is_disabled = disabled != entry.env.end() && disabled->second == "true";
  if (options_.limits_dir.empty() || is_disabled) return std::string();
  const auto* pod = pods_ != nullptr ? occupancy_.Find(entry.holder.pod_uid) : nullptr;
  const auto valid =
      pod != nullptr ? std::optional(limit_changes_.LastValid(**pod)) : std::optional<PodInfo>();
  ApplyLimits(valid ? &*valid : nullptr, entry, &devices);
  Result<std::string> written = limits_.Write(entry.holder, devices);
  if (written.ok() || !limits_.FailsOpen(entry.holder)) return written;
  const std::string problem = fmt::format(
      "container {} starts without a limit on its GPUs, as --limits-fail-open allows: {}",
      entry.holder.container, written.status().message());
  Log(Severity::kWarning, "a container is not limited",
      {{"pod", entry.holder.PodText()}, {"problem", problem}});
  if (pod != nullptr) {
    pods_->Record(**pod,
                  {.warning = true, .reason = names::kReasonLimiterBypassed, .message = problem});
  }
  return std::string();
}

void GrantService::Wait(PendingRequest pending) {
  const auto waiting = std::make_shared<PendingRequest>(std::move(pending));
  waiting_for_pod_.push_back(waiting);
  runner_->PostDelayed(kPodWait, [this, waiting, weak = weak_.Get()] {
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
    for (const auto& [uid, pod] : pods_->pods()) EnterOtherPluginGrants(pod);
  }
  ScheduleUsage();
}

void GrantService::OnPod(const Uid& uid) {
  const auto found = pods_->pods().find(uid);
  const bool gone = found == pods_->pods().end();
  if (gone) {
    occupancy_.Forget(uid);
    if (options_.other_plugin_grants != nullptr) options_.other_plugin_grants->Forget(uid);
    limit_changes_.Forget(uid);
  } else {
    occupancy_.OnPodAdded(uid);
    EnterOtherPluginGrants(found->second);
    // A patch of an agent that died may arrive after its successor's.
    if (ledger_->ChosenFor(uid) != nullptr) PublishAssignment(uid);
    limit_changes_.OnPod(*found->second);
  }
  std::vector<std::shared_ptr<PendingRequest>> ready;
  std::erase_if(waiting_for_pod_, [&](const auto& pending) {
    if (gone || pending->requester.pod_uid != uid) return false;
    ready.push_back(pending);
    return true;
  });
  for (const auto& pending : ready) Answer(std::move(*pending));
  if (gone || found->second->ended) ended_.ScheduleCheck();
  UpdateAdmissionOrder();
  ScheduleUsage();
}

void GrantService::OnPodsSynced() {
  // These grants may be from a time without the API server, also before a crash.
  std::set<Uid> uids;
  for (const auto& [key, entry] : ledger_->entries()) uids.insert(key.first);
  for (const Uid& uid : uids) PublishAssignment(uid);
  ended_.ScheduleCheck();
  ScheduleUsage();
}

void GrantService::EnterOtherPluginGrants(const std::shared_ptr<const PodInfo>& pod) {
  const auto set = devices_->Get();
  if (set == nullptr || options_.other_plugin_grants == nullptr) return;
  if (!options_.other_plugin_grants->Enter(*pod, occupancy_.AssignedTo(pod, set), *set, dialects_,
                                           runner_->clock().WallNow())) {
    return;
  }
  ended_.SchedulePrune();
  PublishAssignment(pod->uid);
}

void GrantService::PublishAssignment(const Uid& uid) {
  const auto set = devices_->Get();
  if (pods_ == nullptr || set == nullptr) return;
  const auto found = pods_->pods().find(uid);
  if (found == pods_->pods().end()) return;
  const auto now = runner_->clock().WallNow().time_since_epoch();
  const device::Annotations annotations = AnnotationsAfterGrant(
      *found->second, ledger_->ChosenFor(uid), set->inventory(), set->shares().gpu_mem_unit(),
      options_.node_name, std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  if (!annotations.empty()) pods_->Annotate(*found->second, annotations);
}

void GrantService::ScheduleTokenCheck() {
  runner_->PostDelayed(kUnredeemedCheckInterval, [this, weak = weak_.Get()] {
    if (!weak) return;
    ScheduleTokenCheck();
    const bool any = std::any_of(pods_->pods().begin(), pods_->pods().end(), [](const auto& pod) {
      return !pod.second->ended && pod.second->request.ok() &&
             pod.second->request->requests_devices();
    });
    if (!any) return OnUnredeemed({});
    ended_.List([this](const Result<PodDevices>& listed) {
      if (!listed.ok()) return;
      OnUnredeemed(UnredeemedContainers(*listed, *pods_, *ledger_, options_.agent_installed_at));
    });
  });
}

// Reports containers that two checks in a row have found: one may start between the two lists.
void GrantService::OnUnredeemed(std::vector<std::string> containers) {
  std::vector<std::string> both;
  std::set_intersection(containers.begin(), containers.end(), last_check_unredeemed_.begin(),
                        last_check_unredeemed_.end(), std::back_inserter(both));
  last_check_unredeemed_ = std::move(containers);
  if (options_.metrics != nullptr) options_.metrics->unredeemed_tokens = both.size();
  if (both == reported_unredeemed_) return;
  reported_unredeemed_ = std::move(both);
  options_.on_unredeemed(reported_unredeemed_);
}

// The update is not delayed, because the kubelet may call right now.
void GrantService::UpdateAdmissionOrder() {
  const auto set = devices_->Get();
  if (options_.admission_order == nullptr || set == nullptr) return;
  options_.admission_order->Set(occupancy_.Waiting(set, dialects_.gpu_mem_unit));
}

void GrantService::ScheduleUsage() {
  if (!on_usage_changed_ || usage_planned_) return;
  usage_planned_ = true;
  // Pods come in bursts, and the kubelet updates the Node only every ten seconds.
  runner_->PostDelayed(kUsagePublishDelay, [this, weak = weak_.Get()] {
    if (!weak) return;
    usage_planned_ = false;
    RefreshUsage();
  });
}

// Reads first which IDs the kubelet has given away.
void GrantService::RefreshUsage() {
  if (ledger_->entries().empty() && (pods_ == nullptr || pods_->pods().empty()))
    return PublishUsage();
  ended_.List([this](const Result<PodDevices>& listed) {
    if (listed.ok()) {
      occupancy_.SetHeld(*listed);
      UpdateAdmissionOrder();
    }
    PublishUsage();
  });
}

void GrantService::PublishUsage() {
  if (!options_.limits_dir.empty()) limits_.RemoveOthers(ledger_->entries());
  const auto set = devices_->Get();
  if (set == nullptr) return;
  on_usage_changed_(std::make_shared<NodeUse>(NodeUse{occupancy_.Accounts(set), occupancy_.ids()}));
}

}  // namespace tessera::agent
