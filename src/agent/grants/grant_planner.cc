// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_planner.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "src/agent/grants/local_choice.h"
#include "src/agent/grants/token_request.h"

namespace tessera::agent {
namespace {

// GPUs that pods other than `uid` hold by tokens that name them.
std::set<std::string, std::less<>> ContestedGpus(const GrantLedger& ledger, const Uid& uid) {
  std::set<std::string, std::less<>> contested;
  for (const auto& [key, entry] : ledger.entries()) {
    if (key.first == uid) continue;
    const std::vector<std::string> named = NamedGpus(entry.claims);
    for (const device::DeviceShare& share : entry.shares) {
      if (std::ranges::count(named, share.uuid) != 0) contested.insert(share.uuid);
    }
  }
  return contested;
}

}  // namespace

Result<PlannedGrant> GrantPlanner::Plan(const PendingRequest& pending,
                                        const std::shared_ptr<const DeviceSet>& set) {
  const ContainerRef& requester = pending.requester;
  const GrantLedger::Entry* entry = ledger_->Find(requester);
  if (pending.claims.empty() && (entry == nullptr || !entry->claims.empty())) {
    return Error(Code::kNotFound, "container {} of pod {} has no token and no earlier grant",
                 requester.container, requester.PodText());
  }
  if (entry != nullptr) {
    PlannedGrant repeated{*entry, {}};
    repeated.entry.claims = pending.claims;
    return repeated;
  }
  if (!pods_known_ || !requester.owner_known()) {
    ASSIGN_OR_RETURN(
        const device::DeviceRequest request,
        RequestOfTokens(requester.container, pending.claims, set->shares().gpu_mem_unit()));
    return PlanLocally(pending, request, set);
  }
  const std::shared_ptr<const PodInfo>* found = occupancy_->Find(requester.pod_uid);
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
                 "container {} of pod {} requests no GPU, but presents a token",
                 requester.container, pod.Text());
  }
  const device::Assignment assignment = occupancy_->AssignmentOf(requester.pod_uid, set);
  const auto shares = assignment.containers.find(requester.container);
  if (shares != assignment.containers.end()) {
    return PlanAssigned(pending, *pod.request, *container, shares->second, *set);
  }
  const Status& annotation_error = occupancy_->AnnotatedAssignmentOf(*found, set).status;
  if (!annotation_error.ok()) return annotation_error.Annotate("pod " + pod.Text());
  return PlanLocally(pending, *pod.request, set);
}

PlannedGrant GrantPlanner::PlanAssigned(const PendingRequest& pending,
                                        const device::DeviceRequest& request,
                                        const device::ContainerRequest& container,
                                        const std::vector<device::DeviceShare>& shares,
                                        const DeviceSet& set) const {
  PlannedGrant plan;
  plan.entry.holder = pending.requester;
  plan.entry.phase = container.phase;
  plan.entry.dialect = container.dialect;
  plan.entry.shares = shares;
  plan.entry.env = DialectEnv(request, container, shares, set.inventory(), *dialects_);
  // The journal keeps the variables with the grant, because a restarted agent needs them.
  std::ranges::copy_if(pending.variables, std::inserter(plan.entry.env, plan.entry.env.end()),
                       [](const auto& each) { return device::IsLimitVariable(each.first); });
  plan.entry.claims = pending.claims;
  plan.entry.guessed = pending.requester_is_guess;
  return plan;
}

Result<PlannedGrant> GrantPlanner::PlanLocally(const PendingRequest& pending,
                                               const device::DeviceRequest& request,
                                               const std::shared_ptr<const DeviceSet>& set) {
  LocalDemand demand{.pod_uid = pending.requester.pod_uid,
                     .request = &request,
                     .container = pending.requester.container,
                     .phases_known = pods_known_ && pending.requester.owner_known(),
                     .kubelet_gpus = NamedGpus(pending.claims),
                     .contested_gpus = ContestedGpus(*ledger_, pending.requester.pod_uid)};
  // Checks the GPUs that the kubelet named first: if one is unhealthy or missing, this error is the
  // most useful.
  for (const std::string& uuid : demand.kubelet_gpus) {
    RETURN_IF_ERROR(
        DescribeDevice(*description_, *set, {.uuid = uuid, .compute = kWholeGpu}).status());
  }
  demand.assignment = occupancy_->AssignmentOf(pending.requester.pod_uid, set);
  ASSIGN_OR_RETURN(device::Assignment chosen,
                   ChooseLocally(demand, *set, occupancy_->Accounts(set)));
  const device::ContainerRequest* container =
      FindContainerRequest(request, pending.requester.container);
  if (container == nullptr || !chosen.containers.contains(pending.requester.container)) {
    return Error(Code::kInvalidArgument, "container {} of pod {} requests no GPU of this agent",
                 pending.requester.container, pending.requester.PodText());
  }
  PlannedGrant plan =
      PlanAssigned(pending, request, *container,
                   chosen.containers.find(pending.requester.container)->second, *set);
  plan.chosen = std::move(chosen);
  return plan;
}

}  // namespace tessera::agent
