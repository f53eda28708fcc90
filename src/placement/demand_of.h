// SPDX-License-Identifier: Apache-2.0
// Between what a pod says and what placement computes with: its request as a Demand, and the GPUs
// that were picked for it as the assignment that its containers are granted.
//
// Each group of containers that use the same GPUs (Request::Groups) has one ask, which is as large
// as the largest of them.
//
// Threads: as Cluster. Cost: allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/base/status.h"
#include "src/base/units.h"
#include "src/device/assignment.h"
#include "src/device/request.h"
#include "src/placement/cluster.h"
#include "src/placement/demand.h"

namespace tessera::placement {

struct PodDemand {
  Demand demand;
  // For each ask of the demand, the containers that live on its GPUs, by their position in the
  // request. A container is in at most one ask.
  std::vector<std::vector<size_t>> containers;
};

// `cpu_milli` and `memory` are what the whole pod asks of the host. Models, MIG profiles and
// GPUs are those that the cluster knows now, so ask again for each decision on a pod that waited.
// INVALID_ARGUMENT as Validate(demand), naming the pod's way out.
Result<PodDemand> DemandOf(const device::Request& request, int64_t cpu_milli, Bytes memory,
                           Cluster& names);

// What each container gets of which GPU, in the order of positions on the node. REQUIRES: `pod` is
// of this request, and `pick` is one for its demand on a node that is as `spec` says.
device::Assignment AssignmentOf(const device::Request& request, const PodDemand& pod,
                                const Pick& pick, const NodeSpec& spec);

}  // namespace tessera::placement
