// SPDX-License-Identifier: Apache-2.0
// Converts between pods and placement: a pod's request becomes a Demand, and the pick for this
// demand becomes the pod's Assignment.
// Each group of containers that use the same GPUs (DeviceRequest::Groups) becomes one GpuDemand, as
// large as the largest of these containers.
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
  // For each GPU demand, the containers that use its GPUs, by their position in the request. Each
  // container uses the GPUs of at most one demand.
  std::vector<std::vector<size_t>> containers;
};

// `cpu_milli` and `memory` are the host resources of the whole pod. Models, MIG profiles and GPUs
// are translated into the cluster's numbers, which can change. So convert a waiting pod again for
// each decision. INVALID_ARGUMENT as Validate(demand), with advice on how to change the pod.
Result<PodDemand> DemandOf(const device::DeviceRequest& request, int64_t cpu_milli, Bytes memory,
                           Cluster& names);

// The share of each GPU that each container gets, by position on the node. REQUIRES: `pod` is the
// result of DemandOf for this request, and `pick` is for its demand on this node.
device::Assignment AssignmentOf(const device::DeviceRequest& request, const PodDemand& pod,
                                const Pick& pick, const Cluster& cluster, NodeId node);

}  // namespace tessera::placement
