// SPDX-License-Identifier: Apache-2.0
// Environment variables that images of older systems read. Pods with gpu-mem get
// ALIYUN_COM_GPU_MEM_* in units of the dialect, and CGPU_DISABLE by the node's label. gpu-manager
// set only NVIDIA_VISIBLE_DEVICES. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/device/assignment.h"
#include "src/device/dialects.h"
#include "src/device/gpu.h"

namespace tessera::agent {

struct DialectSettings {
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;  // of one aliyun.com/gpu-mem
  bool isolation_disabled = false;                             // the node's label
};

std::map<std::string, std::string> DialectEnv(const device::DeviceRequest& request,
                                              const device::ContainerRequest& container,
                                              const std::vector<device::DeviceShare>& shares,
                                              const device::NodeInventory& inventory,
                                              const DialectSettings& settings);

}  // namespace tessera::agent
