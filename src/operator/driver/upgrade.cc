// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/upgrade.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "api/names.h"
#include "src/operator/driver/node_stepper.h"

namespace tessera::driver {
namespace {

constexpr std::array<std::pair<UpgradeState, std::string_view>, 11> kStates = {{
    {UpgradeState::kUnknown, ""},
    {UpgradeState::kUpgradeRequired, "upgrade-required"},
    {UpgradeState::kCordonRequired, "cordon-required"},
    {UpgradeState::kWaitForJobsRequired, "wait-for-jobs-required"},
    {UpgradeState::kPodDeletionRequired, "pod-deletion-required"},
    {UpgradeState::kDrainRequired, "drain-required"},
    {UpgradeState::kPodRestartRequired, "pod-restart-required"},
    {UpgradeState::kValidationRequired, "validation-required"},
    {UpgradeState::kUncordonRequired, "uncordon-required"},
    {UpgradeState::kDone, "upgrade-done"},
    {UpgradeState::kFailed, "upgrade-failed"},
}};

// Counts of the nodes with one wanted revision, canaries included.
struct RevisionGroup {
  int passed = 0;           // nodes that run the revision and passed the smoke test
  int upgrading = 0;        // nodes that are being upgraded to the revision
  std::string failed_node;  // a node on which the revision failed; "": none
};

struct Fleet {
  UpgradeCounts counts;
  std::map<std::string, RevisionGroup> groups;  // by wanted revision
};

Fleet CountFleet(const std::vector<UpgradeNode>& nodes) {
  Fleet fleet;
  for (const UpgradeNode& node : nodes) {
    const std::optional<UpgradeState> state = StateOfNode(node);
    // A node with a state of another tool is not changed, and delays no other node.
    const bool in_progress = state && InProgress(*state);
    if (node.wanted_revision.empty() && !in_progress) continue;
    UpgradeCounts& counts = fleet.counts;
    ++counts.total;
    counts.in_progress += in_progress;
    counts.pending += state == UpgradeState::kUpgradeRequired;
    counts.done += state == UpgradeState::kDone;
    const bool failed = state == UpgradeState::kFailed;
    counts.failed += failed;
    counts.unavailable += !failed && (in_progress || node.unschedulable || !node.ready);
    RevisionGroup& group = fleet.groups[node.wanted_revision];
    if (WantedDriverFailedOn(node)) {
      if (group.failed_node.empty()) group.failed_node = node.name;
    } else if (in_progress) {
      ++group.upgrading;
    } else if (state == UpgradeState::kDone && RunsWantedDriver(node)) {
      ++group.passed;
    }
  }
  return fleet;
}

// The number of nodes that may begin now. Stores in `blocked` what limits the number.
int NodesThatMayBegin(const UpgradePolicy& policy, const UpgradeCounts& counts,
                      std::string* blocked) {
  const int allowed = MaxUnavailable(policy, counts.total);
  if (counts.failed > allowed) {
    *blocked = fmt::format("{} nodes failed, more than maxUnavailable ({})", counts.failed,
                           policy.max_unavailable);
    return 0;
  }
  int may_begin = allowed - counts.unavailable;
  if (may_begin <= 0) {
    *blocked = fmt::format("{} nodes are unavailable (maxUnavailable {})", counts.unavailable,
                           policy.max_unavailable);
    // Cordons by others slow the upgrade down but do not stop it.
    may_begin = counts.in_progress == 0 ? 1 : 0;
  }
  const int parallel = policy.max_parallel == 0 ? std::numeric_limits<int>::max()
                                                : policy.max_parallel - counts.in_progress;
  if (parallel < may_begin) *blocked = fmt::format("{} nodes upgrade already", counts.in_progress);
  return std::max(0, std::min(may_begin, parallel));
}

// Whether one more node of the group may begin.
bool PassesCanaries(const UpgradePolicy& policy, const RevisionGroup& group, std::string_view title,
                    std::string* blocked) {
  if (group.passed >= policy.canaries) return true;
  if (!group.failed_node.empty()) {
    *blocked =
        fmt::format("the upgrade to driver {} failed on canary {}", title, group.failed_node);
    return false;
  }
  if (group.passed + group.upgrading < policy.canaries) return true;
  *blocked = fmt::format("driver {} is tried on {} canaries first", title, policy.canaries);
  return false;
}

void BeginNodes(const UpgradePolicy& policy, std::vector<const UpgradeNode*> waiting, Fleet fleet,
                WallTime now, UpgradeStep* step) {
  std::string blocked;
  int may_begin = NodesThatMayBegin(policy, fleet.counts, &blocked);
  std::ranges::sort(waiting, {}, &UpgradeNode::name);
  for (const UpgradeNode* node : waiting) {
    if (may_begin == 0) {
      step->blocked = blocked;
      return;
    }
    RevisionGroup& group = fleet.groups[node->wanted_revision];
    if (!PassesCanaries(policy, group, TitleOfWanted(*node), &step->blocked)) continue;
    NodeStepper(policy, *node, UpgradeState::kUpgradeRequired, now, step).Begin();
    ++group.upgrading;
    --may_begin;
  }
}

}  // namespace

std::string_view NameOf(UpgradeState state) { return kStates[static_cast<size_t>(state)].second; }

std::optional<UpgradeState> UpgradeStateFromName(std::string_view name) {
  for (const auto& [state, known] : kStates) {
    if (known == name) return state;
  }
  return std::nullopt;
}

std::optional<UpgradeState> StateOfNode(const UpgradeNode& node) {
  return UpgradeStateFromName(ValueAt(node.labels, names::kLabelUpgradeState));
}

UpgradeStep NextUpgradeStep(const UpgradePolicy& policy, const std::vector<UpgradeNode>& nodes,
                            WallTime now) {
  UpgradeStep step;
  Fleet fleet = CountFleet(nodes);
  std::vector<const UpgradeNode*> waiting;
  for (const UpgradeNode& node : nodes) {
    const std::optional<UpgradeState> state = StateOfNode(node);
    if (!state) continue;
    const size_t before = step.actions.size();
    NodeStepper(policy, node, *state, now, &step).Step();
    const bool idle = step.actions.size() == before;
    if (*state != UpgradeState::kUpgradeRequired || !idle) continue;
    // An unreachable node would count against max_parallel until its deadline, without progress.
    if (node.ready && MayUpgrade(policy, node)) waiting.push_back(&node);
  }
  step.counts = fleet.counts;
  BeginNodes(policy, std::move(waiting), std::move(fleet), now, &step);
  return step;
}

}  // namespace tessera::driver
