// SPDX-License-Identifier: Apache-2.0
// What tokens alone say that a container asks for: their resources, and how many units of each. For
// agents that cannot see the pod. Pure.
#pragma once

#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/base/status.h"
#include "src/device/dialects.h"

namespace tessera::agent {

// Resources whose tokens the agent gives.
const std::vector<std::string>& ServedResources();

// Errors of device::ParseRequest.
Result<device::Request> RequestOfTokens(const std::string& container,
                                        const std::vector<Claim>& claims,
                                        device::MemoryUnit gpu_mem_unit);

// The GPUs that the kubelet named; nothing where it gave units of shared ones.
std::vector<std::string> NamedGpus(const std::vector<Claim>& claims);

}  // namespace tessera::agent
