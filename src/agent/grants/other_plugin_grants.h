// SPDX-License-Identifier: Apache-2.0
// The interface to GPUs that containers got from another device plugin before the agent was
// installed. take_over.h implements it, so that agent/grants does not depend on other device
// plugins. Threads: the grants' thread.
#pragma once

#include <string>

#include "src/agent/grants/assignments.h"
#include "src/agent/grants/grant_description.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/pods/pods.h"
#include "src/base/clock.h"
#include "src/base/uid.h"

namespace tessera::agent {

class OtherPluginGrants {
 public:
  virtual ~OtherPluginGrants() = default;
  // Adds entries to the GrantLedger for the pod's running containers that have none. `annotated`:
  // the pod's assignment by annotations. Returns whether the ledger has new entries.
  virtual bool AddEntries(const PodInfo& pod, const Assignments::AnnotatedAssignment& annotated,
                          const DeviceSet& set, const DialectSettings& settings, WallTime now) = 0;
  // Call when the pod is deleted.
  virtual void Forget(const Uid& uid) = 0;
};

}  // namespace tessera::agent
