// SPDX-License-Identifier: Apache-2.0
// The PodDisruptionBudgets of the cluster, and which evictions violate them. Included only in
// src/ledger.
//
// Threads: one.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/strings.h"
#include "src/kube/objects.h"

namespace tessera::ledger {

class Budgets {
 public:
  void Set(kube::PodDisruptionBudgetObject budget);
  void Remove(std::string_view ns, std::string_view name);
  // Call once all budgets of the cluster have been set. Before that, only evictions that
  // kube-scheduler proposed are allowed, because kube-scheduler knows the budgets.
  void SetKnown() { known_ = true; }
  bool known() const { return known_; }

  struct CoveredPod {
    std::string_view ns, name;
    const StringMap* labels;
  };
  // For each of `pods`, in this order: whether its eviction violates a budget, if the pods before
  // it are evicted as well. A budget to which the API server has already charged a pod does not
  // count that pod again. The rules are kube-scheduler's, with one difference: an empty selector
  // selects all pods of the namespace, as the API defines it.
  std::vector<bool> FindViolations(std::span<const CoveredPod> pods) const;

 private:
  bool known_ = false;
  std::map<std::pair<std::string, std::string>, kube::PodDisruptionBudgetObject> budgets_;
};

}  // namespace tessera::ledger
