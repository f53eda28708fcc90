// SPDX-License-Identifier: Apache-2.0
// GPUs that are kept for pods for which kube-scheduler evicts others. Such a pod waits while its
// victims end, and its status names the node (nominatedNodeName). What becomes free there is for
// it, and not for a pod of lower priority that happens to be asked about first.
#include <algorithm>
#include <utility>

#include "src/ledger/ledger.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {

using placement::Demand;
using placement::Pick;

void ClusterLedger::Nominate(PodEntry& pod, const std::string& node) {
  if (pod.nominated == node) return;
  if (const auto old = nominated_.find(pod.nominated); old != nominated_.end()) {
    old->second.erase(pod.ask.uid);
    if (old->second.empty()) nominated_.erase(old);
  }
  pod.nominated = node;
  if (!node.empty()) nominated_[node].insert(pod.ask.uid);
}

// Highest priority first. As kube-scheduler: those of equal priority count, too.
std::vector<const PodEntry*> ClusterLedger::NominatedBefore(const PodAsk& ask,
                                                            const std::string& node) const {
  std::vector<const PodEntry*> pods;
  const auto found = nominated_.find(node);
  if (found == nominated_.end()) return pods;
  for (const Uid& uid : found->second) {
    const PodEntry& pod = pods_.find(uid)->second;
    // What is assumed holds its GPUs already.
    if (uid == ask.uid || pod.standing != Standing::kWaiting) continue;
    if (pod.ask.priority >= ask.priority && pod.ask.request.asks_for_devices()) {
      pods.push_back(&pod);
    }
  }
  std::stable_sort(pods.begin(), pods.end(), [](const PodEntry* a, const PodEntry* b) {
    return a->ask.priority > b->ask.priority;
  });
  return pods;
}

void ClusterLedger::AddTo(NodeTrial* trial, const PodEntry& pod) const {
  if (!pod.place) return;
  const placement::Pod& placed = *cluster_->Find(*pod.place);
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

// A nominated pod gets what is free now; where that is too little, what is free once the pods that
// are being deleted have ended; where its victims are not deleted yet, what is free without pods of
// lower priority.
std::vector<std::pair<Demand, Pick>> ClusterLedger::ReservedOn(
    const NodeEntry& node, std::span<const PodEntry* const> nominated) {
  std::vector<std::pair<Demand, Pick>> reserved;
  for (const PodEntry* pod : nominated) {
    const Result<placement::PodDemand> demand = DemandOf(pod->ask);
    if (!demand.ok()) continue;
    const Demand wanted = GpusOnly(demand->demand);
    const auto pick_where = [&](const PodFilter& stays) {
      NodeTrial trial = TrialOf(node, stays);
      for (const auto& [other, pick] : reserved) trial.Add(other, pick);
      return trial.PickFor(wanted);
    };
    const int32_t priority = pod->ask.priority;
    std::optional<Pick> pick = pick_where([](const PodEntry&) { return true; });
    if (!pick) pick = pick_where([](const PodEntry& other) { return !other.deleting; });
    if (!pick) {
      pick = pick_where([priority](const PodEntry& other) {
        return !other.deleting && other.ask.priority >= priority;
      });
    }
    // Else the nomination is out of date: the pod does not fit there any more.
    if (pick) reserved.emplace_back(wanted, *pick);
  }
  return reserved;
}

std::optional<NodeTrial> ClusterLedger::WithReserved(const PodAsk& ask, const NodeEntry& node) {
  if (nominated_.empty()) return std::nullopt;
  const std::vector<const PodEntry*> nominated = NominatedBefore(ask, node.node.name);
  if (nominated.empty()) return std::nullopt;
  NodeTrial trial = TrialOf(node, [](const PodEntry&) { return true; });
  for (const auto& [demand, pick] : ReservedOn(node, nominated)) trial.Add(demand, pick);
  return trial;
}

std::string_view ClusterLedger::ReservedReason(Question& question, const NodeEntry& node) {
  const std::optional<NodeTrial> trial = WithReserved(question.ask, node);
  if (!trial || trial->Fits(GpusOnly(question.demand.demand))) return "";
  const PodEntry& first = *NominatedBefore(question.ask, node.node.name).front();
  return question.reserved
      .insert_or_assign(node.node.name,
                        fmt::format("its GPUs are reserved for pod {} of priority {}, which is "
                                    "nominated to the node",
                                    first.ask.Text(), first.ask.priority))
      .first->second;
}

}  // namespace tessera::ledger
