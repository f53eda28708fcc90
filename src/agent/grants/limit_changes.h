// SPDX-License-Identifier: Apache-2.0
// Follows annotations tessera.dev/memory-limit and tessera.dev/compute-limit of pods
// (src/device/limit_annotations.h). Users lower the limits of a running pod's containers with these
// annotations. Environment variables of a container (src/device/limit_variables.h) lower its limits
// from its start on. The lowest limit counts.
//
// The grant is the upper bound, because owners of pods can write the annotations, and a limit above
// the grant would take from other grants. A limit that exceeds the grant is rejected with an Event,
// and the grant is the limit. An invalid limit is rejected, too, and the last valid limit stays in
// force. A lower limit stops no running process.
//
// Threads: one. Writes files on a tmpfs (container_limits.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/agent/grants/container_limits.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/pods/pods.h"
#include "src/base/strings.h"
#include "src/base/uid.h"

namespace tessera::agent {

// Lowers the limits of `devices`, which `entry` holds, to the limits of annotations and variables.
// Devices without a limit (whole GPUs, compute of a pod that requests only memory) stay unlimited,
// and invalid limits have no effect. `pod` is null while it is unknown.
void ApplyLimits(const PodInfo* pod, const GrantLedger::Entry& entry,
                 std::vector<grant::GrantedDevice>* devices);

class LimitChanges {
 public:
  // The arguments must outlive the object. `dir` is the directory of `limits`; "": no container is
  // limited.
  LimitChanges(std::string dir, ContainerLimits* limits, const GrantLedger* ledger, Pods* pods);

  // Writes the limits of a new grant of `devices`, and returns their directory; "" if the container
  // is not limited, also because its limits cannot be written in a namespace that fails open.
  Result<std::string> WriteGranted(const GrantLedger::Entry& entry,
                                   std::vector<grant::GrantedDevice> devices);
  // Call when the pod was added or changed.
  void OnPod(const PodInfo& pod);
  // Call when a container of the pod was granted its GPUs: limits that exceed the grant are
  // reported now.
  void OnGranted(const PodInfo& pod) { RecordProblems(pod); }
  void Forget(const Uid& uid) { seen_.erase(uid); }

 private:
  // The limit annotations of a pod: all current texts, and the last valid text of each.
  struct LimitTexts {
    std::string text;
    StringMap valid;       // by annotation
    bool invalid = false;  // whether a current text is invalid
  };
  static LimitTexts LimitTextsOf(const PodInfo& pod);
  // The pod with the last valid texts of its limit annotations.
  PodInfo LastValid(const PodInfo& pod) const;

  void RecordProblems(const PodInfo& pod);
  // Writes the limits of all limited containers of the pod. Records an Event if `changed`, or for a
  // container whose memory limit differs from the written one.
  void Write(const PodInfo& pod, bool changed);

  const std::string dir_;
  ContainerLimits* const limits_;
  const GrantLedger* const ledger_;
  Pods* const pods_;
  std::map<Uid, LimitTexts> seen_;
};

}  // namespace tessera::agent
