// SPDX-License-Identifier: Apache-2.0
// The Node condition GPUReady: whether all GPUs of the node can be used, and if not, why. Pure.
//
//   True   GPUsHealthy     "8 GPUs are healthy"
//   False  GPUUnhealthy    "1 of 8 GPUs is unhealthy: GPU-…: XID 79: …"; the others are offered
//          DriverNotReady  why there is no driver
//          NoGPU           there is a driver, and it reports no GPU
//          RuntimeNotConfigured  why containers would start without their GPUs
//
// It has no heartbeat and is written only on change: check the agent's pod for liveness.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/device/gpu.h"
#include "src/formats/json.h"

namespace tessera::agent {

struct NodeCondition {
  bool ready = false;
  std::string_view reason;  // from api/names.h
  std::string message;
};

NodeCondition ConditionOf(const device::NodeInventory& inventory);

// The strategic merge patch of nodes/status that brings `node` to `condition`; nullopt if `node`
// has it. The time of the last transition changes only with the status.
std::optional<Json> ConditionPatchFor(const Json& node, const NodeCondition& condition,
                                      WallTime now);

// The merge patch of nodes/status that publishes the number of GPUs as aliyun.com/gpu-count, which
// has no device plugin because pods do not request it; nullopt if `node` has that number.
std::optional<Json> GpuCountPatchFor(const Json& node, size_t count);

// "" if the node has no such label.
std::string LabelOf(const Json& node, std::string_view name);

// Whether the node ever had GPUs: it has the condition, or a GPU label.
bool WasGpuNode(const Json& node);

}  // namespace tessera::agent
