// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver_controller.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "src/components/objects.h"

namespace tessera::operators {
namespace {

using driver::UpgradeAction;
using driver::UpgradeNode;
using driver::UpgradeState;

constexpr std::string_view kStepKey = "step";

bool NeedsPods(const UpgradeNode& node) {
  const auto state = driver::StateOfNode(node);
  return state == UpgradeState::kWaitForJobsRequired ||
         state == UpgradeState::kPodDeletionRequired || state == UpgradeState::kDrainRequired;
}

Json ConfigMapOf(const std::string& ns, const driver::Revisions& revisions) {
  Json labels = Json::MakeObject({{"app.kubernetes.io/part-of", Json::String("tessera")}});
  return Json::MakeObject({{"apiVersion", Json::String("v1")},
                           {"kind", Json::String("ConfigMap")},
                           {"metadata", Json::MakeObject({{"name", Json::String(kRevisionsName)},
                                                          {"namespace", Json::String(ns)},
                                                          {"labels", std::move(labels)}})},
                           {"data", Json::StringObject(revisions)}});
}

}  // namespace

DriverController::DriverController(ClusterAccess access, Options options, Delegate& delegate)
    : client_(access.client),
      options_(std::move(options)),
      delegate_(delegate),
      reader_(access.client, access.metrics, {.ns = options_.ns, .retry = options_.retry},
              static_cast<FleetReader::Delegate&>(*this)),
      executor_(std::move(access), reader_, static_cast<UpgradeExecutor::Delegate&>(*this)),
      queue_(client_.runner(), {.max_running = 1},
             [this](const std::string&, const kube::KeyedQueue::Done& done) { Step(done); }) {}

DriverController::~DriverController() = default;

void DriverController::SetPools(std::vector<driver::FleetPool> pools) {
  pools_ = std::move(pools);
  managed_ = std::ranges::any_of(pools_, &driver::FleetPool::enabled);
  if (!managed_ && !reader_.following()) return FindLeftovers();
  FollowPools();
}

void DriverController::Release(std::vector<driver::FleetPool> pools) {
  for (driver::FleetPool& pool : pools) pool.enabled = false;
  pools_ = std::move(pools);
  managed_ = all_released_ = false;
  FollowPools();
}

void DriverController::FollowPools() {
  FleetReader::LabelKeys keys;
  for (const driver::FleetPool& pool : pools_) {
    for (const auto& [key, unused] : pool.selector) keys.insert(key);
  }
  reader_.Follow(std::move(keys));
  StepAfter(options_.step_delay);
}

void DriverController::FindLeftovers() {
  if (leftovers_checked_) return;
  reader_.FindLeftovers([this](bool found) {
    leftovers_checked_ = true;
    if (found && !reader_.following()) FollowPools();
    if (!found) delegate_.OnDriversChanged();
  });
}

void DriverController::StepAfter(Duration wait) { queue_.AddAfter(std::string(kStepKey), wait); }

void DriverController::OnWriteError() {
  if (!executor_.error().ok()) StepAfter(options_.retry);
  delegate_.OnDriversChanged();
}

// --- One pass over the fleet: reads the pods of some nodes, then acts.
void DriverController::Step(const kube::KeyedQueue::Done& done) {
  if (!reader_.known()) return done(Status::Ok());
  reader_.ReadPods(PodsToRead(), [this, done](const Status& error) {
    if (!error.ok()) StepAfter(options_.retry);
    Act();
    done(Status::Ok());
  });
}

std::deque<FleetReader::PodsToRead> DriverController::PodsToRead() const {
  const driver::FleetView view = reader_.View(pools_);
  std::deque<FleetReader::PodsToRead> nodes;
  for (const driver::FleetView::PoolView& pool : view.pools) {
    const StringMap& wait_for = pool.settings->policy.wait_for;
    for (const UpgradeNode& node : pool.nodes) {
      if (NeedsPods(node)) nodes.push_back({node.name, wait_for});
    }
    for (const std::string& node : plans_.NodesToRead(pool)) nodes.push_back({node, wait_for});
  }
  for (const driver::FleetView::Release& release : view.releases) {
    if (release.has_driver) nodes.push_back({release.patch.node, {}});
  }
  return nodes;
}

void DriverController::Act() {
  const driver::FleetView view = reader_.View(pools_);
  SetObjects(view);
  for (const driver::NodePatch& patch : view.patches) executor_.Patch(patch);
  FleetReport report{.pools = {}, .problems = view.problems, .access_error = ""};
  ReleaseNodes(view, &report);
  bool busy = !view.releases.empty();
  const bool was_released = all_released_;
  all_released_ = view.releases.empty() && view.patches.empty() &&
                  std::ranges::all_of(view.pools, [](const driver::FleetView::PoolView& pool) {
                    return pool.nodes.empty();
                  });
  for (const driver::FleetView::PoolView& pool : view.pools) {
    const driver::UpgradeStep step = Upgrade(pool);
    busy |= step.counts.in_progress > 0;
    if (!pool.settings->enabled) continue;
    report.pools.push_back({pool.settings->name, step.counts, pool.on_host, step.blocked,
                            plans_.TextOf(pool.settings->name)});
  }
  const bool error_ended = executor_.EndPass();
  const bool changed = error_ended || report.pools != last_report_.pools ||
                       report.problems != last_report_.problems || all_released_ != was_released;
  last_report_ = std::move(report);
  if (busy) StepAfter(options_.poll);
  if (changed) delegate_.OnDriversChanged();
}

void DriverController::SetObjects(const driver::FleetView& view) {
  std::vector<Json> wanted;
  if (!view.daemonsets.empty()) {
    wanted.push_back(ConfigMapOf(options_.ns, view.revisions));
    wanted.insert(wanted.end(), view.daemonsets.begin(), view.daemonsets.end());
  }
  reader_.KeepRevisions(view.revisions);
  const bool changed = wanted != objects_ || !objects_known_;
  objects_ = std::move(wanted);
  objects_known_ = true;
  if (changed) delegate_.OnDriversChanged();
}

void DriverController::ReleaseNodes(const driver::FleetView& view, FleetReport* report) {
  for (const driver::FleetView::Release& release : view.releases) {
    const std::string pod = release.has_driver ? PodUsingGpus(release.patch.node) : "";
    if (pod.empty()) {
      executor_.Patch(release.patch);
    } else {
      report->problems.push_back({release.patch.node, "DriverInUse",
                                  fmt::format("the driver stays until no pod uses it: {}", pod)});
    }
  }
}

// "pod ns/name" of a pod that uses GPUs of the node, or that the pods are unknown; "": no such pod.
std::string DriverController::PodUsingGpus(const std::string& node) const {
  const std::vector<driver::UpgradePod>* pods = reader_.PodsOf(node);
  if (pods == nullptr) return "its pods cannot be read";
  for (const driver::UpgradePod& pod : *pods) {
    if (pod.uses_gpu && !pod.ended) return fmt::format("pod {}/{}", pod.ns, pod.name);
  }
  return "";
}

// --- The steps of one pool.
driver::UpgradeStep DriverController::Upgrade(const driver::FleetView::PoolView& pool) {
  const std::vector<UpgradeNode> fleet = WithPods(pool.nodes);
  const WallTime now = client_.runner().clock().WallNow();
  const auto pods_known = [&](const std::string& node) { return reader_.PodsOf(node) != nullptr; };
  plans_.Update(pool, fleet, pods_known, now);
  driver::UpgradeStep step = driver::NextUpgradeStep(pool.settings->policy, fleet, now);
  std::map<std::string_view, const UpgradeNode*> by_name;
  for (const UpgradeNode& node : fleet) by_name[node.name] = &node;
  for (const UpgradeAction& action : step.actions) {
    const UpgradeNode& node = *by_name.at(action.node);
    const bool known = !NeedsPods(node) || pods_known(node.name);
    const bool planned = !driver::BeginsUpgrade(action) || plans_.IsPublished(pool.settings->name);
    if (known && planned) executor_.Execute(action, node);
  }
  if (step.next) StepAfter(std::max<Duration>(*step.next - now, options_.step_delay));
  return step;
}

std::vector<UpgradeNode> DriverController::WithPods(const std::vector<UpgradeNode>& nodes) const {
  std::vector<UpgradeNode> fleet = nodes;
  for (UpgradeNode& node : fleet) {
    const std::vector<driver::UpgradePod>* pods = reader_.PodsOf(node.name);
    if (pods == nullptr) continue;
    node.pods = *pods;
    std::erase_if(node.pods, [&](const driver::UpgradePod& pod) {
      return node.driver && pod.ns == node.driver->ns && pod.name == node.driver->name;
    });
  }
  return fleet;
}

// --- Reports.
std::string DriverController::AccessError() const {
  std::vector<std::pair<std::string_view, Status>> errors = reader_.Errors();
  if (!executor_.error().ok()) errors.emplace_back("change nodes", executor_.error());
  if (errors.empty()) return "";
  const auto& [what, error] = errors.front();
  const bool forbidden = error.code() == Code::kPermissionDenied;
  return fmt::format("cannot {}: {}{}{}", what, error.message(),
                     forbidden ? ": give the operator its rights for drivers: " : "",
                     forbidden ? components::kRestoreOperator : "");
}

std::optional<FleetReport> DriverController::report() const {
  FleetReport report = last_report_;
  report.access_error = AccessError();
  if (!managed_ && report.problems.empty() && report.access_error.empty()) return std::nullopt;
  return report;
}

void DriverController::OnPublished(const FleetReport& report) {
  if (plans_.OnPublished(report)) StepAfter(options_.step_delay);
}

}  // namespace tessera::operators
