// SPDX-License-Identifier: Apache-2.0
// Which containers a ComputeControl divides the GPUs' time between, and what each of them may have:
//
//   request   what was granted, or less by tessera.dev/compute-limit or CUDA_DEVICE_SM_LIMIT
//   limit     the same; of a pod that may use idle compute its tencent.com/vcuda-core-limit
//   class     annotation tessera.dev/compute-class of the pod; normal where it cannot be read
//
// Pure; threads: one.
#pragma once

#include <vector>

#include "src/agent/limits/compute_control.h"
#include "src/agent/limits/container_usage.h"
#include "src/agent/pods/pods.h"

namespace tessera::agent {

// Whether both are of one container on one GPU.
bool IsUseOf(const ContainerGpuUse& use, const ComputeControl::Member& member);

// Those of `files` with a share of a GPU's compute. `pods` may be null; a pod that is not among
// them has what was granted.
std::vector<ComputeControl::Member> ComputeMembers(const std::vector<ContainerUsage::Files>& files,
                                                   const ContainerUses& uses, const Pods* pods);

}  // namespace tessera::agent
