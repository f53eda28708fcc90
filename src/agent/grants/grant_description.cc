// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/grant_description.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <utility>

#include "api/names.h"
#include "src/agent/kubelet/plugin_answers.h"

namespace tessera::agent {

Result<grant::GrantedDevice> DescribeDevice(const DescriptionOptions& options, const DeviceSet& set,
                                            const device::DeviceShare& share) {
  const device::Gpu* gpu = set.Find(share.uuid);
  if (gpu == nullptr) {
    const std::string& problem = set.inventory().problem;
    return Error(Code::kNotFound, "GPU {} is not on this node any more{}{}", share.uuid,
                 problem.empty() ? "" : ": ", problem);
  }
  if (!gpu->health.usable() || !gpu->minor) {
    return Error(Code::kUnavailable, "GPU {} is unhealthy: {}", share.uuid,
                 gpu->health.usable() ? "its device node is not known" : gpu->health.reason);
  }
  grant::GrantedDevice device;
  device.uuid = share.uuid;
  device.minor = *gpu->minor;
  device.path = DevicePath("/", *gpu->minor);
  device.host_path = DevicePath(options.dev_root, *gpu->minor);
  struct stat info;
  const std::string path_in_container = DevicePath(options.dev_root_ctr_path, *gpu->minor);
  if (::stat(path_in_container.c_str(), &info) == 0 && S_ISCHR(info.st_mode)) {
    device.major_number = major(info.st_rdev);
    device.minor_number = minor(info.st_rdev);
  }
  SetLimitsFromShare(share, &device);
  return device;
}

void SetLimitsFromShare(const device::DeviceShare& share, grant::GrantedDevice* device) {
  device->milli = static_cast<int>(share.compute.count());
  device->bytes = share.compute == kWholeGpu ? 0 : share.memory.count();
}

Result<grant::Grant> DescribeGrant(const DescriptionOptions& options, const DeviceSet& set,
                                   const std::vector<device::DeviceShare>& shares) {
  grant::Grant grant;
  std::string visible;
  for (const device::DeviceShare& share : shares) {
    ASSIGN_OR_RETURN(grant::GrantedDevice device, DescribeDevice(options, set, share));
    if (!visible.empty()) visible += ',';
    visible += share.uuid;
    grant.devices.push_back(std::move(device));
  }
  grant.env[std::string(names::kEnvVisibleDevices)] = visible.empty() ? "void" : visible;
  grant.driver_root = options.find_driver_root ? options.find_driver_root() : options.driver_root;
  grant.dev_root = options.dev_root;
  grant.agent_version = options.version;
  return grant;
}

StringMap DialectEnv(const device::DeviceRequest& request,
                     const device::ContainerRequest& container,
                     const std::vector<device::DeviceShare>& shares,
                     const device::NodeInventory& inventory, const DialectSettings& settings) {
  StringMap env;
  if (container.dialect != device::Dialect::kGpuMem || shares.empty()) return env;
  const device::Gpu* gpu = inventory.Find(shares.front().uuid);
  if (gpu == nullptr || !gpu->minor) return env;
  const auto units = [&](Bytes memory) {
    return std::to_string(memory.count() / device::SizeOf(settings.gpu_mem_unit).count());
  };
  const auto set = [&](std::string_view name, std::string value) {
    env.emplace(name, std::move(value));
  };
  set(names::kEnvGpuMemIndex, std::to_string(*gpu->minor));
  set(names::kEnvGpuMemPod, units(request.OneGpuShare().memory));
  set(names::kEnvGpuMemContainer, units(shares.front().memory));
  set(names::kEnvGpuMemDev, units(gpu->memory));
  // The variable is set in both cases, so that a value from the pod has no effect. With gpushare, a
  // value from the pod took effect.
  set(names::kEnvCgpuDisable, settings.isolation_disabled ? "true" : "false");
  return env;
}

}  // namespace tessera::agent
