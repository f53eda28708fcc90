// SPDX-License-Identifier: Apache-2.0
// Chooses the pods to evict so that another pod fits on a node.
#include <algorithm>
#include <tuple>
#include <utility>

#include "src/ledger/ledger.h"
#include "src/ledger/node_trial.h"

namespace tessera::ledger {
namespace {

// A pod that could be evicted.
struct Holder {
  const Uid* uid;
  const PodEntry* pod;
  bool proposed = false;
  bool violates = false;  // its eviction violates a PodDisruptionBudget
};

std::vector<bool> Violated(const Budgets& budgets, const std::vector<Holder>& holders) {
  std::vector<Budgets::Pod> pods;
  for (const Holder& holder : holders) {
    pods.push_back({holder.pod->request.ns, holder.pod->request.name, &holder.pod->labels});
  }
  return budgets.Violated(pods);
}

int64_t CountViolated(const Budgets& budgets, const std::vector<Holder>& holders) {
  const std::vector<bool> violated = Violated(budgets, holders);
  return std::count(violated.begin(), violated.end(), true);
}

// The order in which pods are kept if there is room beside the new pod, as in kube-scheduler: first
// pods whose eviction violates a budget, then by priority, then pods that kube-scheduler did not
// propose. Pods that are being deleted come last.
void SortBySparing(std::vector<Holder>* holders) {
  std::sort(holders->begin(), holders->end(), [](const Holder& a, const Holder& b) {
    const auto rank = [](const Holder& holder) {
      return std::tuple(holder.pod->deleting, !holder.violates,
                        -int64_t{holder.pod->request.priority}, holder.proposed,
                        holder.uid->view());
    };
    return rank(a) < rank(b);
  });
}

}  // namespace

std::optional<ClusterLedger::Eviction> ClusterLedger::Victims(const Query& query,
                                                              std::string_view name,
                                                              const Eviction& proposed) {
  const auto known = nodes_.find(name);
  if (known == nodes_.end() || known->second.id == placement::kNoNode) return std::nullopt;
  const NodeEntry& node = known->second;
  Eviction eviction;  // starts with proposed pods without GPUs
  for (const Uid& uid : proposed.uids) {
    const auto pod = pods_.find(uid);
    if (pod == pods_.end() || !pod->second.request.devices.requests_devices()) {
      eviction.uids.push_back(uid);
    }
  }
  const size_t without_gpus = eviction.uids.size();
  std::vector<Holder> holders;
  const auto may_leave = [&](const PodEntry& pod, bool is_proposed) {
    if (!pod.placed_id || pod.binding_state != BindingState::kBound) return false;
    return is_proposed || (budgets_.known() && pod.request.priority < query.request.priority);
  };
  for (const Uid& uid : PodsOn(known->first)) {
    const PodEntry& pod = pods_.find(uid)->second;
    const bool is_proposed =
        std::find(proposed.uids.begin(), proposed.uids.end(), uid) != proposed.uids.end();
    if (may_leave(pod, is_proposed)) holders.push_back({&uid, &pod, is_proposed});
  }
  const auto stays = [&](const PodEntry& pod) {
    return std::none_of(holders.begin(), holders.end(),
                        [&](const Holder& holder) { return holder.pod == &pod; });
  };
  const placement::Demand wanted = GpusOnly(query.demand.demand);
  NodeTrial trial = TrialOf(node, stays);
  for (const PodEntry* pod : NominatedBefore(query.request, known->first)) {
    const Result<placement::PodDemand> demand = DemandOf(pod->request);
    if (!demand.ok()) continue;
    const placement::Demand reserved = GpusOnly(demand->demand);
    if (const auto pick = trial.PickFor(reserved)) trial.Add(reserved, *pick);
  }
  if (!trial.Fits(wanted)) return std::nullopt;

  std::vector<Holder> by_proposal = holders;
  std::erase_if(by_proposal, [](const Holder& holder) { return !holder.proposed; });
  const std::vector<bool> violated = Violated(budgets_, holders);
  for (size_t i = 0; i < holders.size(); ++i) holders[i].violates = violated[i];
  SortBySparing(&holders);
  std::vector<Holder> leaving;
  for (const Holder& holder : holders) {
    NodeTrial with = trial;
    AddTo(&with, *holder.pod);
    if (with.Fits(wanted)) {
      trial = std::move(with);
    } else {
      leaving.push_back(holder);
      eviction.uids.push_back(*holder.uid);
    }
  }
  if (eviction.uids.empty()) return std::nullopt;
  std::erase_if(leaving, [](const Holder& holder) { return holder.pod->deleting; });
  eviction.pdb_violations = CountViolated(budgets_, leaving);
  // The labels of pods without GPUs are not known here, so their violations are those that
  // kube-scheduler counted.
  if (without_gpus > 0) {
    eviction.pdb_violations +=
        std::max<int64_t>(0, proposed.pdb_violations - CountViolated(budgets_, by_proposal));
  } else if (!budgets_.known()) {
    eviction.pdb_violations = proposed.pdb_violations;
  }
  return eviction;
}

}  // namespace tessera::ledger
