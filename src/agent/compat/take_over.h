// SPDX-License-Identifier: Apache-2.0
// Enters into the ledger what containers hold that were started on this node before it had an
// agent, by gpushare's device plugin or gpu-manager. Which GPUs they have say, in this order, the
// checkpoints that kubelet and gpu-manager left, then the pod's annotations; how much of them, the
// pod's request. Where the checkpoints say otherwise than the annotations, the entry counts as the
// agent's choice, so that the pod is told what it really has.
//
// A container is looked at as often as its pod changes, until the ledger knows it: so it does not
// matter when the API server, the driver or the agent itself come and go. What cannot be taken over
// stays counted as the pod's annotations say, and is logged once.
//
// Threads: one.
#pragma once

#include <set>
#include <string>

#include "src/agent/grants/earlier_grants.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/device/dialects/plugin_checkpoints.h"

namespace tessera::agent {

class TakeOver final : public EarlierGrants {
 public:
  // The ledger outlives it.
  TakeOver(device::GivenMinors given, GrantLedger* ledger)
      : given_(std::move(given)), ledger_(ledger) {}

  bool Enter(const PodInfo& pod, const Assignments::Assigned& annotated, const DeviceSet& set,
             const DialectSettings& settings, WallTime now) override;
  void Forget(const std::string& uid) override { logged_.erase(uid); }

 private:
  std::vector<device::DeviceShare> HeldBy(const PodInfo& pod,
                                          const device::ContainerRequest& container,
                                          const Assignments::Assigned& annotated,
                                          const device::NodeInventory& inventory);
  Result<std::vector<device::DeviceShare>> SharesOf(const std::vector<int>& minors,
                                                    const device::ContainerRequest& container,
                                                    const device::NodeInventory& inventory) const;
  void LogOnce(const PodInfo& pod, const std::string& container, const Status& status);

  const device::GivenMinors given_;
  GrantLedger* const ledger_;
  std::set<std::string> logged_;  // UIDs of pods of which it is logged what is wrong
};

// Reads both files, each of which may be "" or not there. Of one that makes no sense the log tells
// what and where, and the rest counts.
device::GivenMinors ReadCheckpoints(const std::string& kubelet_file,
                                    const std::string& gpu_manager_file);

}  // namespace tessera::agent
