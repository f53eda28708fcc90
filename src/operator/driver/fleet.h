// SPDX-License-Identifier: Apache-2.0
// Decides from nodes, driver pods and settings what the operator must change for the drivers of a
// cluster: labels of nodes, the driver's DaemonSets, and the nodes to upgrade (upgrade.h).
//
// A node gets a driver if it has a GPU and its pool wants a driver. Exceptions: the host has a
// driver that works, NVIDIA's operator manages the node, or the node's agent has not reported yet
// whether the host has a driver. A node changes its pool only during an upgrade, because the change
// replaces the driver.
//
// After a rollback a node keeps an earlier revision. The DaemonSet of that revision comes from
// `Revisions`, because the settings no longer have it.
//
// Pure; any thread. Cost: O(nodes × pools).
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/strings.h"
#include "src/components/driver_daemonset.h"
#include "src/components/settings.h"
#include "src/formats/json.h"
#include "src/operator/driver/upgrade.h"

namespace tessera::driver {

struct FleetPool {
  std::string name;
  StringMap selector;  // empty: all nodes that are in no earlier pool
  bool enabled = false;
  components::DriverSpec spec;
  UpgradePolicy policy;
};

// The pools of the settings, in the order in which nodes are assigned; the general pool is the
// last. INVALID_ARGUMENT names the pool and the field.
Result<std::vector<FleetPool>> PoolsOf(const components::Settings& settings);

struct FleetNode {
  std::string name;
  StringMap labels;
  StringMap annotations;
  bool unschedulable = false;
  bool ready = false;
  std::string os_image;
  std::string kernel;
  // Condition GPUReady, which the agent writes on change.
  bool gpu_ready = false;
  std::string gpu_reason;  // "": the agent has not written the condition yet
  WallTime gpu_since{};    // lastTransitionTime: since when gpu_ready has its value
  WallTime gpu_written{};  // lastHeartbeatTime
  bool operator==(const FleetNode&) const = default;
};

struct FleetPod {
  std::string node;
  DriverPod pod;
  WallTime created{};
  std::string reason;  // why the pod is not ready; "": unknown
  std::string message;
  bool operator==(const FleetPod&) const = default;
};

// By revision: the DaemonSet of a pool with that revision, as JSON.
using Revisions = std::map<std::string, std::string, std::less<>>;

struct NodeProblem {
  std::string node;
  std::string reason;   // a word in camel case
  std::string message;  // with the remedy
  bool operator==(const NodeProblem&) const = default;
};

struct NodePatch {
  std::string node;
  StringChanges labels;
  StringChanges annotations;
};

struct FleetView {
  struct PoolView {
    const FleetPool* settings = nullptr;
    std::vector<UpgradeNode> nodes;  // with empty `pods`
    int on_host = 0;                 // nodes with a driver of the host or of NVIDIA's operator
  };
  std::vector<PoolView> pools;  // as in the settings
  std::vector<NodePatch> patches;
  // Nodes whose pool no longer wants a driver. The patch removes the driver, so nodes with
  // `has_driver` wait until no pod uses their GPUs; their DaemonSets stay until then.
  struct Release {
    NodePatch patch;
    bool has_driver = false;
  };
  std::vector<Release> releases;
  std::vector<Json> daemonsets;
  Revisions revisions;  // current revisions, and those to which a node may be rolled back
  std::vector<NodeProblem> problems;
};

// `known`: the `revisions` of earlier views. The result points into `pools`.
FleetView ViewFleet(const std::vector<FleetPool>& pools, const std::vector<FleetNode>& nodes,
                    const std::vector<FleetPod>& pods, const Revisions& known);

}  // namespace tessera::driver
