// SPDX-License-Identifier: Apache-2.0
// Adds entries to the GrantLedger for containers that were running before the agent was installed,
// and whose GPUs gpushare's device plugin or gpu-manager chose. The GPUs come from the checkpoints
// of the kubelet and of gpu-manager, else from the pod's annotations. The shares come from the
// pod's request. If the checkpoint and the annotations differ, the checkpoint is used. The entry is
// then recorded as a choice of the agent, and the agent therefore writes the GPUs of the checkpoint
// into the pod's annotations.
//
// Each change of a pod calls AddEntries again for the containers that have no entry yet. So the API
// server, the driver or the agent may restart before all containers have an entry. If a container
// cannot be taken over, the annotations of its pod are used instead. Only the first error of each
// pod is logged.
//
// Threads: the grants' thread.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "src/agent/grants/grant_description.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/node_occupancy.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/pods/pods.h"
#include "src/base/clock.h"
#include "src/base/uid.h"
#include "src/device/dialects/plugin_checkpoints.h"

namespace tessera::agent {

class PluginTakeover {
 public:
  // `ledger` must outlive the object.
  PluginTakeover(device::AllocatedMinors minors, GrantLedger* ledger)
      : minors_(std::move(minors)), ledger_(ledger) {}

  // Adds entries for the pod's running containers that have none. `annotated`: the pod's assignment
  // by annotations. Returns whether the ledger has new entries.
  bool AddEntries(const PodInfo& pod, const AnnotatedAssignment& annotated, const DeviceSet& set,
                  const DialectSettings& settings, WallTime now);
  // Call when the pod is deleted.
  void Forget(const Uid& uid) { pods_with_logged_error_.erase(uid); }

 private:
  std::vector<device::DeviceShare> HeldBy(const PodInfo& pod,
                                          const device::ContainerRequest& container,
                                          const AnnotatedAssignment& annotated,
                                          const device::NodeInventory& inventory);
  Result<std::vector<device::DeviceShare>> SharesOf(const std::vector<int>& minors,
                                                    const device::ContainerRequest& container,
                                                    const device::NodeInventory& inventory) const;
  void LogOnce(const PodInfo& pod, const std::string& container, const Status& status);

  const device::AllocatedMinors minors_;
  GrantLedger* const ledger_;
  std::set<Uid> pods_with_logged_error_;
};

// Reads both files, each of which may be "" or missing. Logs an invalid entry with its position and
// reads the others.
device::AllocatedMinors ReadCheckpoints(const std::string& kubelet_file,
                                        const std::string& gpu_manager_file);

}  // namespace tessera::agent
