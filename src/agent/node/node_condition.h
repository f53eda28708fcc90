// SPDX-License-Identifier: Apache-2.0
// The Node condition GPUReady: whether all GPUs of the node can be used, and if not, why. Makes the
// patches that bring a Node to its condition and remove its startup taint. Pure.
//
//   True   GPUsHealthy     "8 GPUs are healthy"
//   False  GPUUnhealthy    "1 of 8 GPUs is unhealthy: GPU-…: XID 79: …"; the others are offered
//          DriverNotReady  why there is no driver
//          NoGPU           there is a driver, and it reports no GPU
//          DriverIncomplete  which part of the driver is missing
//          DriverConflict  which drivers the host and a driver container have
//          SmokeTestFailed  why a GPU pod would not start (smoke_test.h)
//          RuntimeNotConfigured  why containers would start without their GPUs
//
// The condition has no heartbeat and is written only on change: check the agent's pod for liveness.
#pragma once

#include <optional>
#include <set>
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

// The state of the node's driver and smoke test; device::NodeInventory has the GPUs.
struct NodeFindings {
  // About the driver's files (driver_report.h). Replaces an inventory's problem.
  std::string_view driver_reason;  // from api/names.h; empty: no problem
  std::string driver_problem;
  std::string smoke_problem;  // why the smoke test failed; empty: it did not fail
  bool smoke_passed = false;  // the agent removes the node's startup taints
  bool operator==(const NodeFindings&) const = default;
};

NodeCondition ConditionOf(const device::NodeInventory& inventory,
                          const NodeFindings& findings = {});

// The strategic merge patch of nodes/status that brings `node` to `condition`; nullopt if `node`
// has it. The time of the last transition changes only with the status.
std::optional<Json> ConditionPatchFor(const Json& node, const NodeCondition& condition,
                                      WallTime now);

// The merge patch of nodes/status that publishes the number of GPUs as aliyun.com/gpu-count, which
// has no device plugin because pods do not request it; nullopt if `node` has that number.
std::optional<Json> GpuCountPatchFor(const Json& node, size_t count);

// "" if the node has no such label.
std::string LabelOf(const Json& node, std::string_view name);

// Whether the node ever had GPUs, which the condition or a GPU label shows.
bool WasGpuNode(const Json& node);

// The startup taint: a node that joins with one of the configured keys gets no pods until its GPUs
// have passed the smoke test (smoke_test.h). The agent removes taints with these keys, and never
// adds or changes one.
using TaintKeys = std::set<std::string, std::less<>>;

// The JSON patch that removes all taints with these keys from `node`; nullopt if there is none.
// The API server rejects the patch if the taints of the Node have changed since it was read, so
// that no taint of another writer is lost.
std::optional<Json> TaintPatchFor(const Json& node, const TaintKeys& keys);

}  // namespace tessera::agent
