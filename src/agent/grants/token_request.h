// SPDX-License-Identifier: Apache-2.0
// The request of a container, derived only from its tokens: their resources, and the units of each.
// Used where the pod is unknown, for example without access to the API server. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/names.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/base/status.h"
#include "src/device/dialects.h"
#include "src/grant/message.h"
#include "src/grant/token.h"

namespace tessera::agent {

// Resources for which the agent issues tokens.
inline constexpr std::string_view kServedResources[] = {names::kResourceGpu, names::kResourceGpuMem,
                                                        names::kResourceVcudaCore,
                                                        names::kResourceVcudaMemory};

// Verifies the tokens of a request and returns their contents. Errors: those of
// TokenSigner::Verify, and INVALID_ARGUMENT for a token of an unknown resource, or for a second
// token of the same resource.
Result<std::vector<Claim>> OpenTokens(const grant::GrantRequest& request,
                                      const grant::TokenSigner& signer);

// Errors: see device::ParseRequest.
Result<device::DeviceRequest> RequestOfTokens(const std::string& container,
                                              const std::vector<Claim>& claims,
                                              device::MemoryUnit gpu_mem_unit);

// The GPUs that the kubelet named; empty if it gave units of shared GPUs.
std::vector<std::string> NamedGpus(const std::vector<Claim>& claims);

}  // namespace tessera::agent
