// SPDX-License-Identifier: Apache-2.0
#include "src/agent/allocation_grants.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/agent/allocation.h"
#include "src/agent/token_request.h"

namespace tessera::agent {
namespace {

// One without claims was given by another device plugin (take_over.h).
bool HasClaim(const GrantLedger::Entry* entry, const std::string& resource) {
  return entry != nullptr &&
         (entry->claims.empty() ||
          std::any_of(entry->claims.begin(), entry->claims.end(),
                      [&](const Claim& claim) { return claim.resource == resource; }));
}

bool Holds(const PodDevices& listed, const PodInfo& pod, const std::string& container,
           const std::string& resource) {
  return std::any_of(listed.held.begin(), listed.held.end(), [&](const HeldDevices& held) {
    return held.pod_namespace == pod.ns && held.pod_name == pod.name &&
           held.container == container && held.resource == resource;
  });
}

std::vector<std::string> KeptIds(const std::string& resource, std::vector<std::string> ids) {
  return resource == names::kResourceGpu ? std::move(ids) : ShareTokenIds(ids);
}

}  // namespace

struct AllocationGrants::Call {
  std::string resource;
  std::vector<std::string> ids;
  MonotonicTime until;
  Result<PodDevices> listed = Status(Code::kUnavailable, "not asked");
  GrantService::Reply reply;
};

Claim NewClaim(const std::string& resource, const std::vector<std::string>& ids, WallTime now) {
  return {grant::NewNonce(now), resource, KeptIds(resource, ids)};
}

bool IsOf(const Claim& claim, const std::string& resource, const std::vector<std::string>& ids) {
  if (claim.resource != resource) return false;
  const std::vector<std::string> kept = KeptIds(resource, ids);
  return std::is_permutation(kept.begin(), kept.end(), claim.ids.begin(), claim.ids.end());
}

AllocationGrants::AllocationGrants(TaskRunner* runner, GrantService* service,
                                   const GrantLedger* ledger, const Pods* pods,
                                   device::MemoryUnit gpu_mem_unit)
    : runner_(runner), service_(service), ledger_(ledger), pods_(pods), unit_(gpu_mem_unit) {}

void AllocationGrants::Allocate(const std::string& resource, const std::vector<std::string>& ids,
                                GrantService::Reply reply) {
  const auto call = std::make_shared<Call>(Call{.resource = resource,
                                                .ids = ids,
                                                .until = runner_->clock().Now() + kPatience,
                                                .reply = std::move(reply)});
  if (pods_ == nullptr) return GiveByIds(call);
  service_->ended().List([this, call](const Result<PodDevices>& listed) {
    call->listed = listed;
    Find(call);
  });
}

void AllocationGrants::Find(const CallPtr& call) {
  std::optional<Candidate> found = Next(*call, false);
  const bool over = runner_->clock().Now() >= call->until;
  if (!found && over) found = Next(*call, true);
  if (found) return Give(call, *found);
  if (!over) {
    runner_->PostDelayed(kPause, [this, call, weak = std::weak_ptr<AllocationGrants*>(self_)] {
      if (!weak.expired()) Find(call);
    });
    return;
  }
  const Status broken = BrokenRequest(*call);
  if (!broken.ok()) return call->reply(broken);
  GiveByIds(call);
}

bool AllocationGrants::MayBe(const Call& call, const PodInfo& pod,
                             const device::ContainerRequest& container, bool again) const {
  const auto asks = AsksOf(container, unit_);
  const auto ask = asks.find(call.resource);
  // Memory beside whole GPUs decides nothing, and is as much as it is.
  const bool beside = container.dialect == device::Dialect::kVcuda && container.exclusive &&
                      call.resource == names::kResourceVcudaMemory;
  if (!beside && (ask == asks.end() || ask->second != static_cast<int64_t>(call.ids.size()))) {
    return false;
  }
  if (call.listed.ok() && Holds(*call.listed, pod, container.name, call.resource)) return false;
  const GrantLedger::Entry* entry = ledger_->Find({pod.uid, pod.ns, pod.name, container.name});
  return HasClaim(entry, call.resource) == again;
}

std::optional<AllocationGrants::Candidate> AllocationGrants::Next(const Call& call, bool again) {
  const bool told = call.listed.ok();
  // A kubelet that has forgotten what it gave is believed only when it speaks.
  if (again && !told) return std::nullopt;
  std::optional<Candidate> next;
  int pods = 0;
  for (const auto& pod : service_->view().PodsInOrder()) {
    if (told && !call.listed->Lists(pod->ns, pod->name)) continue;
    const auto& containers = pod->request->containers;
    const auto found = std::find_if(containers.begin(), containers.end(),
                                    [&](const auto& one) { return MayBe(call, *pod, one, again); });
    if (found == containers.end()) continue;
    next = {{pod->uid, pod->ns, pod->name, found->name}, true};
    ++pods;
    if (!told) break;
    // Kubelets before 1.34 also list pods that they have turned away: the last is the one.
  }
  if (next) next->guessed = !told || again || pods > 1;
  return next;
}

Status AllocationGrants::BrokenRequest(const Call& call) const {
  if (!call.listed.ok()) return Status::Ok();
  for (const auto& [uid, pod] : pods_->pods()) {
    if (pod->ended || pod->request.ok() || !call.listed->Lists(pod->ns, pod->name)) continue;
    return pod->request.status().Annotate("pod " + pod->Text());
  }
  return Status::Ok();
}

void AllocationGrants::Give(const CallPtr& call, const Candidate& to) {
  half_.reset();
  service_->Decide({.who = to.who,
                    .claims = {NewClaim(call->resource, call->ids, runner_->clock().WallNow())},
                    .guessed = to.guessed,
                    .reply = call->reply});
}

// A container that asks for two resources is answered with the second, because only both say how
// much it is.
void AllocationGrants::GiveByIds(const CallPtr& call) {
  std::vector<Claim> claims = {NewClaim(call->resource, call->ids, runner_->clock().WallNow())};
  const std::optional<Claim> half = std::exchange(half_, std::nullopt);
  if (half && half->resource != call->resource) claims.push_back(*half);
  const std::string container(kUnnamedContainer);
  if (!RequestOfTokens(container, claims, unit_).ok()) {
    claims.resize(1);
    if (!RequestOfTokens(container, claims, unit_).ok()) {
      half_ = claims[0];
      return call->reply(grant::Grant());
    }
  }
  service_->Decide({.who = {"unnamed-" + grant::NonceText(claims[0].nonce), "", "", container},
                    .claims = claims,
                    .guessed = true,
                    .reply = call->reply});
}

}  // namespace tessera::agent
