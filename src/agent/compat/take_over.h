// SPDX-License-Identifier: Apache-2.0
// Enters into the ledger the GPUs of containers that gpushare's device plugin or gpu-manager
// started on this node before it had the agent. Their GPUs come from the checkpoints that kubelet
// and gpu-manager left, else from the pod's annotations; their shares from the pod's request. If
// checkpoint and annotations differ, the entry counts as the agent's choice, so that the pod's
// annotations are corrected.
//
// A container is tried at each change of its pod until the ledger knows it, so API server, driver
// and agent may come and go meanwhile. A container that cannot be taken over counts with
// its annotations, and is logged once.
//
// Threads: one.
#pragma once

#include <set>
#include <string>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/other_plugin_grants.h"
#include "src/base/uid.h"
#include "src/device/dialects/plugin_checkpoints.h"

namespace tessera::agent {

class TakeOver final : public OtherPluginGrants {
 public:
  // The ledger outlives it.
  TakeOver(device::GivenMinors given, GrantLedger* ledger)
      : given_(std::move(given)), ledger_(ledger) {}

  bool Enter(const PodInfo& pod, const Assignments::Assigned& annotated, const DeviceSet& set,
             const DialectSettings& settings, WallTime now) override;
  void Forget(const Uid& uid) override { logged_.erase(uid); }

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
  std::set<Uid> logged_;  // pods whose problem is logged
};

// Reads both files, each of which may be "" or missing. An invalid part is logged with its place,
// and the rest counts.
device::GivenMinors ReadCheckpoints(const std::string& kubelet_file,
                                    const std::string& gpu_manager_file);

}  // namespace tessera::agent
