// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver/fleet.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "api/names.h"
#include "src/components/cluster_policy.h"
#include "src/operator/driver/node_stepper.h"

namespace tessera::driver {
namespace {

using components::DriverHost;

// What was rendered for the nodes of a pool with equal hosts, or why that failed.
struct RenderedPool {
  Status error;
  std::string label;  // value of kLabelDriverPool
  std::string version;
  std::string revision;
};

// The node label by which the driver's DaemonSet selects nodes, as in NVIDIA's operator. So the
// label can turn the driver off on a node, or pause it.
std::string DeployDriverLabel() { return std::string(names::kLabelDeployPrefix) + "driver"; }

bool IsDeployed(const StringMap& labels) { return ValueAt(labels, DeployDriverLabel()) == "true"; }

// The changes that the labels of a node with GPUs need. An existing value of the driver's label
// stays: "false" turns the driver off, "paused-…" pauses it. nvidia.com/gpu.deploy.operands=false
// turns all components off: the driver's label is removed.
StringChanges DeployLabelChanges(const StringMap& labels) {
  StringChanges changes;
  if (ValueAt(labels, names::kLabelGpuPresent) != "true") {
    changes[std::string(names::kLabelGpuPresent)] = "true";
  }
  const bool wanted = ValueAt(labels, names::kLabelDeployOperands) != "false";
  const std::string label = DeployDriverLabel();
  const bool exists = labels.contains(label);
  if (wanted && !exists) changes[label] = "true";
  if (!wanted && exists) changes[label] = std::nullopt;
  return changes;
}

std::string NameOfSet(const Json& set) {
  return set.Find("metadata")->StringAt("name").value_or("");
}

// Whether the agent can use the driver, regardless of other problems; nullopt: the agent has not
// reported yet.
std::optional<bool> DriverAnswers(const FleetNode& node) {
  if (node.gpu_ready) return true;
  if (node.gpu_reason.empty()) return std::nullopt;
  return node.gpu_reason == names::kReasonGpuUnhealthy ||
         node.gpu_reason == names::kReasonRuntimeNotConfigured ||
         node.gpu_reason == names::kReasonSmokeTestFailed;
}

// Whether the smoke test has passed with this driver pod. The init container of the driver pod made
// the agent close the old driver, so the condition was False in between. GPUs that were unhealthy
// before the upgrade may still be unhealthy.
bool IsValidated(const FleetNode& node, const FleetPod& pod) {
  if (node.gpu_ready) return node.gpu_since >= pod.created;
  return node.gpu_reason == names::kReasonGpuUnhealthy && node.gpu_written >= pod.created &&
         ValueAt(node.annotations, names::kAnnotationUpgradeUnhealthyBefore) == "true";
}

class FleetViewer {
 public:
  FleetViewer(const std::vector<FleetPool>& pools, const Revisions& known) : known_(known) {
    for (const FleetPool& pool : pools) view_.pools.push_back({&pool, {}, 0});
  }

  void AddPod(const FleetPod& pod);
  void AddNode(const FleetNode& node);
  FleetView Take();

 private:
  FleetView::PoolView* PoolOf(const FleetNode& node);
  const RenderedPool& FindOrRender(const FleetPool& pool, const DriverHost& host);
  RenderedPool Render(const FleetPool& pool, const DriverHost& host);
  void AddManaged(const FleetNode& node, const FleetPod* pod, FleetView::PoolView* pool);
  void AddReleased(const FleetNode& node, const FleetPod* pod, FleetView::PoolView* pool);
  UpgradeNode UpgradeNodeOf(const FleetNode& node, const FleetPod* pod);
  void KeepRevision(const std::string& revision);
  std::string VersionOf(const std::string& revision);
  void AddEarlierDaemonSets(const std::set<std::string>& revisions, bool pinned);
  void AddProblems(const UpgradeNode& node, const FleetPod* pod);

