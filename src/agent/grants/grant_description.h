// SPDX-License-Identifier: Apache-2.0
// Turns shares of GPUs into what the runtime is told: device nodes, limits, environment. Refuses
// GPUs that are ill or gone. Blocks for stat(2) on device nodes. Threads: any.
#pragma once

#include <string>
#include <vector>

#include "src/agent/kubelet/device_set.h"
#include "src/base/status.h"
#include "src/device/assignment.h"
#include "src/grant/message.h"

namespace tessera::agent {

struct DescriptionOptions {
  std::string driver_root = "/";  // host paths
  std::string dev_root = "/";
  std::string dev_root_ctr_path = "/";  // dev_root as this process sees it
  std::string version;
};

// Fills what the container may use of the GPU, by its share alone. Of a whole one nothing is
// limited.
void DescribeLimits(const device::DeviceShare& share, grant::GrantedDevice* device);

// NOT_FOUND: it is not on this node any more. UNAVAILABLE: it is unhealthy, and why.
Result<grant::GrantedDevice> DescribeDevice(const DescriptionOptions& options, const DeviceSet& set,
                                            const device::DeviceShare& share);
// Errors of DescribeDevice.
Result<grant::Grant> DescribeGrant(const DescriptionOptions& options, const DeviceSet& set,
                                   const std::vector<device::DeviceShare>& shares);

}  // namespace tessera::agent
