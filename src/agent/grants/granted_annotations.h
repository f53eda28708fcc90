// SPDX-License-Identifier: Apache-2.0
// What a pod's annotations shall say once a container of it has its GPUs: for a pod that came past
// the scheduler what the agent chose, in our words and those of its dialect; and for every pod of
// the older dialects that it is assigned, which their own agents wrote at this point. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "src/agent/pods/pods.h"
#include "src/device/assignment.h"
#include "src/device/gpu.h"

namespace tessera::agent {

// Only what differs from what the pod has. `chosen` is null where the scheduler chose.
device::Annotations AnnotationsAfterGrant(const PodInfo& pod, const device::Assignment* chosen,
                                          const device::NodeInventory& inventory,
                                          device::MemoryUnit gpu_mem_unit, const std::string& node,
                                          int64_t now_ns);

}  // namespace tessera::agent
