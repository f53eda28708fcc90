// SPDX-License-Identifier: Apache-2.0
// Reads the assignments of containers on this node from the annotations of their pods, once for
// each state of a pod. The scheduler or an older system wrote them, but a user can write
// annotations, too. So an assignment of more than the pod requests, or of a GPU that is not on this
// node, is an error.
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
#include "src/base/uid.h"
#include "src/device/assignment.h"

namespace tessera::agent {

class Assignments {
 public:
  struct AnnotatedAssignment {
    Status status;                  // INVALID_ARGUMENT names the annotation
    device::Assignment assignment;  // of containers whose assignment is valid
  };

  const AnnotatedAssignment& Of(const std::shared_ptr<const PodInfo>& pod,
                                const std::shared_ptr<const DeviceSet>& set);
  // Call when the pod is deleted.
  void Forget(const Uid& uid) { cache_.erase(uid); }

 private:
  struct CachedAssignment {
    std::shared_ptr<const PodInfo> pod;
    std::shared_ptr<const DeviceSet> set;
    AnnotatedAssignment result;
  };
  std::map<Uid, CachedAssignment> cache_;
};

// Returns null if the request has no such container, or the container requests no device.
const device::ContainerRequest* FindContainerRequest(const device::DeviceRequest& request,
                                                     std::string_view container);

}  // namespace tessera::agent
