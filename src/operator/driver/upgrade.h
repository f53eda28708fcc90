// SPDX-License-Identifier: Apache-2.0
// Decides the next steps of a driver upgrade. One call takes the current state of the whole fleet
// and returns the actions that are due. The caller carries them out, and calls again after a change
// or at UpgradeStep::next. All state is on the nodes, in NVIDIA's label
// nvidia.com/gpu-driver-upgrade-state and in annotations. So the caller may be replaced at any
// moment, and an action may be repeated or lost.
//
// The states of a node, by NVIDIA's names:
//
//   "" ─► upgrade-required ─► cordon-required ─► wait-for-jobs-required ─► pod-deletion-required
//      ─► drain-required ─► pod-restart-required ─► validation-required ─► uncordon-required
//      ─► upgrade-done
//
// If a step misses its deadline before the driver was changed, the node is uncordoned and becomes
// upgrade-failed. If a later step misses its deadline, the node is rolled back: it takes the states
// from pod-restart-required on with the last driver that worked on it, and ends as upgrade-failed,
// but uncordoned. If no such driver is known, the node stays cordoned and waits for an
// administrator; if that driver fails too, the node stays cordoned until it works. A revision that
// failed on a node is not retried there; a newer revision is tried.
//
// One bad node never stops the fleet: failed nodes are not counted as unavailable, and nodes that
// are unavailable for other reasons slow an upgrade down to one node at a time. An upgrade stops
// when a canary fails, or when more nodes have failed than may be unavailable.
//
// Only nodes that were cordoned for the upgrade are uncordoned. A node that was cordoned before is
// upgraded and stays cordoned. The caller sends each patch with the resourceVersion of the Node
// that it passed in, so that the API server rejects the patch if another client has cordoned the
// node since.
//
// Sends no requests, and does not render the DaemonSet (components/driver_daemonset.h).
//
// Pure; any thread. Cost: O(nodes × log nodes + pods).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/formats/json.h"

namespace tessera::driver {

enum class UpgradeState {
  kUnknown,  // no label
  kUpgradeRequired,
  kCordonRequired,
  kWaitForJobsRequired,
  kPodDeletionRequired,
  kDrainRequired,
  kPodRestartRequired,
  kValidationRequired,
  kUncordonRequired,
  kDone,
  kFailed,
};

// "upgrade-required"; "" for kUnknown.
std::string_view NameOf(UpgradeState state);
// Nullopt for a name that NVIDIA does not use, and for a state of a mode that Tessera does not have
// ("node-maintenance-required"). Nodes in such a state are not changed.
std::optional<UpgradeState> UpgradeStateFromName(std::string_view name);

struct UpgradePolicy {
  bool auto_upgrade = true;
  int max_parallel = 1;  // nodes between cordon-required and uncordon-required; 0: no limit
  // Nodes that may be unavailable at once: cordoned, not ready, or in the upgrade.
  // A number, or a percentage of all nodes, rounded up: "25%".
  std::string max_unavailable = "25%";
  // Nodes that upgrade first. Other nodes begin when all canaries are done; no other node begins if
  // a canary failed or was rolled back.
  int canaries = 0;

