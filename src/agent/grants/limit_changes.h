// SPDX-License-Identifier: Apache-2.0
// Applies the annotations tessera.dev/memory-limit and tessera.dev/compute-limit of pods
// (src/device/limit_annotations.h). Users lower the limits of a running pod's containers with these
// annotations. Environment variables of a container (src/device/limit_variables.h) lower its limits
// from its start on. The lowest limit applies.
//
// The grant is the upper bound, because owners of pods can write the annotations, and a limit above
// the grant would take from other grants. The text of an annotation is invalid if it cannot be
// read, names a container that the pod does not have, or exceeds a grant. The agent rejects an
// invalid text as a whole, and records an Event. A rejected text changes nothing: the last accepted
// text stays in force, also after a restart of the agent. A lower limit stops no running process.
//
// Threads: one. Writes files on a tmpfs (container_limits.h). Next to them it keeps the texts of
// each pod with a limited container: <dir>/<pod UID>/.limit-texts. A restarted agent thus knows
// which texts are in force, and records an Event about a text that is new since then.
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

class LimitChanges {
 public:
  // The arguments must outlive the object. `dir` is the directory of `limits`; "": no container is
  // limited.
  LimitChanges(std::string dir, ContainerLimits* limits, const GrantLedger* ledger, Pods* pods);

  // Writes the limits of a new grant of `devices`, and returns their directory; "" if the container
  // has no limits, or if they cannot be written and its namespace fails open.
  Result<std::string> WriteGranted(const GrantLedger::Entry& entry,
                                   std::vector<grant::GrantedDevice> devices);
  // Call when the pod was added or changed.
  void OnPod(const PodInfo& pod);
  // Call when a container of the pod was granted its GPUs: limits that exceed the grant are
  // reported now.
  void OnGranted(const PodInfo& pod) { RecordProblems(pod); }
  void Forget(const Uid& uid) { limit_texts_.erase(uid); }
  // Returns the pods with the accepted texts in place of their limit annotations.
  Pods::Map PodsWithAcceptedLimits() const;

 private:
  // The limit annotations of a pod, by name.
  struct LimitTexts {
    StringMap current, accepted;
  };
  // Returns the current texts, with the text of `before` in place of each rejected text.
  StringMap AcceptedTexts(const PodInfo& pod, const StringMap& before) const;
  PodInfo WithAcceptedTexts(const PodInfo& pod) const;
  static PodInfo WithTexts(const PodInfo& pod, const StringMap& texts);

  // False: the pod has no limited container.
  bool HasDirectory(const Uid& uid) const;
  std::string TextsPath(const Uid& uid) const;
  // Empty if the file is missing or cannot be read.
  LimitTexts ReadTexts(const Uid& uid) const;
  void WriteTexts(const Uid& uid);

  void RecordProblems(const PodInfo& pod);
  // Writes the limits of all limited containers of the pod. Records an Event about each container
  // whose limits differ from those of `before`, or whose memory limit differs from the written one.
  void Write(const PodInfo& before, const PodInfo& pod);

  const std::string dir_;
  ContainerLimits* const limits_;
  const GrantLedger* const ledger_;
  Pods* const pods_;
  std::map<Uid, LimitTexts> limit_texts_;
};

}  // namespace tessera::agent
