// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/dialect_env.h"

#include "api/names.h"

namespace tessera::agent {

std::map<std::string, std::string> DialectEnv(const device::DeviceRequest& request,
                                              const device::ContainerRequest& container,
                                              const std::vector<device::DeviceShare>& shares,
                                              const device::NodeInventory& inventory,
                                              const DialectSettings& settings) {
  std::map<std::string, std::string> env;
  if (container.dialect != device::Dialect::kGpuMem || shares.empty()) return env;
  const device::Gpu* gpu = inventory.Find(shares.front().uuid);
  if (gpu == nullptr || !gpu->minor) return env;
  const auto units = [&](Bytes memory) {
    return std::to_string(memory.count() / device::SizeOf(settings.gpu_mem_unit).count());
  };
  const auto set = [&](std::string_view name, std::string value) {
    env.emplace(name, std::move(value));
  };
  // gpushare's variables have the names of its annotations.
  set(names::kAnnotationGpuMemIndex, std::to_string(*gpu->minor));
  set(names::kAnnotationGpuMemPod, units(request.OneGpuShare().memory));
  set(names::kEnvGpuMemContainer, units(shares.front().memory));
  set(names::kAnnotationGpuMemDev, units(gpu->memory));
  // Set in both cases, over the value of the pod: gpushare left the variable to the pod.
  set(names::kEnvCgpuDisable, settings.isolation_disabled ? "true" : "false");
  return env;
}

}  // namespace tessera::agent
