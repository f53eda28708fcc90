// SPDX-License-Identifier: Apache-2.0
// A node for tests: four GPUs of 16 GiB, GPU-0 to GPU-3, with those minor numbers.
#pragma once

#include <memory>
#include <string>

#include "src/agent/kubelet/device_set.h"

namespace tessera::agent {

inline std::shared_ptr<const DeviceSet> FourGpus() {
  auto inventory = std::make_shared<device::NodeInventory>();
  for (int i = 0; i < 4; ++i) {
    inventory->gpus.push_back(
        {.uuid = "GPU-" + std::to_string(i), .index = i, .minor = i, .memory = GiB(16)});
  }
  inventory->links = device::LinkMatrix(4);
  return std::make_shared<const DeviceSet>(inventory);
}

}  // namespace tessera::agent
