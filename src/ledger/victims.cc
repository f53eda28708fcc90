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
struct EvictablePod {
  const Uid* uid;
  const PodEntry* pod;
  bool proposed = false;
  bool violates = false;  // its eviction violates a PodDisruptionBudget
};

std::vector<bool> FindViolations(const Budgets& budgets,
                                 const std::vector<EvictablePod>& candidates) {
  std::vector<Budgets::CoveredPod> pods;
  for (const EvictablePod& candidate : candidates) {
    pods.push_back(
        {candidate.pod->request.ns, candidate.pod->request.name, &*candidate.pod->labels});
  }
  return budgets.FindViolations(pods);
}

int64_t CountViolated(const Budgets& budgets, const std::vector<EvictablePod>& candidates) {
  const std::vector<bool> violated = FindViolations(budgets, candidates);
  return std::count(violated.begin(), violated.end(), true);
}

// Sorts by the order in which pods are spared if there is room, as in kube-scheduler: first pods
// whose eviction violates a budget, then by priority, then pods that kube-scheduler did not
// propose. Pods that are being deleted come last.
void SortBySparing(std::vector<EvictablePod>* candidates) {
  std::sort(candidates->begin(), candidates->end(),
            [](const EvictablePod& a, const EvictablePod& b) {
              const auto rank = [](const EvictablePod& candidate) {
                return std::tuple(candidate.pod->deleting, !candidate.violates,
                                  -int64_t{candidate.pod->request.priority}, candidate.proposed,
                                  *candidate.uid);
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
    if (pod == pods_.end() || !pod->second.request.devices->requests_devices()) {
      eviction.uids.push_back(uid);
    }
  }
  const size_t without_gpus = eviction.uids.size();
  std::vector<EvictablePod> candidates;
  const auto may_evict = [&](const PodEntry& pod, bool is_proposed) {
    if (!pod.placed_id || pod.binding_state != BindingState::kBound) return false;
    return is_proposed || (budgets_.known() && pod.request.priority < query.request.priority);
  };
  for (const Uid& uid : PodsOn(known->first)) {
    const PodEntry& pod = pods_.find(uid)->second;
    const bool is_proposed =
        std::find(proposed.uids.begin(), proposed.uids.end(), uid) != proposed.uids.end();
    if (may_evict(pod, is_proposed)) candidates.push_back({&uid, &pod, is_proposed});
  }
  const auto stays = [&](const PodEntry& pod) {
    return std::none_of(candidates.begin(), candidates.end(),
                        [&](const EvictablePod& candidate) { return candidate.pod == &pod; });
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

  std::vector<EvictablePod> by_proposal = candidates;
  std::erase_if(by_proposal, [](const EvictablePod& candidate) { return !candidate.proposed; });
  const std::vector<bool> violated = FindViolations(budgets_, candidates);
  for (size_t i = 0; i < candidates.size(); ++i) candidates[i].violates = violated[i];
  SortBySparing(&candidates);
  std::vector<EvictablePod> victims;
  for (const EvictablePod& candidate : candidates) {
    NodeTrial trial_with_pod = trial;
    AddTo(&trial_with_pod, *candidate.pod);
    if (trial_with_pod.Fits(wanted)) {
      trial = std::move(trial_with_pod);
    } else {
      victims.push_back(candidate);
      eviction.uids.push_back(*candidate.uid);
    }
  }
  if (eviction.uids.empty()) return std::nullopt;
  std::erase_if(victims, [](const EvictablePod& candidate) { return candidate.pod->deleting; });
  eviction.pdb_violations = CountViolated(budgets_, victims);
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
