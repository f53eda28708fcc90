// SPDX-License-Identifier: Apache-2.0
// Follows annotation tessera.dev/memory-limit of pods (src/device/memory_limit.h): people lower
// with it, while a pod runs, what its containers may use of their GPUs.
//
// The grant is the upper bound. Pods' owners can write the annotation, and a limit above the grant
// would take memory that others were granted. What exceeds the grant, or cannot be read, is
// rejected with an Event, and the grant holds instead. A lower limit stops nothing that runs.
//
// Threads: one. Writes files on a tmpfs (container_limits.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/agent/container_limits.h"
#include "src/agent/grant_ledger.h"
#include "src/agent/pods.h"

namespace tessera::agent {

// Lowers the limits of `devices` of this container as the annotation says. Whole GPUs (0 bytes) and
// annotations that cannot be read change nothing.
void ApplyMemoryLimit(const PodInfo& pod, const std::string& container,
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
  // Why the annotation `text` is not followed: one sentence for each container that it does not fit.
  // Empty if it is followed.
  std::vector<std::string> ProblemsOf(const PodInfo& pod, const std::string& text) const;
  // Writes the limits of all limited containers of the pod.
  void Write(const PodInfo& pod, bool tell);

  const std::string dir_;
  ContainerLimits* const limits_;
  const GrantLedger* const ledger_;
  Pods* const pods_;
  std::map<std::string, std::string> seen_;  // the annotation by UID; "" is none
};

}  // namespace tessera::agent
