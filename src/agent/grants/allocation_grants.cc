// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/allocation_grants.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/agent/grants/token_request.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/base/log.h"

namespace tessera::agent {
namespace {

// Placeholder while the owning container is unknown; no container can have this name.
constexpr std::string_view kUnknownContainer = "?";

// An entry without claims is from another device plugin (take_over.h), and counts for every
// resource.
bool HasClaim(const GrantLedger::Entry* entry, const std::string& resource) {
  return entry != nullptr && (entry->claims.empty() ||
                              std::ranges::count(entry->claims, resource, &Claim::resource) != 0);
}

bool HasDevices(const PodDevices& kubelet_pods, const PodInfo& pod, const std::string& container,
                const std::string& resource) {
  return std::ranges::any_of(kubelet_pods.held_devices, [&](const HeldDevices& held) {
    return held.pod_namespace == pod.ns && held.pod_name == pod.name &&
           held.container == container && held.resource == resource;
  });
}

std::vector<std::string> IdsForClaim(const std::string& resource, std::vector<std::string> ids) {
  return resource == names::kResourceGpu ? std::move(ids) : ShareTokenIds(ids);
}

// Whether the error may be temporary, such as UNAVAILABLE for a GPU whose last container is still
// ending.
bool IsTemporary(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kFailedPrecondition ||
         status.code() == Code::kResourceExhausted;
}

void LogAllocated(const std::string& resource, const ContainerRef& ref,
                  const Result<grant::Grant>& grant) {
  if (!grant.ok()) return;
  Log(Severity::kInfo, "allocated GPUs to a container",
      {{"pod", ref.PodText()},
       {"uid", ref.pod_uid},
       {"container", ref.container},
       {"resource", resource},
       {"gpus", grant->env.at(std::string(names::kEnvVisibleDevices))}});
}

}  // namespace

struct AllocationGrants::Call {
  std::string resource;
  std::vector<std::string> ids;
  MonotonicTime start;
  MonotonicTime deadline;
  Duration waited{};  // for the kubelet's list and in pauses
  Result<PodDevices> kubelet_pods = Status(Code::kUnavailable, "not listed");
  GrantService::Reply reply;
};

Claim NewClaim(const std::string& resource, const std::vector<std::string>& ids, WallTime now) {
  return {grant::NewNonce(now), resource, IdsForClaim(resource, ids)};
}

bool IsClaimFor(const Claim& claim, const std::string& resource,
                const std::vector<std::string>& ids) {
  if (claim.resource != resource) return false;
  const std::vector<std::string> claim_ids = IdsForClaim(resource, ids);
  return std::is_permutation(claim_ids.begin(), claim_ids.end(), claim.ids.begin(),
                             claim.ids.end());
}

AllocationGrants::AllocationGrants(TaskRunner* runner, GrantService* service,
                                   const GrantLedger* ledger, const Pods* pods,
                                   device::MemoryUnit gpu_mem_unit, GrantMetrics* metrics)
    : runner_(runner),
      service_(service),
      ledger_(ledger),
      pods_(pods),
      gpu_mem_unit_(gpu_mem_unit),
      metrics_(metrics) {}

void AllocationGrants::Allocate(const std::string& resource, const std::vector<std::string>& ids,
                                GrantService::Reply reply) {
  const MonotonicTime now = runner_->clock().Now();
  const auto call = std::make_shared<Call>(Call{.resource = resource,
                                                .ids = ids,
                                                .start = now,
                                                .deadline = now + kAllocateWait,
                                                .reply = std::move(reply)});
  pods_ == nullptr ? GrantByIds(call) : ListPods(call);
}

void AllocationGrants::Reply(const CallPtr& call, const Result<grant::Grant>& grant) const {
  metrics_->allocate_own.Observe(runner_->clock().Now() - call->start - call->waited);
  call->reply(grant);
}

void AllocationGrants::ListPods(const CallPtr& call) {
  const MonotonicTime list_start = runner_->clock().Now();
  service_->ended_pods().ListKubeletPods(
      [this, call, list_start](const Result<PodDevices>& kubelet_pods) {
        call->waited += runner_->clock().Now() - list_start;
        const bool kubelet_is_busy = kubelet_pods.status().code() == Code::kResourceExhausted;
        if (kubelet_is_busy && RetryAfter(call, kListPause, &AllocationGrants::ListPods)) return;
        call->kubelet_pods = kubelet_pods;
        FindOwnerAndGrant(call);
      });
}

bool AllocationGrants::RetryAfter(const CallPtr& call, Duration pause,
                                  void (AllocationGrants::*step)(const CallPtr&)) {
  const MonotonicTime pause_start = runner_->clock().Now();
  if (pause_start >= call->deadline) return false;
  runner_->PostDelayed(pause, [this, call, step, pause_start, weak = weak_.Get()] {
    if (!weak) return;
    call->waited += runner_->clock().Now() - pause_start;
    (this->*step)(call);
  });
  return true;
}

void AllocationGrants::FindOwnerAndGrant(const CallPtr& call) {
  if (const auto found = NextOwner(*call, /*reallocated=*/false)) return GrantTo(call, *found);
  if (RetryAfter(call, kRetryPause, &AllocationGrants::FindOwnerAndGrant)) return;
  if (const auto found = NextOwner(*call, /*reallocated=*/true)) return GrantTo(call, *found);
  const Status request_error = InvalidRequestOf(*call);
  request_error.ok() ? GrantByIds(call) : Reply(call, request_error);
}

bool AllocationGrants::Matches(const Call& call, const PodInfo& pod,
                               const device::ContainerRequest& container, bool reallocated) const {
  // This test comes first, because most containers of the node already have their units.
  const auto entry = ledger_->entries().find({pod.uid, container.name});
  const bool has_entry = entry != ledger_->entries().end();
  if (HasClaim(has_entry ? &entry->second : nullptr, call.resource) != reallocated) return false;
  const auto requested = RequestedUnits(container, gpu_mem_unit_);
  const auto units = requested.find(call.resource);
  // A memory request together with whole GPUs has no effect, so its amount does not matter.
  const bool has_no_effect = container.dialect == device::Dialect::kVcuda && container.exclusive &&
                             call.resource == names::kResourceVcudaMemory;
  if (!has_no_effect &&
      (units == requested.end() || units->second != static_cast<int64_t>(call.ids.size()))) {
    return false;
  }
  return !call.kubelet_pods.ok() ||
         !HasDevices(*call.kubelet_pods, pod, container.name, call.resource);
}

std::optional<AllocationGrants::PossibleOwner> AllocationGrants::NextOwner(const Call& call,
                                                                           bool reallocated) {
  const bool has_list = call.kubelet_pods.ok();
  // Only a list shows that the kubelet has forgotten the units of a container.
  if (reallocated && !has_list) return std::nullopt;
  std::optional<PossibleOwner> next;
  int pods = 0;
  for (const auto& pod : service_->occupancy().PodsInAdmissionOrder()) {
    const auto& containers = pod->request->containers;
    const auto found = std::ranges::find_if(containers, [&](const auto& container) {
      return Matches(call, *pod, container, reallocated);
    });
    if (found == containers.end()) continue;
    if (has_list && !call.kubelet_pods->Lists(pod->ns, pod->name)) continue;
    next = {{pod->uid, pod->ns, pod->name, found->name}, true};
    ++pods;
    if (!has_list) break;
    // Kubelets before 1.34 also list pods that they have rejected: the last pod is the right one.
  }
  if (next) next->guessed = !has_list || reallocated || pods > 1;
  return next;
}

Status AllocationGrants::InvalidRequestOf(const Call& call) const {
  if (!call.kubelet_pods.ok()) return Status::Ok();
  for (const auto& [uid, pod] : pods_->pods()) {
    const bool is_starting = !pod->ended && pod->container_ids.empty();
    if (!is_starting || pod->request.ok() || !call.kubelet_pods->Lists(pod->ns, pod->name))
      continue;
    return pod->request.status().Annotate("pod " + pod->Text());
  }
  return Status::Ok();
}

void AllocationGrants::GrantTo(const CallPtr& call, const PossibleOwner& to) {
  unpaired_claim_.reset();
  service_->Decide({.requester = to.ref,
                    .claims = {NewClaim(call->resource, call->ids, runner_->clock().WallNow())},
                    .requester_is_guess = to.guessed,
                    .waited = {call, &call->waited},
                    .reply = [this, call, ref = to.ref](const Result<grant::Grant>& grant) {
                      ReplyOrRetry(call, ref, grant);
                    }});
}

// Retries temporary errors, because the kubelet rejects a pod for good after an error.
void AllocationGrants::ReplyOrRetry(const CallPtr& call, const ContainerRef& ref,
                                    const Result<grant::Grant>& grant) {
  if (IsTemporary(grant.status()) && RetryAfter(call, kListPause, &AllocationGrants::ListPods))
    return;
  LogAllocated(call->resource, ref, grant);
  Reply(call, grant);
}

// A container that requests two resources gets its GPUs with the second answer, because only both
// calls together have its whole request.
void AllocationGrants::GrantByIds(const CallPtr& call) {
  std::vector<Claim> claims = {NewClaim(call->resource, call->ids, runner_->clock().WallNow())};
  const std::optional<Claim> other_claim = std::exchange(unpaired_claim_, std::nullopt);
  if (other_claim && other_claim->resource != call->resource) claims.push_back(*other_claim);
  const std::string container(kUnknownContainer);
  if (!RequestOfTokens(container, claims, gpu_mem_unit_).ok()) {
    claims.resize(1);
    if (!RequestOfTokens(container, claims, gpu_mem_unit_).ok()) {
      unpaired_claim_ = claims[0];
      return Reply(call, grant::Grant());
    }
  }
  const ContainerRef placeholder{Uid("unnamed-" + grant::NonceText(claims[0].nonce)), "", "",
                                 container};
  service_->Decide({.requester = placeholder,
                    .claims = claims,
                    .requester_is_guess = true,
                    .reply = [this, call, placeholder](const Result<grant::Grant>& grant) {
                      LogAllocated(call->resource, placeholder, grant);
                      Reply(call, grant);
                    }});
}

}  // namespace tessera::agent