  StringMap wait_for;             // labels of the pods to wait for; empty: wait for no pod
  Duration wait_timeout{};        // 0: no limit
  bool delete_gpu_pods = true;    // evict pods with GPUs
  bool force = false;             // delete pods that no controller replaces
  bool delete_empty_dir = false;  // also evict pods with data in emptyDir volumes
  Duration pod_deletion_timeout = std::chrono::minutes(5);
  bool drain = false;  // evict all other pods of the node, too
  Duration drain_timeout = std::chrono::minutes(5);
  Duration restart_timeout = std::chrono::minutes(20);
  Duration validation_timeout = std::chrono::minutes(10);
  bool rollback = true;
};

struct UpgradePod {
  std::string ns;
  std::string name;
  bool uses_gpu = false;
  bool ended = false;       // Succeeded or Failed
  bool deleting = false;    // has a deletionTimestamp
  bool is_daemon = false;   // of a DaemonSet, or static: comes back at once, so it stays
  bool controlled = false;  // another controller replaces it
  bool has_empty_dir = false;
  bool waited_for = false;   // selected by UpgradePolicy::wait_for
  bool skips_drain = false;  // label nvidia.com/gpu-driver-upgrade-drain.skip=true
};

// The driver pod of a node.
struct DriverPod {
  std::string ns;
  std::string name;
  std::string revision;  // names the driver and its configuration (driver_daemonset.h)
  std::string version;   // of the driver, for users; "": unknown
  bool ready = false;
  bool deleting = false;
  int restarts = 0;  // the largest count of its containers
  bool operator==(const DriverPod&) const = default;
};

struct UpgradeNode {
  std::string name;
  StringMap labels;
  StringMap annotations;
  bool unschedulable = false;
  bool ready = true;            // condition Ready
  bool gpus_unhealthy = false;  // the driver answers, but a GPU cannot be used
  // Nullopt: the DaemonSet has no pod on this node, for example while the node is unreachable.
  std::optional<DriverPod> driver;
  std::string wanted_revision;  // of its pool's DaemonSet; "": no driver is wanted on this node
  std::string wanted_version;   // of the driver in this revision, for users; "": unknown
  // Whether the agent of the node has passed the smoke test since the driver pod became ready. GPUs
  // that were unhealthy before do not count.
  bool validated = false;
  std::vector<UpgradePod> pods;  // all pods of the node except the driver pod
};

struct UpgradeAction {
  enum class Kind {
    kPatchNode,  // labels and annotations, in one patch
    kCordon,     // like kPatchNode, with spec.unschedulable = true
    kUncordon,   // like kPatchNode, with spec.unschedulable = false
    kEvict,      // pods/eviction of `ns`/`pod`; a disruption budget may reject it
    kDeletePod,  // delete of `ns`/`pod`
  };

  Kind kind = Kind::kPatchNode;
  std::string node;
  std::string ns;
  std::string pod;
  StringChanges labels;
  StringChanges annotations;
  std::string reason;    // for logs and an Event on the Node
  bool warning = false;  // the Event is a warning: the node failed, or is rolled back
  bool operator==(const UpgradeAction&) const = default;
};

struct UpgradeCounts {
  int total = 0;        // nodes for which a driver is wanted
  int pending = 0;      // upgrade-required
  int in_progress = 0;  // cordon-required to uncordon-required
  int done = 0;
  int failed = 0;
  int unavailable = 0;  // in progress, cordoned or not ready; without failed nodes
  bool operator==(const UpgradeCounts&) const = default;
};

struct UpgradeStep {
  std::vector<UpgradeAction> actions;
  UpgradeCounts counts;
  // When to call again if nothing changes; nullopt: no deadline is pending.
  std::optional<WallTime> next;
  // Why no further node may begin; "" if a node may begin.
  std::string blocked;
};

// Reads driver.upgradePolicy of the settings, a section that the schema has accepted, with the keys
// of NVIDIA's chart. INVALID_ARGUMENT names the field.
Result<UpgradePolicy> ReadPolicy(const Json& json);
// INVALID_ARGUMENT names the field of the policy.
Status CheckPolicy(const UpgradePolicy& policy);
// max_unavailable as a number of `total` nodes, at least 1. REQUIRES: CheckPolicy is OK.
int MaxUnavailable(const UpgradePolicy& policy, int total);
// The state in the node's label; kUnknown without the label; nullopt as in UpgradeStateFromName.
std::optional<UpgradeState> StateOfNode(const UpgradeNode& node);

// Whether the state is one from cordon-required to uncordon-required.
bool InProgress(UpgradeState state);
// Whether the action is the first of its node's upgrade.
bool BeginsUpgrade(const UpgradeAction& action);
// Whether the wanted driver failed on this node before.
bool WantedDriverFailedOn(const UpgradeNode& node);

// REQUIRES: CheckPolicy is OK. A time in an annotation that lies after `now` counts as `now`.
UpgradeStep NextUpgradeStep(const UpgradePolicy& policy, const std::vector<UpgradeNode>& nodes,
                            WallTime now);

// Predicts the upgrade if every step succeeds: nodes in the order and the groups in which they
// upgrade, the pods to evict, and the obstacles. Shown to users before the first node begins.
// Changes nothing.
std::string PlanText(const UpgradePolicy& policy, std::vector<UpgradeNode> nodes, WallTime now);

}  // namespace tessera::driver
