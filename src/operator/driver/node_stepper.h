// SPDX-License-Identifier: Apache-2.0
// The steps of one node in an upgrade. The limits of the fleet are in upgrade.cc. Included only in
// src/operator/driver.
#pragma once

#include <string>
#include <utility>

#include "src/operator/driver/upgrade.h"

namespace tessera::driver {

// The driver as shown to users: its version, or its revision if the version is unknown.
std::string TitleOfWanted(const UpgradeNode& node);
std::string TitleOf(const DriverPod& driver);
// Whether the wanted driver of the node is loaded.
bool RunsWantedDriver(const UpgradeNode& node);
// Whether the node needs an upgrade, now or when the limits of the fleet allow it.
bool MayUpgrade(const UpgradePolicy& policy, const UpgradeNode& node);

// Adds the actions of one node to a step.
class NodeStepper {
 public:
  NodeStepper(const UpgradePolicy& policy, const UpgradeNode& node, UpgradeState state,
              WallTime now, UpgradeStep* step)
      : policy_(policy), node_(node), state_(state), now_(now), step_(step) {}

  // Adds the actions that are due in the node's state. A node in upgrade-required stays there.
  void Step();
  // Starts the upgrade of a node in upgrade-required.
  void Begin();

 private:
  UpgradeAction& AddAction(UpgradeAction::Kind kind, std::string reason) {
    step_->actions.push_back({.kind = kind, .node = node_.name, .reason = std::move(reason)});
    return step_->actions.back();
  }
  UpgradeAction& Enter(UpgradeState state, std::string reason);
  // Records in `action` that the wanted driver does not work on this node.
  void Fail(const std::string& why, UpgradeAction* action) const;
  UpgradeState StateAfter(UpgradeState state) const;
  void EnterNext(std::string reason) { Enter(StateAfter(state_), std::move(reason)); }
  // Whether the node has been in its state for at least `limit`. If not, UpgradeStep::next is at
  // most the time when that will be the case.
  bool DeadlineHasPassed(Duration limit);

  void StepAtRest();
  void StepCordon();
  void StepWait();
  void StepPods(bool all, Duration timeout);
  void StepRestart();
  void StepValidation();
  void StepUncordon();
  // Whether the pod must leave before the driver is replaced. `all`: drain, not only GPU pods.
  bool MustLeave(const UpgradePod& pod, bool all) const;
  std::string ReasonToStay(const UpgradePod& pod) const;
  void GiveUp(const std::string& why);
  void RollBack(const std::string& why);

  const UpgradePolicy& policy_;
  const UpgradeNode& node_;
  const UpgradeState state_;
  const WallTime now_;
  UpgradeStep* const step_;
};

}  // namespace tessera::driver
