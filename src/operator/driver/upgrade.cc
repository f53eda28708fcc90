// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/upgrade.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "api/names.h"

namespace tessera::driver {
namespace {

using Kind = UpgradeAction::Kind;
using Changes = UpgradeAction::Changes;

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

bool InProgress(UpgradeState state) {
  return state >= UpgradeState::kCordonRequired && state <= UpgradeState::kUncordonRequired;
}

template <typename Map>
std::string ValueAt(const Map& map, std::string_view key) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : std::string();
}

std::string Seconds(WallTime time) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count());
}

std::optional<WallTime> TimeAt(const UpgradeNode& node, std::string_view annotation) {
  const std::string text = ValueAt(node.annotations, annotation);
  int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return {};
  // Beyond this a time cannot be counted in nanoseconds.
  if (seconds < 0 || seconds > 9'000'000'000) return {};
  return WallTime(std::chrono::seconds(seconds));
}

bool CordonIsOurs(const UpgradeNode& node) {
  return ValueAt(node.annotations, names::kAnnotationUpgradeCordoned) == "true";
}

// The driver that the node shall run: after a rollback not that of its pool.
std::string TargetOf(const UpgradeNode& node) {
  const std::string pinned = ValueAt(node.labels, names::kLabelDriverRevision);
  return pinned.empty() || node.wanted_revision.empty() ? node.wanted_revision : pinned;
}

bool FailedHere(const UpgradeNode& node) {
  return !node.wanted_revision.empty() &&
         ValueAt(node.annotations, names::kAnnotationDriverFailed) == node.wanted_revision;
}

bool RunsTarget(const UpgradeNode& node) {
  return node.driver && !node.driver->deleting && node.driver->ready &&
         node.driver->revision == TargetOf(node) &&
         ValueAt(node.annotations, names::kAnnotationSafeLoad).empty();
}

bool WantsOther(const UpgradeNode& node) {
  if (node.wanted_revision.empty() || !node.driver) return false;
  if (!ValueAt(node.annotations, names::kAnnotationSafeLoad).empty()) return true;
  return node.driver->revision != node.wanted_revision;
}

// Whether the node is to be upgraded, now or when there is room.
bool MayUpgrade(const UpgradePolicy& policy, const UpgradeNode& node) {
  if (!WantsOther(node) || ValueAt(node.labels, names::kLabelUpgradeSkip) == "true") return false;
  if (node.annotations.contains(names::kAnnotationUpgradeRequested)) return true;
  return policy.auto_upgrade && !FailedHere(node);
}

// Steps one node at a time; the limits of the fleet are NextUpgradeStep's.
class NodeStepper {
 public:
  NodeStepper(const UpgradePolicy& policy, const UpgradeNode& node, UpgradeState state,
              WallTime now, UpgradeStep* step)
      : policy_(policy), node_(node), state_(state), now_(now), step_(step) {}

  void Step();
  void Begin() { Enter(UpgradeState::kCordonRequired, "begins to upgrade the driver"); }

 private:
  UpgradeAction& Act(Kind kind, std::string reason) {
    step_->actions.push_back({.kind = kind, .node = node_.name, .reason = std::move(reason)});
    return step_->actions.back();
  }
  UpgradeAction& Enter(UpgradeState state, std::string reason);
  UpgradeState After(UpgradeState state) const;
  void EnterNext(std::string reason) { Enter(After(state_), std::move(reason)); }
  // Whether the state has lasted for `limit`; otherwise asks to be called again then.
  bool Expired(Duration limit);

  void StepAtRest();
  void StepCordon();
  void StepWait();
  void StepPods(bool all, Duration timeout);
  void StepRestart();
  void StepValidation();
  void StepUncordon();
  bool IsInTheWay(const UpgradePod& pod, bool all) const;
  std::string WhyStays(const UpgradePod& pod) const;
  void Release(const std::string& why);
  void RollBack(const std::string& why);

  const UpgradePolicy& policy_;
  const UpgradeNode& node_;
  const UpgradeState state_;
  const WallTime now_;
  UpgradeStep* const step_;
};

UpgradeAction& NodeStepper::Enter(UpgradeState state, std::string reason) {
  UpgradeAction& action = Act(Kind::kPatchNode, std::move(reason));
  action.labels[std::string(names::kLabelUpgradeState)] =
      state == UpgradeState::kUnknown ? std::nullopt : std::optional(std::string(NameOf(state)));
  Changes& annotations = action.annotations;
  annotations[std::string(names::kAnnotationUpgradeSince)] = Seconds(now_);
  // Deadlines of steps are shown to NVIDIA's tools, too.
  const auto mirror = [&](std::string_view annotation, UpgradeState during) {
    const bool has = node_.annotations.contains(annotation);
    if (state == during) annotations[std::string(annotation)] = Seconds(now_);
    if (state != during && has) annotations[std::string(annotation)] = std::nullopt;
  };
  mirror(names::kAnnotationWaitStart, UpgradeState::kWaitForJobsRequired);
  mirror(names::kAnnotationValidationStart, UpgradeState::kValidationRequired);
  return action;
}

UpgradeState NodeStepper::After(UpgradeState state) const {
  switch (state) {
    case UpgradeState::kCordonRequired:
      if (policy_.wait_for_jobs) return UpgradeState::kWaitForJobsRequired;
      [[fallthrough]];
    case UpgradeState::kWaitForJobsRequired:
      if (policy_.delete_gpu_pods) return UpgradeState::kPodDeletionRequired;
      [[fallthrough]];
    case UpgradeState::kPodDeletionRequired:
      if (policy_.drain) return UpgradeState::kDrainRequired;
      [[fallthrough]];
    default:
      return UpgradeState::kPodRestartRequired;
  }
}

bool NodeStepper::Expired(Duration limit) {
  const std::optional<WallTime> since = TimeAt(node_, names::kAnnotationUpgradeSince);
  if (!since) {
    // Another writer set the state: its time runs from now on.
    Enter(state_, "begins to measure the time of this step");
    return false;
  }
  const WallTime end = std::min(*since, now_) + limit;
  if (now_ >= end) return true;
  if (!step_->next || end < *step_->next) step_->next = end;
  return false;
}

void NodeStepper::Step() {
  if (InProgress(state_) && state_ != UpgradeState::kUncordonRequired &&
      node_.wanted_revision.empty()) {
    Enter(UpgradeState::kUncordonRequired, "no driver is wanted here any more");
    return;
  }
  switch (state_) {
    case UpgradeState::kCordonRequired:
      return StepCordon();
    case UpgradeState::kWaitForJobsRequired:
      return StepWait();
    case UpgradeState::kPodDeletionRequired:
      return StepPods(false, policy_.pod_deletion_timeout);
    case UpgradeState::kDrainRequired:
      return StepPods(true, policy_.drain_timeout);
    case UpgradeState::kPodRestartRequired:
      return StepRestart();
    case UpgradeState::kValidationRequired:
      return StepValidation();
    case UpgradeState::kUncordonRequired:
      return StepUncordon();
    default:
      return StepAtRest();
  }
}

// The states without an upgrade in progress.
void NodeStepper::StepAtRest() {
  const bool pinned = node_.labels.contains(names::kLabelDriverRevision);
  const bool works = RunsTarget(node_) && node_.validated;
  if (state_ == UpgradeState::kFailed && works && !pinned) {
    // It was slow, or a person repaired it.
    UpgradeAction& action = Enter(UpgradeState::kUncordonRequired, "the driver works after all");
    action.annotations[std::string(names::kAnnotationDriverFailed)] = std::nullopt;
    return;
  }
  if (MayUpgrade(policy_, node_)) {
    if (state_ == UpgradeState::kUpgradeRequired) return;
    UpgradeAction& action = Enter(UpgradeState::kUpgradeRequired,
                                  fmt::format("driver {} is wanted in place of {}",
                                              node_.wanted_revision, node_.driver->revision));
    // A request to try it again.
    if (FailedHere(node_))
      action.annotations[std::string(names::kAnnotationDriverFailed)] = std::nullopt;
    return;
  }
  if (state_ == UpgradeState::kDone || state_ == UpgradeState::kFailed) return;
  if (!works || WantsOther(node_)) return;
  Enter(UpgradeState::kDone, "the driver is up to date")
      .annotations[std::string(names::kAnnotationDriverGood)] = node_.driver->revision;
}

void NodeStepper::StepCordon() {
  if (!node_.unschedulable) {
    Act(Kind::kCordon, "cordons the node for the upgrade")
        .annotations[std::string(names::kAnnotationUpgradeCordoned)] = "true";
    return;
  }
  UpgradeAction& action = Enter(After(state_), "the node is cordoned");
  if (!CordonIsOurs(node_))
    action.annotations[std::string(names::kAnnotationInitiallyUnschedulable)] = "true";
}

void NodeStepper::StepWait() {
  // The pods of a node that is gone never end; Kubernetes deletes them in vain.
  const auto waits = std::ranges::find_if(node_.pods, [&](const UpgradePod& pod) {
    return pod.waited_for && !pod.ended && (node_.ready || !pod.deleting);
  });
  if (waits == node_.pods.end()) return EnterNext("no pod is left to wait for");
  if (policy_.wait_timeout == Duration::zero()) return;
  if (Expired(policy_.wait_timeout))
    EnterNext(fmt::format("pod {}/{} has not ended in time", waits->ns, waits->name));
}

bool NodeStepper::IsInTheWay(const UpgradePod& pod, bool all) const {
  if (pod.ended || pod.daemon) return false;
  return pod.uses_gpu ? policy_.delete_gpu_pods || all : all && !pod.skips_drain;
}

// "" if the policy lets the pod go.
std::string NodeStepper::WhyStays(const UpgradePod& pod) const {
  if (!pod.controlled && !policy_.force) {
    return fmt::format("pod {}/{} has no controller that replaces it: delete it, or allow force",
                       pod.ns, pod.name);
  }
  if (pod.empty_dir && !policy_.delete_empty_dir) {
    return fmt::format(
        "pod {}/{} has data in an emptyDir volume: delete it, or allow deleteEmptyDir", pod.ns,
        pod.name);
  }
  return {};
}

void NodeStepper::StepPods(bool all, Duration timeout) {
  std::string stays;
  std::vector<const UpgradePod*> going;
  for (const UpgradePod& pod : node_.pods) {
    if (!IsInTheWay(pod, all)) continue;
    std::string why = WhyStays(pod);
    if (why.empty()) going.push_back(&pod);
    if (stays.empty()) stays = std::move(why);
  }
  if (going.empty() && stays.empty()) return EnterNext("the node has no pod in the way");
  const bool expired = Expired(timeout);
  if (!stays.empty()) {
    // Nothing is evicted in vain while another pod keeps the node from upgrading.
    if (expired) Release(stays);
    return;
  }
  if (expired && (!policy_.force || Expired(2 * timeout))) {
    return Release(
        fmt::format("pod {}/{} did not go in time: see its disruption budget and finalizers",
                    going.front()->ns, going.front()->name));
  }
  for (const UpgradePod* pod : going) {
    if (pod->deleting) continue;
    UpgradeAction& action = Act(expired ? Kind::kDeletePod : Kind::kEvict,
                                expired ? "the eviction took too long" : "the driver is upgraded");
    action.ns = pod->ns;
    action.pod = pod->name;
  }
}

void NodeStepper::StepRestart() {
  if (node_.annotations.contains(names::kAnnotationSafeLoad)) {
    Act(Kind::kPatchNode, "lets the waiting driver load")
        .annotations[std::string(names::kAnnotationSafeLoad)] = std::nullopt;
    return;
  }
  if (node_.labels.contains(names::kLabelDriverRevision) && !FailedHere(node_)) {
    Act(Kind::kPatchNode, "the new driver ends an earlier rollback")
        .labels[std::string(names::kLabelDriverRevision)] = std::nullopt;
    return;
  }
  if (RunsTarget(node_)) {
    Enter(UpgradeState::kValidationRequired, "the driver is loaded");
    return;
  }
  const bool right = node_.driver && node_.driver->revision == TargetOf(node_);
  if (right && node_.driver->restarts > policy_.max_driver_restarts) {
    return RollBack(fmt::format("the driver container failed {} times", node_.driver->restarts));
  }
  if (Expired(policy_.restart_timeout)) return RollBack("the driver was not ready in time");
  if (!node_.driver || right || node_.driver->deleting) return;
  UpgradeAction& action = Act(Kind::kDeletePod, "its successor has the new driver");
  action.ns = node_.driver->ns;
  action.pod = node_.driver->name;
}

void NodeStepper::StepValidation() {
  if (node_.driver && node_.driver->revision != TargetOf(node_)) {
    Enter(UpgradeState::kPodRestartRequired, "another driver is wanted meanwhile");
    return;
  }
  if (RunsTarget(node_) && node_.validated) {
    Enter(UpgradeState::kUncordonRequired, "the node passed the smoke test");
    return;
  }
  if (Expired(policy_.validation_timeout))
    RollBack("the node did not pass the smoke test with the new driver");
}

void NodeStepper::StepUncordon() {
  if (CordonIsOurs(node_)) {
    UpgradeAction& action =
        Act(node_.unschedulable ? Kind::kUncordon : Kind::kPatchNode, "the upgrade is over");
    action.annotations[std::string(names::kAnnotationUpgradeCordoned)] = std::nullopt;
    return;
  }
  const bool failed = FailedHere(node_);
  const bool gone = node_.wanted_revision.empty();
  UpgradeAction& action = Enter(gone     ? UpgradeState::kUnknown
                                : failed ? UpgradeState::kFailed
                                         : UpgradeState::kDone,
                                gone     ? "no driver is wanted here any more"
                                : failed ? "the node works with its earlier driver"
                                         : "the driver is upgraded");
  for (const std::string_view annotation :
       {names::kAnnotationInitiallyUnschedulable, names::kAnnotationUpgradeRequested}) {
    if (node_.annotations.contains(annotation))
      action.annotations[std::string(annotation)] = std::nullopt;
  }
  if (gone || !node_.driver || !RunsTarget(node_) || !node_.validated) return;
  action.annotations[std::string(names::kAnnotationDriverGood)] = node_.driver->revision;
}

// The driver is as it was, so the node can go on.
void NodeStepper::Release(const std::string& why) {
  UpgradeAction& action = Enter(UpgradeState::kUncordonRequired, "gives up: " + why);
  action.annotations[std::string(names::kAnnotationDriverFailed)] = node_.wanted_revision;
  action.warning = true;
}

void NodeStepper::RollBack(const std::string& why) {
  const std::string good = ValueAt(node_.annotations, names::kAnnotationDriverGood);
  const bool rolled_back = node_.labels.contains(names::kLabelDriverRevision);
  if (policy_.rollback && !rolled_back && !good.empty() && good != node_.wanted_revision) {
    UpgradeAction& action =
        Enter(UpgradeState::kPodRestartRequired, fmt::format("rolls back to {}: {}", good, why));
    action.labels[std::string(names::kLabelDriverRevision)] = good;
    action.annotations[std::string(names::kAnnotationDriverFailed)] = node_.wanted_revision;
    action.warning = true;
    return;
  }
  UpgradeAction& action = Enter(UpgradeState::kFailed, "fails: " + why);
  action.annotations[std::string(names::kAnnotationDriverFailed)] = node_.wanted_revision;
  if (node_.annotations.contains(names::kAnnotationUpgradeRequested))
    action.annotations[std::string(names::kAnnotationUpgradeRequested)] = std::nullopt;
  action.warning = true;
}

// Nodes of one wanted revision; canaries are counted among them.
struct RevisionGroup {
  int good = 0;  // run it, and passed
  int trying = 0;
  std::string failed;  // a node on which it failed
};

struct Fleet {
  UpgradeCounts counts;
  std::map<std::string, RevisionGroup> groups;  // by wanted revision
};

Fleet CountFleet(const std::vector<UpgradeNode>& nodes) {
  Fleet fleet;
  for (const UpgradeNode& node : nodes) {
    const std::optional<UpgradeState> state = StateOfNode(node);
    const bool working = !state || InProgress(*state);
    if (node.wanted_revision.empty() && !working) continue;
    UpgradeCounts& counts = fleet.counts;
    ++counts.total;
    counts.in_progress += working;
    counts.pending += state == UpgradeState::kUpgradeRequired;
    counts.done += state == UpgradeState::kDone;
    const bool failed = state == UpgradeState::kFailed;
    counts.failed += failed;
    counts.unavailable += !failed && (working || node.unschedulable || !node.ready);
    RevisionGroup& group = fleet.groups[node.wanted_revision];
    if (FailedHere(node)) {
      if (group.failed.empty()) group.failed = node.name;
    } else if (working) {
      ++group.trying;
    } else if (state == UpgradeState::kDone && RunsTarget(node)) {
      ++group.good;
    }
  }
  return fleet;
}

// How many nodes may begin, and why no more.
int SlotsOf(const UpgradePolicy& policy, const UpgradeCounts& counts, std::string* blocked) {
  const int allowed = MaxUnavailable(policy, counts.total);
  if (counts.failed > allowed) {
    *blocked = fmt::format("{} nodes failed, more than maxUnavailable ({})", counts.failed,
                           policy.max_unavailable);
    return 0;
  }
  int slots = allowed - counts.unavailable;
  if (slots <= 0) {
    *blocked = fmt::format("{} nodes are unavailable (maxUnavailable {})", counts.unavailable,
                           policy.max_unavailable);
    // Others' cordons slow the upgrade down, and do not stop it.
    slots = counts.in_progress == 0 ? 1 : 0;
  }
  const int parallel = policy.max_parallel == 0 ? std::numeric_limits<int>::max()
                                                : policy.max_parallel - counts.in_progress;
  if (parallel < slots) *blocked = fmt::format("{} nodes upgrade already", counts.in_progress);
  return std::max(0, std::min(slots, parallel));
}

// Whether one more node of the group may begin.
bool PassesCanaries(const UpgradePolicy& policy, const RevisionGroup& group,
                    std::string_view revision, std::string* blocked) {
  if (group.good >= policy.canaries) return true;
  if (!group.failed.empty()) {
    *blocked = fmt::format("driver {} failed on canary {}", revision, group.failed);
    return false;
  }
  if (group.good + group.trying < policy.canaries) return true;
  *blocked = fmt::format("driver {} is tried on {} canaries first", revision, policy.canaries);
  return false;
}

void BeginNodes(const UpgradePolicy& policy, std::vector<const UpgradeNode*> waiting, Fleet fleet,
                WallTime now, UpgradeStep* step) {
  std::string blocked;
  int slots = SlotsOf(policy, fleet.counts, &blocked);
  std::ranges::sort(waiting, {}, &UpgradeNode::name);
  for (const UpgradeNode* node : waiting) {
    if (slots == 0) {
      step->blocked = blocked;
      return;
    }
    RevisionGroup& group = fleet.groups[node->wanted_revision];
    if (!PassesCanaries(policy, group, node->wanted_revision, &step->blocked)) continue;
    NodeStepper(policy, *node, UpgradeState::kUpgradeRequired, now, step).Begin();
    ++group.trying;
    --slots;
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

Status CheckPolicy(const UpgradePolicy& policy) {
  std::string_view text = policy.max_unavailable;
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || text.empty() || number < 0 ||
      (percent && number > 100)) {
    return Error(Code::kInvalidArgument,
                 "upgradePolicy.maxUnavailable: invalid \"{}\": want a number, or 0% to 100%",
                 policy.max_unavailable);
  }
  if (policy.max_parallel < 0) {
    return Error(Code::kInvalidArgument,
                 "upgradePolicy.maxParallelUpgrades: invalid {}: want 0 (no limit) or more",
                 policy.max_parallel);
  }
  if (policy.canaries < 0) {
    return Error(Code::kInvalidArgument, "upgradePolicy.canaries: invalid {}: want 0 or more",
                 policy.canaries);
  }
  return Status::Ok();
}

int MaxUnavailable(const UpgradePolicy& policy, int total) {
  std::string_view text = policy.max_unavailable;
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  if (percent) number = static_cast<int>((static_cast<int64_t>(total) * number + 99) / 100);
  return std::max(1, number);
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
    // An unreachable node would only hold a slot until its deadline.
    if (node.ready && MayUpgrade(policy, node)) waiting.push_back(&node);
  }
  step.counts = fleet.counts;
  BeginNodes(policy, std::move(waiting), std::move(fleet), now, &step);
  return step;
}

}  // namespace tessera::driver
