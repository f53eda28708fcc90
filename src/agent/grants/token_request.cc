// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/token_request.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/agent/kubelet/plugin_answers.h"

namespace tessera::agent {

Result<device::DeviceRequest> RequestOfTokens(const std::string& container,
                                              const std::vector<Claim>& claims,
                                              device::MemoryUnit gpu_mem_unit) {
  device::ContainerSpec spec{.name = container};
  for (const Claim& claim : claims) {
    spec.limits[claim.resource] = std::to_string(UnitsOfToken(claim.ids));
  }
  device::PodSpec pod;
  pod.containers.push_back(std::move(spec));
  return device::ParseRequest(pod, {.gpu_mem_unit = gpu_mem_unit});
}

std::vector<std::string> NamedGpus(const std::vector<Claim>& claims) {
  for (const Claim& claim : claims) {
    if (claim.resource == names::kResourceGpu) return claim.ids;
  }
  return {};
}

Result<std::vector<Claim>> OpenTokens(const grant::GrantRequest& request,
                                      const grant::TokenSigner& signer) {
  std::vector<Claim> claims;
  for (const grant::Token& token : request.tokens) {
    const auto resource = std::ranges::find(kServedResources, token.variable, grant::TokenVariable);
    if (resource == std::end(kServedResources)) {
      return Error(Code::kInvalidArgument,
                   "{} names no resource of this node: tokens are given by Allocate, not written "
                   "into pods",
                   token.variable);
    }
    if (std::ranges::count(claims, *resource, &Claim::resource) != 0) {
      return Error(
          Code::kInvalidArgument,
          "{} is set twice in the container: remove the variable from the pod or from its image",
          token.variable);
    }
    ASSIGN_OR_RETURN(grant::TokenContent content,
                     signer.Verify(*resource, token.value).Annotate(token.variable));
    claims.push_back({content.nonce, std::string(*resource), std::move(content.ids)});
  }
  return claims;
}

}  // namespace tessera::agent
