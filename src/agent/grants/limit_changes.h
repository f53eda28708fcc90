// SPDX-License-Identifier: Apache-2.0
// Follows annotations tessera.dev/memory-limit and tessera.dev/compute-limit of pods
// (src/device/limit_annotations.h): people lower with them, while a pod runs, what its containers
// may use of their GPUs.
//
// The grant is the upper bound. Pods' owners can write the annotations, and a limit above the grant
// would take what others were granted. What exceeds the grant, or cannot be read, is
// rejected with an Event, and the grant holds instead. A lower limit stops nothing that runs.
//
// Threads: one. Writes files on a tmpfs (container_limits.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/pods/pods.h"

namespace tessera::agent {

// Lowers the limits of `devices` of this container as the annotations say. What is not limited
// (whole GPUs, compute of a pod that asks for memory alone) and annotations that cannot be read
// change nothing.
void ApplyLimits(const PodInfo& pod, const std::string& container,
                 std::vector<grant::GrantedDevice>* devices);

class LimitChanges {
 public:
  // All outlive it. `dir`: as of `limits`.
  LimitChanges(std::string dir, ContainerLimits* limits, const GrantLedger* ledger, Pods* pods);

  // The pod came or changed.
  void OnPod(const PodInfo& pod);
  // A container of the pod was granted its GPUs: only now it shows what exceeds the grant.
  void OnGranted(const PodInfo& pod) { RecordProblems(pod); }
  void Forget(const std::string& uid) { seen_.erase(uid); }

 private:
  void RecordProblems(const PodInfo& pod);
  // Writes the limits of all limited containers of the pod.
  void Write(const PodInfo& pod, bool tell);

  const std::string dir_;
  ContainerLimits* const limits_;
  const GrantLedger* const ledger_;
  Pods* const pods_;
  std::map<std::string, std::string> seen_;  // the annotations, by UID
};

}  // namespace tessera::agent
