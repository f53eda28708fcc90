// SPDX-License-Identifier: Apache-2.0
// The use of GPUs by containers with a share, as metrics and as JSON for `tessera top`. Pure.
#pragma once

#include <string>

#include "src/agent/limits/container_usage.h"
#include "src/base/metrics.h"
#include "src/device/gpu.h"
#include "src/formats/json.h"

namespace tessera::agent {

// Writes metric families with labels namespace, pod, container and uuid.
void WriteContainerUses(const ContainerUses& uses, MetricsText* text);

// {"node":"n1","containers":[{"namespace":…,"pod":…,"container":…,"uuid":…,"index":0,"milli":300,
//  "memory":{"granted":…,"limit":…,"used":…,"unaccounted":…,"peak":…,"driver":…},"refused":0,
//  "processes":1,"without_limiter":0,"limited":true,"class":"normal"}],"complete":true}.
// Memory is in bytes; `driver` is missing while the driver does not answer, `class` where compute
// is neither limited nor divided, and `index` where the GPU is gone. Further members describe the
// use of compute where it is known. A container that is not limited has only its names, `milli` and
// `memory.granted`. The list is complete once the agent has found all containers after its start.
Json JsonOfUses(const std::string& node, const ContainerUses& uses,
                const device::NodeInventory& inventory);

}  // namespace tessera::agent
