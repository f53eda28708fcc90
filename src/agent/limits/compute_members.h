// SPDX-License-Identifier: Apache-2.0
// The containers among which a ComputeControl divides the GPUs' time, with the share of each:
//
//   request   the granted share, lowered by tessera.dev/compute-limit or CUDA_DEVICE_SM_LIMIT
//   limit     equal to `request`, or tencent.com/vcuda-core-limit if the pod may use idle compute
//   class     annotation tessera.dev/compute-class of the pod; normal if it is missing
//
// A container with a share of memory but none of compute has request 0 and limit 0. It gets compute
// that the requests of other containers leave.
//
// Does no I/O and reads no clock. Use from one thread.
#pragma once

#include <vector>

#include "src/agent/limits/compute_control.h"
#include "src/agent/limits/container_usage.h"
#include "src/agent/pods/pods.h"

namespace tessera::agent {

// Whether both belong to the same container and GPU.
bool IsUseOf(const ContainerGpuUse& use, const ComputeControl::Member& member);

// The containers in `files` that share a GPU. `pods` have the last accepted texts of their limit
// annotations (limit_changes.h). A container whose pod is not in `pods` has its granted share.
std::vector<ComputeControl::Member> ComputeMembers(
    const std::vector<ContainerUsage::RegionFiles>& files, const ContainerUses& uses,
    const Pods::Map& pods);

}  // namespace tessera::agent
