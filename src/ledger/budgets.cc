// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/budgets.h"

namespace tessera::ledger {

void Budgets::Set(kube::PodDisruptionBudgetObject budget) {
  std::pair key(budget.meta.ns, budget.meta.name);
  budgets_.insert_or_assign(std::move(key), std::move(budget));
}

void Budgets::Remove(std::string_view ns, std::string_view name) {
  budgets_.erase({std::string(ns), std::string(name)});
}

// The algorithm of kube-scheduler's plugin DefaultPreemption (filterPodsWithPDBViolation).
std::vector<bool> Budgets::FindViolations(std::span<const CoveredPod> pods) const {
  std::vector<bool> violated(pods.size(), false);
  for (const auto& [key, budget] : budgets_) {
    if (!budget.selector) continue;
    int32_t allowed = budget.disruptions_allowed;
    for (size_t i = 0; i < pods.size(); ++i) {
      const CoveredPod& pod = pods[i];
      if (pod.ns != key.first || budget.disrupted_pods.contains(pod.name)) continue;
      if (budget.selector->Matches(*pod.labels) && --allowed < 0) violated[i] = true;
    }
  }
  return violated;
}

}  // namespace tessera::ledger
