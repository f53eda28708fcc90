// SPDX-License-Identifier: Apache-2.0
// The annotations of a pod after one of its containers was granted its GPUs. A pod that bypasses
// the scheduler gets the agent's choice, in Tessera's annotation and in the annotations of its
// dialect. Every pod of the older dialects is marked as assigned, as gpushare and gpu-manager do
// at this point. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "src/agent/pods/pods.h"
#include "src/base/strings.h"
#include "src/device/assignment.h"
#include "src/device/gpu.h"

namespace tessera::agent {

// Returns only annotations that differ from the pod's. `chosen` is null if the scheduler chose.
StringMap AnnotationsAfterGrant(const PodInfo& pod, const device::Assignment* chosen,
                                const device::NodeInventory& inventory,
                                device::MemoryUnit gpu_mem_unit, const std::string& node,
                                int64_t now_ns);

}  // namespace tessera::agent
