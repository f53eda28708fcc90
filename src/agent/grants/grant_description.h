// SPDX-License-Identifier: Apache-2.0
// Describes shares of GPUs for the runtime: device nodes, limits, environment. Rejects GPUs that
// are unhealthy or gone. Blocks for stat(2) on device nodes. Threads: any.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/agent/kubelet/device_set.h"
#include "src/base/status.h"
#include "src/device/assignment.h"
#include "src/grant/message.h"

namespace tessera::agent {

struct DescriptionOptions {
  std::string driver_root = "/";                            // host paths
  std::function<std::string()> find_driver_root = nullptr;  // in place of driver_root; any thread
  std::string dev_root = "/";
  std::string dev_root_ctr_path = "/";  // dev_root as this process sees it
  std::string version;
};

// Sets the limits of the device from the container's share. A whole GPU has no limits.
void DescribeLimits(const device::DeviceShare& share, grant::GrantedDevice* device);

// NOT_FOUND: the GPU is not on this node any more. UNAVAILABLE: it is unhealthy, with the reason.
Result<grant::GrantedDevice> DescribeDevice(const DescriptionOptions& options, const DeviceSet& set,
                                            const device::DeviceShare& share);
// Errors of DescribeDevice.
Result<grant::Grant> DescribeGrant(const DescriptionOptions& options, const DeviceSet& set,
                                   const std::vector<device::DeviceShare>& shares);

}  // namespace tessera::agent
