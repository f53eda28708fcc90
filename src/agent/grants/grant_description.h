// SPDX-License-Identifier: Apache-2.0
// Describes shares of GPUs for the runtime: device nodes, limits, environment. Rejects GPUs that
// are unhealthy or gone. Blocks for stat(2) on device nodes. Threads: any.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "src/agent/kubelet/device_set.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/device/assignment.h"
#include "src/device/dialects.h"
#include "src/device/gpu.h"
#include "src/grant/message.h"

namespace tessera::agent {

struct DescriptionOptions {
  std::string driver_root = "/";  // host path
  std::function<std::string()> find_driver_root =
      nullptr;  // replaces driver_root; called on any thread
  std::string dev_root = "/";
  std::string dev_root_ctr_path = "/";  // dev_root as this process sees it
  std::string version;
};

// A whole GPU has no limits.
void SetLimitsFromShare(const device::DeviceShare& share, grant::GrantedDevice* device);

// NOT_FOUND: the GPU is not on this node any more. UNAVAILABLE: it is unhealthy, with the reason.
Result<grant::GrantedDevice> DescribeDevice(const DescriptionOptions& options, const DeviceSet& set,
                                            const device::DeviceShare& share);
// Errors: see DescribeDevice.
Result<grant::Grant> DescribeGrant(const DescriptionOptions& options, const DeviceSet& set,
                                   const std::vector<device::DeviceShare>& shares);

struct DialectSettings {
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;  // of one aliyun.com/gpu-mem
  bool isolation_disabled = false;  // by the node label cgpu.disable.isolation
};

// Environment variables that images of older systems read. Pods with gpu-mem get
// ALIYUN_COM_GPU_MEM_* in units of the dialect, and CGPU_DISABLE according to the node's label.
// gpu-manager set only NVIDIA_VISIBLE_DEVICES. Pure.
StringMap DialectEnv(const device::DeviceRequest& request,
                     const device::ContainerRequest& container,
                     const std::vector<device::DeviceShare>& shares,
                     const device::NodeInventory& inventory, const DialectSettings& settings);

}  // namespace tessera::agent