  const Revisions& known_;
  FleetView view_;
  std::map<std::string_view, const FleetPod*> pods_;  // by node
  std::map<std::tuple<std::string, std::string, std::string, std::string>, RenderedPool> rendered_;
  std::map<std::string, std::string> versions_;  // by revision
  // Revisions that need a DaemonSet besides the current ones: of nodes that were rolled back
  // (pinned by kLabelDriverRevision), and of other nodes whose pool no longer wants a driver.
  std::set<std::string> pinned_revisions_, released_revisions_;
};

void FleetViewer::AddPod(const FleetPod& pod) {
  const auto [entry, is_new] = pods_.emplace(pod.node, &pod);
  if (!is_new && entry->second->pod.deleting) entry->second = &pod;
}

FleetView::PoolView* FleetViewer::PoolOf(const FleetNode& node) {
  const auto node_has = [&](const std::pair<std::string, std::string>& label) {
    return ValueAt(node.labels, label.first) == label.second;
  };
  for (FleetView::PoolView& pool : view_.pools) {
    if (std::ranges::all_of(pool.settings->selector, node_has)) return &pool;
  }
  return nullptr;
}

const RenderedPool& FleetViewer::FindOrRender(const FleetPool& pool, const DriverHost& host) {
  const auto key = std::tuple(pool.name, host.os_id, host.os_version,
                              pool.spec.precompiled ? host.kernel : std::string());
  const auto found = rendered_.find(key);
  if (found != rendered_.end()) return found->second;
  return rendered_[key] = Render(pool, host);
}

RenderedPool FleetViewer::Render(const FleetPool& pool, const DriverHost& host) {
  const Result<std::string> revision = components::DriverRevision(pool.spec, host);
  const Result<Json> set = components::RenderDriverDaemonSet(pool.spec, host);
  for (const Status& status : {revision.status(), set.status()}) {
    if (!status.ok()) return {status, "", "", ""};
  }
  view_.daemonsets.push_back(*set);
  view_.revisions[*revision] = set->Serialize();
  return {Status::Ok(), components::DriverPoolName(pool.spec, host),
          components::DriverVersionOf(*set), *revision};
}

void FleetViewer::KeepRevision(const std::string& revision) {
  const auto known = known_.find(revision);
  if (known != known_.end()) view_.revisions.emplace(*known);
}

// The driver version of a revision, also of a revision that the settings no longer have; "":
// unknown.
std::string FleetViewer::VersionOf(const std::string& revision) {
  const auto found = versions_.find(revision);
  if (found != versions_.end()) return found->second;
  const auto text = known_.find(revision);
  const Result<Json> set = ParseJson(text == known_.end() ? "" : text->second);
  return versions_[revision] = set.ok() ? components::DriverVersionOf(*set) : "";
}

UpgradeNode FleetViewer::UpgradeNodeOf(const FleetNode& node, const FleetPod* pod) {
  UpgradeNode out{.name = node.name,
                  .labels = node.labels,
                  .annotations = node.annotations,
                  .unschedulable = node.unschedulable,
                  .ready = node.ready,
                  .gpus_unhealthy = node.gpu_reason == names::kReasonGpuUnhealthy};
  if (pod != nullptr) {
    out.driver = pod->pod;
    out.driver->version = VersionOf(pod->pod.revision);
    out.validated = IsValidated(node, *pod);
  }
  return out;
}

void FleetViewer::AddNode(const FleetNode& node) {
  const bool has_pool_label = node.labels.contains(names::kLabelDriverPool);
  FleetView::PoolView* pool = PoolOf(node);
  // A node that has left all pools loses its driver, like a node whose pool wants no driver.
  const bool has_left_pools = pool == nullptr && has_pool_label && !view_.pools.empty();
  if (has_left_pools) pool = &view_.pools.back();
  if (pool == nullptr) return;
  const auto found = pods_.find(node.name);
  const FleetPod* pod = found == pods_.end() ? nullptr : found->second;
  if (!pool->settings->enabled || has_left_pools) {
    if (has_pool_label || !ValueAt(node.labels, names::kLabelUpgradeState).empty()) {
      AddReleased(node, pod, pool);
    }
    return;
  }
  const std::optional<bool> driver_answers = DriverAnswers(node);
  const bool managed_by_nvidia = components::IsManagedByNvidia(
      std::string_view(ValueAt(node.labels, names::kLabelDeployDevicePlugin)));
  if (!has_pool_label &&
      (managed_by_nvidia || (pod == nullptr && driver_answers.value_or(false)))) {
    ++pool->on_host;
    return;
  }
  // The node gets no driver until its agent has looked for a driver of the host.
  if (!has_pool_label && pod == nullptr && !driver_answers.has_value()) return;
  AddManaged(node, pod, pool);
}

void FleetViewer::AddManaged(const FleetNode& node, const FleetPod* pod,
                             FleetView::PoolView* pool) {
  UpgradeNode upgrade = UpgradeNodeOf(node, pod);
  const Result<DriverHost> host = components::DriverHostOf(node.os_image, node.kernel);
  if (!host.ok()) {
    view_.problems.push_back({node.name, "UnsupportedSystem", host.status().message()});
    return;
  }
  const RenderedPool& rendered = FindOrRender(*pool->settings, *host);
  if (!rendered.error.ok()) {
    view_.problems.push_back({node.name, "InvalidDriver", rendered.error.message()});
    return;
  }
  NodePatch patch{.node = node.name, .labels = DeployLabelChanges(node.labels)};
  const auto deploy = patch.labels.find(DeployDriverLabel());
  const bool deployed =
      deploy == patch.labels.end() ? IsDeployed(node.labels) : deploy->second.has_value();
  if (deployed) {
    upgrade.wanted_revision = rendered.revision;
    upgrade.wanted_version = rendered.version;
  }
  const std::string label = ValueAt(node.labels, names::kLabelDriverPool);
  const bool may_move = pod == nullptr || StateOfNode(upgrade) == UpgradeState::kPodRestartRequired;
  const bool moves = label != rendered.label && may_move;
  if (moves) patch.labels[std::string(names::kLabelDriverPool)] = rendered.label;
  if (!patch.labels.empty()) view_.patches.push_back(std::move(patch));

  const std::string pin = ValueAt(node.labels, names::kLabelDriverRevision);
  const std::string good_revision = ValueAt(node.annotations, names::kAnnotationDriverGood);
  KeepRevision(pin);
  KeepRevision(good_revision);
  // The node may later be rolled back to the revision that it runs now.
  if (pod != nullptr) KeepRevision(pod->pod.revision);
  if (!pin.empty()) pinned_revisions_.insert(pin);
  // A node cannot be rolled back to a revision whose DaemonSet is unknown.
  if (!view_.revisions.contains(good_revision)) {
    upgrade.annotations.erase(std::string(names::kAnnotationDriverGood));
  }
  AddProblems(upgrade, pod);
  pool->nodes.push_back(std::move(upgrade));
}

// The node's pool no longer wants a driver.
void FleetViewer::AddReleased(const FleetNode& node, const FleetPod* pod,
                              FleetView::PoolView* pool) {
  UpgradeNode upgrade = UpgradeNodeOf(node, pod);
  if (pod != nullptr) {
    const bool pinned = !ValueAt(node.labels, names::kLabelDriverRevision).empty();
    KeepRevision(pod->pod.revision);
    (pinned ? pinned_revisions_ : released_revisions_).insert(pod->pod.revision);
  }
  const std::optional<UpgradeState> state = StateOfNode(upgrade);
  if (state && InProgress(*state)) {
    // The upgrade must end first, because its end removes the operator's cordon.
    pool->nodes.push_back(std::move(upgrade));
    return;
  }
  NodePatch patch{.node = node.name, .labels = {}, .annotations = {}};
  for (const std::string_view label :
       {names::kLabelDriverPool, names::kLabelDriverRevision, names::kLabelUpgradeState}) {
    if (node.labels.contains(label)) patch.labels[std::string(label)] = std::nullopt;
  }
  if (IsDeployed(node.labels)) patch.labels[DeployDriverLabel()] = std::nullopt;
  for (const std::string_view annotation :
       {names::kAnnotationDriverGood, names::kAnnotationDriverFailed,
        names::kAnnotationUpgradeSince, names::kAnnotationUpgradeProblem,
        names::kAnnotationUpgradeUnhealthyBefore}) {
    if (node.annotations.contains(annotation)) {
      patch.annotations[std::string(annotation)] = std::nullopt;
    }
  }
  view_.releases.push_back({std::move(patch), pod != nullptr});
}

void FleetViewer::AddProblems(const UpgradeNode& node, const FleetPod* pod) {
  if (!StateOfNode(node)) {
    view_.problems.push_back(
        {node.name, "UnknownUpgradeState",
         fmt::format("its driver is not upgraded, because the label {0} is \"{1}\", a state of "
                     "another tool: end the tool's work, then remove the label: kubectl label node "
                     "{2} {0}-",
                     names::kLabelUpgradeState, ValueAt(node.labels, names::kLabelUpgradeState),
                     node.name)});
  }
  if (StateOfNode(node) == UpgradeState::kFailed) {
    const bool serves = RunsWantedDriver(node);
    const std::string failed = ValueAt(node.annotations, names::kAnnotationDriverFailed);
    const std::string version = VersionOf(failed);
    view_.problems.push_back(
        {node.name, "DriverUpgradeFailed",
         fmt::format(
             "the upgrade to driver {} failed: {}; {}: correct the cause, then annotate the node "
             "with {}=true",
             version.empty() ? failed : version,
             ValueAt(node.annotations, names::kAnnotationUpgradeProblem),
             serves ? "the node goes on with its earlier driver" : "the node stays cordoned",
             names::kAnnotationUpgradeRequested)});
    return;
  }
  if (pod == nullptr || pod->pod.ready || pod->reason.empty()) return;
  view_.problems.push_back(
      {node.name, pod->reason, fmt::format("driver pod {}: {}", pod->pod.name, pod->message)});
}

void FleetViewer::AddEarlierDaemonSets(const std::set<std::string>& revisions, bool pinned) {
  for (const std::string& revision : revisions) {
    const auto text = view_.revisions.find(revision);
    if (text == view_.revisions.end()) continue;
    const Result<Json> set = ParseJson(text->second);
    if (!set.ok()) continue;
    Json daemonset = pinned ? components::PinnedDriverDaemonSet(*set) : *set;
    const std::string name = NameOfSet(daemonset);
    if (std::ranges::count(view_.daemonsets, name, NameOfSet) == 0) {
      view_.daemonsets.push_back(std::move(daemonset));
    }
  }
}

FleetView FleetViewer::Take() {
  AddEarlierDaemonSets(pinned_revisions_, /*pinned=*/true);
  AddEarlierDaemonSets(released_revisions_, /*pinned=*/false);
  // The order is the same at each call, regardless of the order of the nodes.
  std::ranges::sort(view_.daemonsets, {}, NameOfSet);
  return std::move(view_);
}

}  // namespace

Result<std::vector<FleetPool>> PoolsOf(const components::Settings& settings) {
  std::vector<FleetPool> pools;
  const auto add = [&](const std::string& name, const StringMap& selector,
                       const components::AgentSettings& agent) -> Status {
    FleetPool pool{name, selector, agent.driver.enabled, agent.driver.spec, {}};
    ASSIGN_OR_RETURN(pool.policy, ReadPolicy(agent.driver.upgrade_policy));
    pools.push_back(std::move(pool));
    return Status::Ok();
  };
  for (const components::PoolSettings& pool : settings.pools) {
    RETURN_IF_ERROR(add(pool.name, pool.node_selector, pool.agent).Annotate("pool " + pool.name));
  }
  RETURN_IF_ERROR(add("default", settings.agent.node_selector, settings.agent).Annotate("driver"));
  return pools;
}

FleetView ViewFleet(const std::vector<FleetPool>& pools, const std::vector<FleetNode>& nodes,
                    const std::vector<FleetPod>& pods, const Revisions& known) {
  FleetViewer viewer(pools, known);
  for (const FleetPod& pod : pods) viewer.AddPod(pod);
  for (const FleetNode& node : nodes) viewer.AddNode(node);
  return viewer.Take();
}

}  // namespace tessera::driver
