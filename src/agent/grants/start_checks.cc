// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/start_checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "api/names.h"
#include "src/agent/grants/allocation_grants.h"

namespace tessera::agent {
namespace {

// The kubelet sends the IDs of PreStartContainer in the random order of a Go set
// (callPreStartContainerIfNeeded in pkg/kubelet/cm/devicemanager/manager.go).
bool SameIds(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::is_permutation(a.begin(), a.end(), b.begin(), b.end());
}

bool SamePod(const ContainerRef& a, const ContainerRef& b) {
  return a.pod_namespace == b.pod_namespace && a.pod_name == b.pod_name;
}

std::string TextOf(const ContainerRef& owner) {
  return "container " + owner.container + " of pod " + owner.PodText();
}

}  // namespace

struct StartChecks::Call {
  std::string resource;
  std::vector<std::string> ids;
  MonotonicTime deadline;
  OnChecked done;
};

StartChecks::StartChecks(TaskRunner* runner, GrantService* service, GrantLedger* ledger,
                         const Pods* pods, const DeviceSetHolder* devices, GrantMetrics* metrics)
    : runner_(runner),
      service_(service),
      ledger_(ledger),
      pods_(pods),
      devices_(devices),
      metrics_(metrics) {}

void StartChecks::Check(const std::string& resource, const std::vector<std::string>& ids,
                        OnChecked done) {
  ListPods(std::make_shared<Call>(Call{.resource = resource,
                                       .ids = ids,
                                       .deadline = runner_->clock().Now() + kStartCheckWait,
                                       .done = std::move(done)}));
}

void StartChecks::ListPods(const CallPtr& call) {
  service_->ended_pods().ListKubeletPods([this, call](const Result<PodDevices>& kubelet_pods) {
    if (kubelet_pods.ok()) return Verify(call, *kubelet_pods);
    if (runner_->clock().Now() >= call->deadline) {
      return Finish(
          call, Error(Code::kUnavailable,
                      "the kubelet did not list its pods, so the container with {} is unknown: {}",
                      call->resource, kubelet_pods.status().message()));
    }
    runner_->PostDelayed(kListPause, [this, call, weak = weak_.Get()] {
      if (weak) ListPods(call);
    });
  });
}

void StartChecks::Verify(const CallPtr& call, const PodDevices& kubelet_pods) {
  const Holders holders = HoldersOf(*call, kubelet_pods);
  const Entry* entry = EntryOf(*call);
  if (entry == nullptr) return CheckUngranted(call, holders);
  if (!entry->holder.owner_known()) {
    const Result<ContainerRef> owner = FindOwner(*entry, holders);
    return owner.ok() ? FinishWithGrant(call, *owner) : Finish(call, owner.status());
  }
  const Status status = CompareHolders(*entry, holders, kubelet_pods);
  return status.ok() ? FinishWithGrant(call, ContainerRef(entry->holder)) : Finish(call, status);
}

Status StartChecks::CompareHolders(const Entry& entry, const Holders& holders,
                                   const PodDevices& kubelet_pods) const {
  const ContainerRef& expected = entry.holder;
  for (const ListedHolder& holder : holders) {
    // The kubelet reuses the IDs of an init container for a later container of its pod
    // (devicesToReuse in pkg/kubelet/cm/devicemanager/manager.go).
    const bool same = holder.exact && holder.ref.container == expected.container;
    if (SamePod(holder.ref, expected) && (same || entry.phase == device::Phase::kInit)) continue;
    return MismatchError(holder.ref, device::UuidsOf(entry.shares),
                         "which Allocate gave it for " + TextOf(expected));
  }
  if (pods_ != nullptr) {
    ASSIGN_OR_RETURN(const ContainerRef known, WithUid(expected));
    if (known.pod_uid != expected.pod_uid) {
      return MismatchError(known, device::UuidsOf(entry.shares),
                           "which Allocate gave it for an earlier pod of the same name");
    }
  }
  if (!holders.empty()) return Status::Ok();
  if (!kubelet_pods.Lists(expected.pod_namespace, expected.pod_name)) {
    return Error(Code::kUnavailable, "the kubelet does not list pod {} yet", expected.PodText());
  }
  if (entry.phase == device::Phase::kInit && !entry.guessed) return Status::Ok();
  return MismatchError(expected, device::UuidsOf(entry.shares),
                       "and the kubelet does not list them for this container");
}

Result<ContainerRef> StartChecks::FindOwner(const Entry& entry, const Holders& holders) {
  const ContainerRef unknown = entry.holder;
  // The kubelet does not list init containers. Without access to the API server, a container that
  // the kubelet does not list is taken for an init container.
  if (pods_ == nullptr && holders.empty()) return unknown;
  if (holders.size() != 1 || !holders[0].exact) {
    return MismatchError(unknown, device::UuidsOf(entry.shares),
                         "and the kubelet does not list them for one container");
  }
  ContainerRef owner = holders[0].ref;
  if (pods_ == nullptr) {
    owner.pod_uid = unknown.pod_uid;
  } else {
    ASSIGN_OR_RETURN(owner, WithUid(std::move(owner)));
    const PodInfo& pod = **service_->occupancy().Find(owner.pod_uid);
    RETURN_IF_ERROR(pod.request.status().Annotate("pod " + pod.Text()));
  }
  const std::vector<std::string> has = device::UuidsOf(entry.shares);
  const std::vector<std::string> assigned = AssignedGpusOf(owner);
  if (!assigned.empty() && !SameIds(assigned, has)) {
    return MismatchError(owner, has, "chosen before its assignment was known");
  }
  RETURN_IF_ERROR(service_->SetHolder(unknown, owner));
  return owner;
}

void StartChecks::CheckUngranted(const CallPtr& call, const Holders& holders) {
  if (holders.size() != 1 || !holders[0].exact) {
    return Finish(call, Error(Code::kUnavailable,
                              "these IDs of {} have no grant, and the kubelet does not list "
                              "the container that has them: if the error stays, delete the pod",
                              call->resource));
  }
  const ContainerRef& owner = holders[0].ref;
  // Either another device plugin gave the GPUs, so the entry has no claims, or the IDs are of
  // vcuda-memory beside whole GPUs. Such a request for memory chooses no GPU.
  for (const auto& [key, entry] : ledger_->entries()) {
    const bool whole = !entry.shares.empty() && entry.shares.front().compute == kWholeGpu;
    if ((entry.claims.empty() || (whole && call->resource == names::kResourceVcudaMemory)) &&
        SamePod(entry.holder, owner) && entry.holder.container == owner.container) {
      return FinishWithGrant(call, ContainerRef(entry.holder));
    }
  }
  if (call->resource == names::kResourceGpu && HasRun(owner)) return AdoptGpus(call, owner);
  Finish(call,
         MismatchError(owner, {}, "as this agent made no grant for its IDs of " + call->resource));
}

bool StartChecks::HasRun(const ContainerRef& holder) const {
  if (pods_ == nullptr) return false;
  const Result<ContainerRef> owner = WithUid(holder);
  return owner.ok() && pods_->pods().at(owner->pod_uid)->container_ids.contains(holder.container);
}

// A container that has run holds the GPUs of its IDs; a rejected container does not.
void StartChecks::AdoptGpus(const CallPtr& call, const ContainerRef& holder) {
  const ContainerRef owner = *WithUid(holder);
  const Claim claim = NewClaim(call->resource, call->ids, runner_->clock().WallNow());
  const std::vector<std::string> assigned = AssignedGpusOf(owner);
  const std::string how_given = "by a device plugin that did not know its assignment";
  if (!assigned.empty() && !SameIds(assigned, call->ids)) {
    return Finish(call, MismatchError(owner, call->ids, how_given));
  }
  service_->Decide({.requester = owner,
                    .claims = {claim},
                    .reply = [this, call, owner, how_given](const Result<grant::Grant>& grant) {
                      if (!grant.ok()) return Finish(call, grant.status());
                      const Entry* entry = ledger_->Find(owner);
                      if (entry != nullptr && SameIds(device::UuidsOf(entry->shares), call->ids)) {
                        return Finish(call, Status::Ok());
                      }
                      const Status released = ledger_->Release(GrantLedger::KeyOf(owner));
                      Finish(call,
                             released.ok() ? MismatchError(owner, call->ids, how_given) : released);
                    }});
}

void StartChecks::FinishWithGrant(const CallPtr& call, const ContainerRef& owner) {
  const Entry* entry = ledger_->Find(owner);
  service_->Decide({.requester = owner,
                    .claims = entry == nullptr ? std::vector<Claim>() : entry->claims,
                    .reply = [this, call](const auto& grant) { Finish(call, grant.status()); }});
}

void StartChecks::Finish(const CallPtr& call, const Status& status) const {
  if (status.code() == Code::kFailedPrecondition) metrics_->starts_refused.Add();
  call->done(status);
}

StartChecks::Holders StartChecks::HoldersOf(const Call& call, const PodDevices& kubelet_pods) {
  // The kubelet has an entry for each ID of a container, or for each NUMA node.
  std::map<std::tuple<std::string, std::string, std::string>, std::set<std::string>>
      ids_by_container;
  for (const HeldDevices& held : kubelet_pods.held_devices) {
    if (held.resource != call.resource) continue;
    ids_by_container[{held.pod_namespace, held.pod_name, held.container}].insert(held.ids.begin(),
                                                                                 held.ids.end());
  }
  const std::set<std::string> wanted(call.ids.begin(), call.ids.end());
  Holders exact, partial;
  for (const auto& [owner, ids] : ids_by_container) {
    const auto& [pod_namespace, pod, container] = owner;
    const ListedHolder holder{{Uid(), pod_namespace, pod, container}, ids == wanted};
    if (holder.exact) exact.push_back(holder);
    if (std::ranges::any_of(ids, [&](const auto& id) { return wanted.contains(id); }))
      partial.push_back(holder);
  }
  // A kubelet can allocate an ID twice, so the holder of exactly these IDs is preferred.
  return exact.size() == 1 ? exact : partial;
}

const GrantLedger::Entry* StartChecks::EntryOf(const Call& call) const {
  const Entry* last = nullptr;
  grant::Nonce last_nonce{};
  for (const auto& [key, entry] : ledger_->entries()) {
    for (const Claim& claim : entry.claims) {
      if (!IsClaimFor(claim, call.resource, call.ids)) continue;
      if (last != nullptr && claim.nonce < last_nonce) continue;
      last = &entry;
      last_nonce = claim.nonce;
    }
  }
  return last;
}

Result<ContainerRef> StartChecks::WithUid(ContainerRef owner) const {
  if (const PodInfo* pod = pods_->FindByName(owner.pod_namespace, owner.pod_name)) {
    owner.pod_uid = pod->uid;
    return owner;
  }
  const Status last_error = pods_->last_error();
  return Error(Code::kUnavailable,
               "pod {} is not known to the agent of this node, so its assignment is unknown: "
               "{}",
               owner.PodText(),
               last_error.ok() ? "the API server has not listed it" : last_error.message());
}

std::vector<std::string> StartChecks::AssignedGpusOf(const ContainerRef& owner) const {
  const auto set = devices_->Get();
  if (set == nullptr) return {};
  const device::Assignment assignment = service_->occupancy().AssignmentOf(owner.pod_uid, set);
  const auto shares = assignment.containers.find(owner.container);
  return shares == assignment.containers.end() ? std::vector<std::string>()
                                               : device::UuidsOf(shares->second);
}

Status StartChecks::MismatchError(const ContainerRef& owner,
                                  const std::vector<std::string>& container_gpus,
                                  const std::string& how_given) const {
  std::vector<std::string> assigned;
  Result<ContainerRef> known = pods_ == nullptr || !owner.owner_known() ? owner : WithUid(owner);
  if (known.ok()) assigned = AssignedGpusOf(*known);
  return Error(
      Code::kFailedPrecondition,
      "{} has {}, {}; it was assigned {}. It does not start: delete pod {}, and its "
      "controller makes a new pod",
      TextOf(owner),
      container_gpus.empty() ? "nothing" : fmt::format("{}", fmt::join(container_gpus, ", ")),
      how_given, assigned.empty() ? "nothing" : fmt::format("{}", fmt::join(assigned, ", ")),
      owner.PodText());
}

}  // namespace tessera::agent
