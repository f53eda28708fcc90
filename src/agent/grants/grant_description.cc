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
  const std::string seen_here = DevicePath(options.dev_root_ctr_path, *gpu->minor);
  if (::stat(seen_here.c_str(), &info) == 0 && S_ISCHR(info.st_mode)) {
    device.major_number = major(info.st_rdev);
    device.minor_number = minor(info.st_rdev);
  }
  DescribeLimits(share, &device);
  return device;
}

void DescribeLimits(const device::DeviceShare& share, grant::GrantedDevice* device) {
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

}  // namespace tessera::agent
