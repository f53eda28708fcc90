// SPDX-License-Identifier: Apache-2.0
// Reserves GPUs for nominated pods. A pod for which kube-scheduler evicts others waits while its
// victims end, and its status names the node (nominatedNodeName). GPUs that become free there are
// reserved for it against pods of lower priority.
#include <algorithm>
#include <utility>

#include "src/ledger/ledger.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {

using placement::Demand;
using placement::Pick;

void ClusterLedger::Nominate(PodEntry& pod, const std::string& node) {
  if (pod.nominated_node() == node) return;
  if (const auto old = nominated_.find(pod.nominated_node()); old != nominated_.end()) {
    old->second.erase(pod.request.uid);
    if (old->second.empty()) nominated_.erase(old);
  }
  pod.rare.Update([&](PodEntry::RareFields& rare) { rare.nominated_node = node; });
  if (!node.empty()) nominated_[node].insert(pod.request.uid);
}

std::vector<const PodEntry*> ClusterLedger::NominatedBefore(const PodRequest& request,
                                                            const std::string& node) const {
  std::vector<const PodEntry*> pods;
  const auto found = nominated_.find(node);
  if (found == nominated_.end()) return pods;
  for (const Uid& uid : found->second) {
    const PodEntry& pod = pods_.find(uid)->second;
    // Assumed pods already hold their GPUs.
    if (uid == request.uid || pod.binding_state != BindingState::kWaiting) continue;
    if (pod.request.priority >= request.priority && pod.request.devices->requests_devices()) {
      pods.push_back(&pod);
    }
  }
  std::stable_sort(pods.begin(), pods.end(), [](const PodEntry* a, const PodEntry* b) {
    return a->request.priority > b->request.priority;
  });
  return pods;
}

void ClusterLedger::AddTo(NodeTrial* trial, const PodEntry& pod) const {
  if (!pod.placed_id) return;
  const placement::PlacedPod& placed = *cluster_->Find(*pod.placed_id);
  trial->Add(cluster_->demand(placed.shape), placed.pick);
}

NodeTrial ClusterLedger::TrialOf(const NodeEntry& node, const PodFilter& stays) const {
  NodeTrial trial(*cluster_, node.id);
  for (const Uid& uid : PodsOn(node.node.name)) {
    const PodEntry& pod = pods_.find(uid)->second;
    if (stays(pod)) AddTo(&trial, pod);
  }
  return trial;
}

// Picks GPUs for each nominated pod from the first of these that has room: the GPUs that are free
// now; the GPUs that are free once the pods being deleted have ended; the GPUs that are free
// without pods of lower priority (the nominated pod's victims may not be deleted yet).
std::vector<std::pair<Demand, Pick>> ClusterLedger::ReservedOn(
    const NodeEntry& node, std::span<const PodEntry* const> nominated) {
  std::vector<std::pair<Demand, Pick>> reserved;
  for (const PodEntry* pod : nominated) {
    const Result<placement::PodDemand> demand = DemandOf(pod->request);
    if (!demand.ok()) continue;
    const Demand wanted = GpusOnly(demand->demand);
    const auto pick_where = [&](const PodFilter& stays) {
      NodeTrial trial = TrialOf(node, stays);
      for (const auto& [other, pick] : reserved) trial.Add(other, pick);
      return trial.PickFor(wanted);
    };
    const int32_t priority = pod->request.priority;
    std::optional<Pick> pick = pick_where([](const PodEntry&) { return true; });
    if (!pick) pick = pick_where([](const PodEntry& other) { return !other.deleting; });
    if (!pick) {
      pick = pick_where([priority](const PodEntry& other) {
        return !other.deleting && other.request.priority >= priority;
      });
    }
    // Without a pick the nomination is outdated: the pod no longer fits on this node.
    if (pick) reserved.emplace_back(wanted, *pick);
  }
  return reserved;
}

std::optional<NodeTrial> ClusterLedger::WithReserved(const PodRequest& request,
                                                     const NodeEntry& node) {
  if (nominated_.empty()) return std::nullopt;
  const std::vector<const PodEntry*> nominated = NominatedBefore(request, node.node.name);
  if (nominated.empty()) return std::nullopt;
  NodeTrial trial = TrialOf(node, [](const PodEntry&) { return true; });
  for (const auto& [demand, pick] : ReservedOn(node, nominated)) trial.Add(demand, pick);
  return trial;
}

std::string_view ClusterLedger::ReservedReason(Query& query, const NodeEntry& node) {
  const std::optional<NodeTrial> trial = WithReserved(query.request, node);
  if (!trial || trial->Fits(GpusOnly(query.demand.demand))) return "";
  const PodEntry& first = *NominatedBefore(query.request, node.node.name).front();
  return query.reserved_reasons
      .insert_or_assign(node.node.name,
                        fmt::format("its GPUs are reserved for pod {} of priority {}, which is "
                                    "nominated to the node",
                                    first.request.Text(), first.request.priority))
      .first->second;
}

}  // namespace tessera::ledger
