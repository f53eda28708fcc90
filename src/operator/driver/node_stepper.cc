// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/node_stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/names.h"

namespace tessera::driver {
namespace {

// More restarts of the driver container are a failure.
constexpr int kMaxDriverRestarts = 10;

std::string Seconds(WallTime time) {
  return std::to_string(
      std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count());
}

std::optional<WallTime> TimeAt(const UpgradeNode& node, std::string_view annotation) {
  const int64_t seconds = ParseInt(ValueAt(node.annotations, annotation)).value_or(-1);
  // Later times overflow a count of nanoseconds.
  if (seconds < 0 || seconds > 9'000'000'000) return {};
  return WallTime(std::chrono::seconds(seconds));
}

bool IsOwnCordon(const UpgradeNode& node) {
  return ValueAt(node.annotations, names::kAnnotationUpgradeCordoned) == "true";
}

// The revision of the driver that the node should run; after a rollback it differs from the pool's
// revision.
std::string TargetOf(const UpgradeNode& node) {
  const std::string pinned = ValueAt(node.labels, names::kLabelDriverRevision);
  return pinned.empty() || node.wanted_revision.empty() ? node.wanted_revision : pinned;
}

bool WantsOtherDriver(const UpgradeNode& node) {
  if (node.wanted_revision.empty() || !node.driver) return false;
  if (!ValueAt(node.annotations, names::kAnnotationSafeLoad).empty()) return true;
  return node.driver->revision != node.wanted_revision;
}

}  // namespace

std::string TitleOfWanted(const UpgradeNode& node) {
  return node.wanted_version.empty() ? node.wanted_revision : node.wanted_version;
}

std::string TitleOf(const DriverPod& driver) {
  return driver.version.empty() ? driver.revision : driver.version;
}

bool InProgress(UpgradeState state) {
  return state >= UpgradeState::kCordonRequired && state <= UpgradeState::kUncordonRequired;
}

bool WantedDriverFailedOn(const UpgradeNode& node) {
  return !node.wanted_revision.empty() &&
         ValueAt(node.annotations, names::kAnnotationDriverFailed) == node.wanted_revision;
}

bool RunsWantedDriver(const UpgradeNode& node) {
  return node.driver && !node.driver->deleting && node.driver->ready &&
         node.driver->revision == TargetOf(node) &&
         ValueAt(node.annotations, names::kAnnotationSafeLoad).empty();
}

bool MayUpgrade(const UpgradePolicy& policy, const UpgradeNode& node) {
  if (!WantsOtherDriver(node) || ValueAt(node.labels, names::kLabelUpgradeSkip) == "true")
    return false;
  if (node.annotations.contains(names::kAnnotationUpgradeRequested)) return true;
  return policy.auto_upgrade && !WantedDriverFailedOn(node);
}

UpgradeAction& NodeStepper::Enter(UpgradeState state, std::string reason) {
  UpgradeAction& action = AddAction(UpgradeAction::Kind::kPatchNode, std::move(reason));
  action.labels[std::string(names::kLabelUpgradeState)] =
      state == UpgradeState::kUnknown ? std::nullopt : std::optional(std::string(NameOf(state)));
  StringChanges& annotations = action.annotations;
  annotations[std::string(names::kAnnotationUpgradeSince)] = Seconds(now_);
  // NVIDIA's tools read the start of these two steps from annotations.
  const auto mirror = [&](std::string_view annotation, UpgradeState during) {
    const bool exists = node_.annotations.contains(annotation);
    if (state == during) annotations[std::string(annotation)] = Seconds(now_);
    if (state != during && exists) annotations[std::string(annotation)] = std::nullopt;
  };
  mirror(names::kAnnotationWaitStart, UpgradeState::kWaitForJobsRequired);
  mirror(names::kAnnotationValidationStart, UpgradeState::kValidationRequired);
  return action;
}

void NodeStepper::Begin() {
  UpgradeAction& action = Enter(UpgradeState::kCordonRequired, "begins to upgrade the driver");
  if (node_.annotations.contains(names::kAnnotationUpgradeProblem))
    action.annotations[std::string(names::kAnnotationUpgradeProblem)] = std::nullopt;
  // If GPUs are unhealthy before the upgrade, validation accepts unhealthy GPUs after it.
  const std::string unhealthy(names::kAnnotationUpgradeUnhealthyBefore);
  if (node_.gpus_unhealthy) action.annotations[unhealthy] = "true";
  if (!node_.gpus_unhealthy && node_.annotations.contains(unhealthy))
    action.annotations[unhealthy] = std::nullopt;
}

void NodeStepper::Fail(const std::string& why, UpgradeAction* action) const {
  action->annotations[std::string(names::kAnnotationDriverFailed)] = node_.wanted_revision;
  action->annotations[std::string(names::kAnnotationUpgradeProblem)] = why;
  action->warning = true;
}

UpgradeState NodeStepper::StateAfter(UpgradeState state) const {
  switch (state) {
    case UpgradeState::kCordonRequired:
      if (!policy_.wait_for.empty()) return UpgradeState::kWaitForJobsRequired;
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

bool NodeStepper::DeadlineHasPassed(Duration limit) {
  const std::optional<WallTime> since = TimeAt(node_, names::kAnnotationUpgradeSince);
  if (!since) {
    // Another writer set the state without its start time, so the state starts now.
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
      return StepPods(/*all=*/false, policy_.pod_deletion_timeout);
    case UpgradeState::kDrainRequired:
      return StepPods(/*all=*/true, policy_.drain_timeout);
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

// States in which no upgrade of the node is in progress.
void NodeStepper::StepAtRest() {
  const bool works = RunsWantedDriver(node_) && node_.validated;
  if (state_ == UpgradeState::kFailed && works && TargetOf(node_) == node_.wanted_revision) {
    // The driver works after all: it was slow, an administrator repaired the node, or the settings
    // want the earlier driver again.
    UpgradeAction& action = Enter(UpgradeState::kUncordonRequired, "the wanted driver works");
    action.annotations[std::string(names::kAnnotationDriverFailed)] = std::nullopt;
    if (node_.annotations.contains(names::kAnnotationUpgradeProblem))
      action.annotations[std::string(names::kAnnotationUpgradeProblem)] = std::nullopt;
    return;
  }
  if (MayUpgrade(policy_, node_)) {
    if (state_ == UpgradeState::kUpgradeRequired) return;
    UpgradeAction& action = Enter(UpgradeState::kUpgradeRequired,
                                  fmt::format("driver {} is wanted in place of {}",
                                              TitleOfWanted(node_), TitleOf(*node_.driver)));
    // An administrator has requested another attempt (kAnnotationUpgradeRequested).
    if (WantedDriverFailedOn(node_))
      action.annotations[std::string(names::kAnnotationDriverFailed)] = std::nullopt;
    return;
  }
  if (state_ == UpgradeState::kFailed && works && IsOwnCordon(node_)) {
    // The node was rolled back, and its earlier driver was ready only after the deadline.
    Enter(UpgradeState::kUncordonRequired, "the earlier driver works after all");
    return;
  }
  if (state_ == UpgradeState::kDone || state_ == UpgradeState::kFailed) return;
  if (!works || WantsOtherDriver(node_)) return;
  Enter(UpgradeState::kDone, "the driver is up to date")
      .annotations[std::string(names::kAnnotationDriverGood)] = node_.driver->revision;
}

void NodeStepper::StepCordon() {
  if (!node_.unschedulable) {
    AddAction(UpgradeAction::Kind::kCordon, "cordons the node for the upgrade")
        .annotations[std::string(names::kAnnotationUpgradeCordoned)] = "true";
    return;
  }
  UpgradeAction& action = Enter(StateAfter(state_), "the node is cordoned");
  if (!IsOwnCordon(node_))
    action.annotations[std::string(names::kAnnotationInitiallyUnschedulable)] = "true";
}

void NodeStepper::StepWait() {
  // Pods that are deleted on an unreachable node never end, because only the kubelet confirms their
  // deletion.
  const auto running_pod = std::ranges::find_if(node_.pods, [&](const UpgradePod& pod) {
    return pod.waited_for && !pod.ended && (node_.ready || !pod.deleting);
  });
  if (running_pod == node_.pods.end()) return EnterNext("no pod is left to wait for");
  if (policy_.wait_timeout == Duration::zero()) return;
  if (DeadlineHasPassed(policy_.wait_timeout))
    EnterNext(fmt::format("pod {}/{} has not ended in time", running_pod->ns, running_pod->name));
}

bool NodeStepper::MustLeave(const UpgradePod& pod, bool all) const {
  if (pod.ended || pod.is_daemon) return false;
  return pod.uses_gpu ? policy_.delete_gpu_pods || all : all && !pod.skips_drain;
}

// Why the policy does not allow the eviction of the pod; "" if it does.
std::string NodeStepper::ReasonToStay(const UpgradePod& pod) const {
  if (!pod.controlled && !policy_.force) {
    return fmt::format(
        "pod {}/{} has no controller that replaces it: delete the pod, or set "
        "driver.upgradePolicy.gpuPodDeletion.force=true",
        pod.ns, pod.name);
  }
  if (pod.has_empty_dir && !policy_.delete_empty_dir) {
    return fmt::format(
        "pod {}/{} has data in an emptyDir volume: delete the pod, or set "
        "driver.upgradePolicy.gpuPodDeletion.deleteEmptyDir=true",
        pod.ns, pod.name);
  }
  return {};
}

void NodeStepper::StepPods(bool all, Duration timeout) {
  std::string why_blocked;
  std::vector<const UpgradePod*> to_evict;
  for (const UpgradePod& pod : node_.pods) {
    if (!MustLeave(pod, all)) continue;
    std::string why = ReasonToStay(pod);
    if (why.empty()) to_evict.push_back(&pod);
    if (why_blocked.empty()) why_blocked = std::move(why);
  }
  if (to_evict.empty() && why_blocked.empty()) return EnterNext("the node has no pod in the way");
  const bool expired = DeadlineHasPassed(timeout);
  if (!why_blocked.empty()) {
    // If one pod prevents the upgrade of the node, evicting other pods would be useless.
    if (expired) GiveUp(why_blocked);
    return;
  }
  if (expired && (!policy_.force || DeadlineHasPassed(2 * timeout))) {
    return GiveUp(
        fmt::format("pod {}/{} was not evicted in time: see its disruption budget and finalizers",
                    to_evict.front()->ns, to_evict.front()->name));
  }
  for (const UpgradePod* pod : to_evict) {
    if (pod->deleting) continue;
    UpgradeAction& action =
        AddAction(expired ? UpgradeAction::Kind::kDeletePod : UpgradeAction::Kind::kEvict,
                  expired ? "the eviction took too long" : "the driver is upgraded");
    action.ns = pod->ns;
    action.pod = pod->name;
  }
}

void NodeStepper::StepRestart() {
  if (node_.annotations.contains(names::kAnnotationSafeLoad)) {
    AddAction(UpgradeAction::Kind::kPatchNode, "lets the waiting driver load")
        .annotations[std::string(names::kAnnotationSafeLoad)] = std::nullopt;
    return;
  }
  if (node_.labels.contains(names::kLabelDriverRevision) && !WantedDriverFailedOn(node_)) {
    AddAction(UpgradeAction::Kind::kPatchNode, "the new driver ends an earlier rollback")
        .labels[std::string(names::kLabelDriverRevision)] = std::nullopt;
    return;
  }
  if (RunsWantedDriver(node_)) {
    Enter(UpgradeState::kValidationRequired, "the driver is loaded");
    return;
  }
  const bool pod_has_target_revision = node_.driver && node_.driver->revision == TargetOf(node_);
  if (pod_has_target_revision && node_.driver->restarts > kMaxDriverRestarts) {
    return RollBack(fmt::format("the driver container failed {} times", node_.driver->restarts));
  }
  if (DeadlineHasPassed(policy_.restart_timeout))
    return RollBack("the driver was not ready in time");
  if (!node_.driver || pod_has_target_revision || node_.driver->deleting) return;
  UpgradeAction& action =
      AddAction(UpgradeAction::Kind::kDeletePod,
                "deletes the driver pod, so that its DaemonSet starts one with the new driver");
  action.ns = node_.driver->ns;
  action.pod = node_.driver->name;
}

void NodeStepper::StepValidation() {
  if (node_.driver && node_.driver->revision != TargetOf(node_)) {
    Enter(UpgradeState::kPodRestartRequired, "another driver is wanted meanwhile");
    return;
  }
  if (RunsWantedDriver(node_) && node_.validated) {
    Enter(UpgradeState::kUncordonRequired, "the node passed the smoke test");
    return;
  }
  if (DeadlineHasPassed(policy_.validation_timeout))
    RollBack("the node did not pass the smoke test");
}

void NodeStepper::StepUncordon() {
  if (IsOwnCordon(node_)) {
    UpgradeAction& action = AddAction(
        node_.unschedulable ? UpgradeAction::Kind::kUncordon : UpgradeAction::Kind::kPatchNode,
        "the upgrade is over");
    action.annotations[std::string(names::kAnnotationUpgradeCordoned)] = std::nullopt;
    return;
  }
  const bool failed = WantedDriverFailedOn(node_);
  const bool driver_not_wanted = node_.wanted_revision.empty();
  UpgradeAction& action = Enter(driver_not_wanted ? UpgradeState::kUnknown
                                : failed          ? UpgradeState::kFailed
                                                  : UpgradeState::kDone,
                                driver_not_wanted ? "no driver is wanted here any more"
                                : failed          ? "the node works with its earlier driver"
                                                  : "the driver is upgraded");
  for (const std::string_view annotation :
       {names::kAnnotationInitiallyUnschedulable, names::kAnnotationUpgradeRequested,
        names::kAnnotationUpgradeUnhealthyBefore}) {
    if (node_.annotations.contains(annotation))
      action.annotations[std::string(annotation)] = std::nullopt;
  }
  if (driver_not_wanted || !node_.driver || !RunsWantedDriver(node_) || !node_.validated) return;
  action.annotations[std::string(names::kAnnotationDriverGood)] = node_.driver->revision;
}

// Ends the upgrade before the driver has changed, and uncordons the node.
void NodeStepper::GiveUp(const std::string& why) {
  UpgradeAction& action = Enter(UpgradeState::kUncordonRequired, "gives up: " + why);
  Fail(why, &action);
}

void NodeStepper::RollBack(const std::string& why) {
  const std::string good = ValueAt(node_.annotations, names::kAnnotationDriverGood);
  const bool rolled_back = node_.labels.contains(names::kLabelDriverRevision);
  if (policy_.rollback && !rolled_back && !good.empty() && good != node_.wanted_revision) {
    UpgradeAction& action = Enter(UpgradeState::kPodRestartRequired,
                                  "rolls back to the last driver that worked: " + why);
    action.labels[std::string(names::kLabelDriverRevision)] = good;
    Fail(why, &action);
    return;
  }
  UpgradeAction& action = Enter(UpgradeState::kFailed, "fails: " + why);
  // The first failure is the cause of the rollback, so the problem names it too.
  const std::string cause = ValueAt(node_.annotations, names::kAnnotationUpgradeProblem);
  const bool has_cause = rolled_back && !cause.empty();
  Fail(has_cause ? fmt::format("{}; after the rollback, {}", cause, why) : why, &action);
  if (node_.annotations.contains(names::kAnnotationUpgradeRequested))
    action.annotations[std::string(names::kAnnotationUpgradeRequested)] = std::nullopt;
}

}  // namespace tessera::driver
