// SPDX-License-Identifier: Apache-2.0
// The plans of driver upgrades, one for each pool: made when other drivers are wanted than nodes
// have, kept while nodes upgrade one after the other, and gone when no node waits. No node begins
// before the plan of its pool is published, which the caller says.
//
// Threads: one. Logs each plan.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/operator/driver/fleet.h"
#include "src/operator/fleet_report.h"

namespace tessera::operators {

class UpgradePlans {
 public:
  // The nodes whose pods a new plan of the pool names; empty if its plan is up to date.
  std::vector<std::string> NodesToRead(const driver::FleetView::PoolView& pool) const;
  // Makes a new plan if the old one is not about the wanted drivers. `fleet` is the pool's nodes
  // with their pods. Leaves the plan as it is if `has_pods` denies one of NodesToRead.
  void Update(const driver::FleetView::PoolView& pool,
              const std::vector<driver::UpgradeNode>& fleet,
              const std::function<bool(const std::string& node)>& has_pods, WallTime now);

  // "" without a plan.
  std::string TextOf(const std::string& pool) const;
  bool IsPublished(const std::string& pool) const;
  // The report's plans stand where people see them. Returns whether this is news for a plan.
  bool OnPublished(const FleetReport& report);

 private:
  struct PoolPlan {
    std::string key;  // the revisions that it is about; "": nothing waits
    std::string text;
    bool published = false;
  };
  const PoolPlan* Find(const std::string& pool) const;
  static std::string KeyOf(const driver::FleetView::PoolView& pool);

  std::map<std::string, PoolPlan> plans_;  // by pool
};

}  // namespace tessera::operators
