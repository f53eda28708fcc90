// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/token_request.h"

#include <utility>

#include "api/names.h"
#include "src/agent/kubelet/plugin_answers.h"

namespace tessera::agent {

const std::vector<std::string>& ServedResources() {
  static const std::vector<std::string> resources = {
      std::string(names::kResourceGpu), std::string(names::kResourceGpuMem),
      std::string(names::kResourceVcudaCore), std::string(names::kResourceVcudaMemory)};
  return resources;
}

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

}  // namespace tessera::agent
