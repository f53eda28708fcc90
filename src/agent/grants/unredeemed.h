// SPDX-License-Identifier: Apache-2.0
// Finds containers that run without their GPUs: the kubelet has given them our IDs, so they have
// tokens, but tessera-runtime has never requested their grants, because the engine does not start
// them through it. Pure.
#pragma once

#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/kubelet/kubelet.h"
#include "src/agent/pods/pods.h"
#include "src/base/clock.h"

namespace tessera::agent {

// "namespace/pod/container", in order. Leaves out pods that were created before `since`, when the
// agent was installed, because another device plugin may have given them GPUs.
std::vector<std::string> UnredeemedContainers(const PodDevices& listed, const Pods& pods,
                                              const GrantLedger& ledger, WallTime since);

}  // namespace tessera::agent
