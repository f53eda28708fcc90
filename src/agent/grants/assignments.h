// SPDX-License-Identifier: Apache-2.0
// What the annotations of pods assign to their containers on this node, by the scheduler or by the
// older systems; read once for each state of a pod. A user may write annotations, too: so a
// container has by them what its pod asks for, on a GPU of this node, or an error, and never more.
//
// Threads: one.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/pods/pods.h"
#include "src/device/assignment.h"

namespace tessera::agent {

class Assignments {
 public:
  struct Assigned {
    Status status;                  // INVALID_ARGUMENT names the annotation
    device::Assignment assignment;  // of the containers for which it is right
  };

  const Assigned& Of(const std::shared_ptr<const PodInfo>& pod,
                     const std::shared_ptr<const DeviceSet>& set);
  // The pod is gone.
  void Forget(const std::string& uid) { known_.erase(uid); }

 private:
  struct Known {
    std::shared_ptr<const PodInfo> pod;
    std::shared_ptr<const DeviceSet> set;
    Assigned assigned;
  };
  std::map<std::string, Known> known_;
};

// Null where the request names no such container, or it asks for no device.
const device::ContainerRequest* FindAsking(const device::Request& request,
                                           std::string_view container);

}  // namespace tessera::agent
