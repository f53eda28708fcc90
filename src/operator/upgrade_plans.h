// SPDX-License-Identifier: Apache-2.0
// The plans of driver upgrades, one for each pool. A plan is made when nodes have another driver
// than the wanted one. It is kept while nodes upgrade one after the other, and ends when no node
// waits. No node begins before the caller has reported that the plan of its pool is published.
//
// Threads: one. Logs each plan.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/operator/driver/fleet.h"
#include "src/operator/resource_status.h"

namespace tessera::operators {

class UpgradePlans {
 public:
  // The nodes whose pods the caller must read for a new plan of the pool; empty if the present plan
  // is up to date.
  std::vector<std::string> NodesToRead(const driver::FleetView::PoolView& pool) const;
  // Makes a new plan if the present plan is for other drivers than the wanted ones. `fleet` is the
  // pool's nodes with their pods. Keeps the present plan if `pods_known` is false for a node of
  // NodesToRead.
  void Update(const driver::FleetView::PoolView& pool,
              const std::vector<driver::UpgradeNode>& fleet,
              const std::function<bool(const std::string& node)>& pods_known, WallTime now);

  // "" if the pool has no plan.
  std::string TextOf(const std::string& pool) const;
  bool IsPublished(const std::string& pool) const;
  // Call when the status contains the report's plans. Returns whether a plan has become published.
  bool OnPublished(const FleetReport& report);

 private:
  struct PoolPlan {
    std::string key;  // the revisions of the plan; "": no node waits
    std::string text;
    bool published = false;
  };
  const PoolPlan* Find(const std::string& pool) const;
  static std::string KeyOf(const driver::FleetView::PoolView& pool);

  std::map<std::string, PoolPlan> plans_;  // by pool
};

}  // namespace tessera::operators
