// SPDX-License-Identifier: Apache-2.0
// Decides the next steps of a driver upgrade. One call looks at the whole fleet as it is and
// returns the actions that are due; the caller carries them out and calls again after a change or
// when the clock has moved on. All memory is on the nodes, in NVIDIA's label
// nvidia.com/gpu-driver-upgrade-state and in annotations, so that a caller may be replaced at any
// moment, and an action may be repeated or lost.
//
// A node's way, with NVIDIA's state names:
//
//   "" ─► upgrade-required ─► cordon-required ─► wait-for-jobs-required ─► pod-deletion-required
//      ─► drain-required ─► pod-restart-required ─► validation-required ─► uncordon-required
//      ─► upgrade-done
//
// A step that misses its deadline before the driver was touched releases the node again, as
// upgrade-failed. After that it leads back to the last driver that worked on this node: the node
// takes the way from pod-restart-required on with that driver, and ends as upgrade-failed, in use.
// Where no such driver is known, or it fails too, the node keeps our cordon and waits for a person.
// A revision that failed on a node is not tried there again; the next one is.
//
// One bad node never stops the fleet: failed nodes are not counted as unavailable, and nodes that
// are unavailable for other reasons slow an upgrade down to one node at a time. It stops when a
// canary fails, or when more nodes failed than may be unavailable.
//
// Cordons: only a node that this code cordoned is uncordoned by it. A node that was cordoned before
// is upgraded and stays cordoned. The caller sends each patch with the resourceVersion of the Node
// that it passed in, so that a cordon that comes in between is noticed.
//
// Not for: talking to the API server, and rendering the DaemonSet (daemonset.h).
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
// Nullopt for a name that is none of NVIDIA's, or of a mode that Tessera does not have
// ("node-maintenance-required"). Such a node is left alone.
std::optional<UpgradeState> UpgradeStateFromName(std::string_view name);

struct UpgradePolicy {
  bool auto_upgrade = true;
  int max_parallel = 1;  // nodes between cordon-required and uncordon-required; 0: no limit
  // Nodes that may be unavailable at once: cordoned, not ready, or in the upgrade.
  // A number, or a percentage of all nodes, rounded up: "25%".
  std::string max_unavailable = "25%";
  // Nodes that upgrade first. The others begin when all canaries are done, and none if one failed
  // or was rolled back.
  int canaries = 0;

  bool wait_for_jobs = false;     // wait for pods that `wait_selector` selected
  Duration wait_timeout{};        // 0: no end
  bool delete_gpu_pods = true;    // evict pods with GPUs
  bool force = false;             // delete pods that no controller replaces
  bool delete_empty_dir = false;  // and those with data in emptyDir volumes
  Duration pod_deletion_timeout = std::chrono::minutes(5);
  bool drain = false;  // evict all other pods, too
  Duration drain_timeout = std::chrono::minutes(5);
  Duration restart_timeout = std::chrono::minutes(20);
  Duration validation_timeout = std::chrono::minutes(10);
  // More restarts of the driver container than this are a failure.
  int max_driver_restarts = 10;
  bool rollback = true;
};

struct UpgradePod {
  std::string ns;
  std::string name;
  bool uses_gpu = false;
  bool ended = false;       // Succeeded or Failed
  bool deleting = false;    // has a deletionTimestamp
  bool daemon = false;      // of a DaemonSet, or static: comes back at once, so it stays
  bool controlled = false;  // another controller replaces it
  bool empty_dir = false;
  bool waited_for = false;   // selected by the policy's wait selector
  bool skips_drain = false;  // label nvidia.com/gpu-driver-upgrade-drain.skip=true
};

// The driver pod of a node.
struct DriverPod {
  std::string ns;
  std::string name;
  std::string revision;  // names the driver and its configuration (driver_daemonset.h)
  std::string version;   // of the driver, for people; "": unknown
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
  bool gpus_unhealthy = false;  // the driver answers, and a GPU cannot be used
  // Nullopt: the DaemonSet has no pod here, for example while the node is away.
  std::optional<DriverPod> driver;
  std::string wanted_revision;  // of its pool's DaemonSet; "": no driver is wanted here
  std::string wanted_version;   // the same for people; "": unknown
  // Whether the agent of the node has passed the smoke test since the driver pod became ready, but
  // for GPUs that were unhealthy before.
  bool validated = false;
  std::vector<UpgradePod> pods;  // all others of the node
};

struct UpgradeAction {
  enum class Kind {
    kPatchNode,  // labels and annotations, in one patch
    kCordon,     // the same, with spec.unschedulable = true
    kUncordon,   // the same, with spec.unschedulable = false
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
  int unavailable = 0;  // in progress, or cordoned, or not ready; without failed ones
  bool operator==(const UpgradeCounts&) const = default;
};

struct UpgradeStep {
  std::vector<UpgradeAction> actions;
  UpgradeCounts counts;
  // When to call again without a change; nullopt: no deadline runs.
  std::optional<WallTime> next;
  // Why no further node begins; "" if one may.
  std::string blocked;
};

// INVALID_ARGUMENT names the field of the policy.
Status CheckPolicy(const UpgradePolicy& policy);
// max_unavailable as a number of `total` nodes, at least 1. REQUIRES: CheckPolicy is OK.
int MaxUnavailable(const UpgradePolicy& policy, int total);
// The state that the node's label has; kUnknown without it.
std::optional<UpgradeState> StateOfNode(const UpgradeNode& node);

// From cordon-required to uncordon-required.
bool InProgress(UpgradeState state);
// Whether the wanted driver failed on this node before.
bool FailedHere(const UpgradeNode& node);

// REQUIRES: CheckPolicy is OK. A time that is written on a node and lies after `now` counts as now.
UpgradeStep NextUpgradeStep(const UpgradePolicy& policy, const std::vector<UpgradeNode>& nodes,
                            WallTime now);

// What NextUpgradeStep will do if all goes well: nodes in the order and the groups in which they
// upgrade, with the pods that have to go, and what stands in the way. For people, before anything
// happens. Changes nothing.
std::string PlanText(const UpgradePolicy& policy, std::vector<UpgradeNode> nodes, WallTime now);

}  // namespace tessera::driver
