// SPDX-License-Identifier: Apache-2.0
// Inside the room: the cluster's PodDisruptionBudgets, and which evictions they allow.
// Threads: one.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/kube/objects.h"

namespace tessera::ledger {

class Budgets {
 public:
  void Set(kube::PodDisruptionBudgetObject budget);
  void Remove(std::string_view ns, std::string_view name);
  // All of them have come. Until then no pod is evicted that kube-scheduler, which knows them, did
  // not propose.
  void SetKnown() { known_ = true; }
  bool known() const { return known_; }

  struct Pod {
    std::string_view ns, name;
    const kube::StringMap* labels;
  };
  // For each of `pods`, whether its eviction violates a budget, were those before it evicted, too.
  // A budget that the API server has charged for a pod already does not count for it. As
  // kube-scheduler counts, but that an empty selector means all pods of the namespace, which is
  // what the API says.
  std::vector<bool> Violated(std::span<const Pod> pods) const;

 private:
  bool known_ = false;
  std::map<std::pair<std::string, std::string>, kube::PodDisruptionBudgetObject> budgets_;
};

}  // namespace tessera::ledger
