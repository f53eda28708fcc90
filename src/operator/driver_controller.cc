// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver_controller.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/kube/keyed_queue.h"
#include "src/operator/change_handler.h"
#include "src/operator/driver_actions.h"
#include "src/operator/driver_states.h"

namespace tessera::operators {
namespace {

using driver::UpgradeAction;
using driver::UpgradeNode;
using driver::UpgradeState;

constexpr std::string_view kStepKey = "step";
constexpr std::string_view kRevisionsName = "tessera-driver-revisions";
constexpr std::string_view kPodsOfDrivers =
    "app.kubernetes.io/component=nvidia-driver,app.kubernetes.io/part-of=tessera";
constexpr std::string_view kGpuNodes = "nvidia.com/gpu.present=true";
// A plan names so many nodes; a status must not grow with the cluster.
constexpr size_t kNodesOfAPlan = 20;

bool NeedsPods(const UpgradeNode& node) {
  const auto state = driver::StateOfNode(node);
  return state == UpgradeState::kWaitForJobsRequired ||
         state == UpgradeState::kPodDeletionRequired || state == UpgradeState::kDrainRequired;
}

bool Waits(const UpgradeNode& node) {
  return node.driver && !node.wanted_revision.empty() &&
         node.driver->revision != node.wanted_revision && !driver::FailedHere(node);
}

Json ConfigMapOf(const std::string& ns, const driver::Revisions& revisions) {
  Json data = Json::MakeObject();
  for (const auto& [revision, text] : revisions) data.Set(revision, Json::String(text));
  Json labels = Json::MakeObject({{"app.kubernetes.io/part-of", Json::String("tessera")}});
  return Json::MakeObject({{"apiVersion", Json::String("v1")},
                           {"kind", Json::String("ConfigMap")},
                           {"metadata", Json::MakeObject({{"name", Json::String(kRevisionsName)},
                                                          {"namespace", Json::String(ns)},
                                                          {"labels", std::move(labels)}})},
                           {"data", std::move(data)}});
}

}  // namespace

struct DriverController::Core : std::enable_shared_from_this<DriverController::Core> {
  Core(Context c, Options o, Delegate& d)
      : context(std::move(c)), options(std::move(o)), delegate(&d) {}

  // --- Reading the cluster.
  void SetPools(std::vector<driver::FleetPool> wanted) {
    pools = std::move(wanted);
    managed = std::ranges::any_of(pools, &driver::FleetPool::enabled);
    if (!managed && !following) return FindLeftovers();
    FollowPools();
  }

  void Release(std::vector<driver::FleetPool> unwanted) {
    for (driver::FleetPool& pool : unwanted) pool.enabled = false;
    pools = std::move(unwanted);
    managed = all_released = false;
    FollowPools();
  }

  void FollowPools() {
    if (!following) Follow();
    std::set<std::string, std::less<>> keys;
    for (const driver::FleetPool& pool : pools) {
      for (const auto& [key, unused] : pool.selector) keys.insert(key);
    }
    if (nodes == nullptr || keys != selector_keys) FollowNodes(std::move(keys));
    Soon();
  }

  void Soon() {
    if (delegate != nullptr) queue.AddAfter(std::string(kStepKey), options.settle);
  }

  void Follow() {
    following = true;
    node_handler.emplace(context.metrics, "driver nodes", [this] { Soon(); });
    pod_handler.emplace(context.metrics, "driver pods", [this] { Soon(); });
    pods = std::make_unique<kube::Informer<DriverPodState>>(
        context.client,
        kube::ListQuery{.ns = options.ns, .label_selector = std::string(kPodsOfDrivers)},
        KeepOfDriverPods(), *pod_handler);
    ReadRevisions();
  }

  void FollowNodes(std::set<std::string, std::less<>> keys) {
    selector_keys = keys;
    nodes = std::make_unique<kube::Informer<DriverNodeState>>(
        context.client, kube::ListQuery{.label_selector = std::string(kGpuNodes)},
        KeepOfDriverNodes(std::move(keys)), *node_handler);
  }

  // Whether nodes still have drivers that earlier settings wanted.
  void FindLeftovers() {
    if (leftovers_known) return;
    leftovers_read = context.client.List({.type = kube::kNodes,
                                          .label_selector = std::string(names::kLabelDriverPool),
                                          .limit = 1,
                                          .metadata_only = true},
                                         [this](const Result<kube::ListPage>& page) {
                                           leftovers_known = true;
                                           const bool some = page.ok() && !page->items.empty();
                                           if (some && !following) FollowPools();
                                           if (!some) delegate->OnDriversChanged();
                                         });
  }

  // What earlier operators kept.
  void ReadRevisions() {
    revisions_read = context.client.Get(
        {kube::kConfigMaps, std::string(kRevisionsName), options.ns, ""},
        [this](const Result<Json>& map) {
          const bool none = map.status().code() == Code::kNotFound;
          revisions_error = none ? Status::Ok() : map.status();
          if (!revisions_error.ok()) {
            context.client.runner().PostDelayed(options.retry, [this, weak = weak_from_this()] {
              if (!weak.expired() && delegate != nullptr) ReadRevisions();
            });
            return delegate->OnDriversChanged();
          }
          const Json* data = map.ok() ? map->Find("data") : nullptr;
          if (data != nullptr) {
            for (const auto& [revision, text] : data->members()) {
              if (text.is_string()) revisions.emplace(revision, text.string_value());
            }
          }
          revisions_known = true;
          Soon();
        });
  }

  bool Known() const {
    return revisions_known && nodes != nullptr && nodes->synced() && pods->synced();
  }

  driver::FleetView View() const {
    std::vector<driver::FleetNode> all;
    nodes->ForEach([&](const DriverNodeState& one) {
      all.push_back(one.node);
      all.back().version = one.meta.resource_version;
    });
    // In an order of their own, so that equal clusters give equal reports.
    std::ranges::sort(all, {}, &driver::FleetNode::name);
    std::vector<driver::FleetPod> drivers;
    pods->ForEach([&](const DriverPodState& one) { drivers.push_back(one.pod); });
    return driver::ViewFleet(pools, all, drivers, revisions);
  }

  void NoteError(const Status& status, Status* error) {
    const bool is_new = status.code() != error->code();
    *error = status;
    if (!status.ok()) queue.AddAfter(std::string(kStepKey), options.retry);
    if (is_new) delegate->OnDriversChanged();
  }

  // --- One look at the fleet: reads the pods that matter, then acts.
  void Work(kube::KeyedQueue::Done done) {
    if (delegate == nullptr || !Known()) return done(Status::Ok());
    node_pods.clear();
    auto names = std::make_shared<std::deque<std::pair<std::string, size_t>>>();
    const driver::FleetView view = View();
    for (size_t i = 0; i < view.pools.size(); ++i) {
      for (const UpgradeNode& node : view.pools[i].nodes) {
        if (NeedsPods(node)) names->emplace_back(node.name, i);
      }
      if (PlanKeyOf(view.pools[i]) == plans[view.pools[i].settings->name].key) continue;
      for (const UpgradeNode& node : PlannedNodes(view.pools[i])) names->emplace_back(node.name, i);
    }
    for (const driver::FleetView::Release& release : view.releases) {
      if (release.has_driver) names->emplace_back(release.patch.node, 0);
    }
    ReadNextPods(names, std::move(done));
  }

  void ReadNextPods(const std::shared_ptr<std::deque<std::pair<std::string, size_t>>>& names,
                    kube::KeyedQueue::Done done) {
    if (names->empty()) {
      Act();
      return done(Status::Ok());
    }
    const auto [name, pool] = names->front();
    names->pop_front();
    if (node_pods.contains(name)) return ReadNextPods(names, std::move(done));
    const auto wait_for = pools[pool].policy.wait_for;
    pods_read = context.client.List(
        {.type = kube::kPods, .field_selector = "spec.nodeName=" + name},
        [this, name, names, wait_for, done = std::move(done)](const Result<kube::ListPage>& page) {
          NoteError(page.status(), &pods_error);
          if (page.ok()) {
            std::vector<driver::UpgradePod>& found = node_pods[name];
            for (const kube::RawObject& pod : page->items) {
              if (pod.json() != nullptr) found.push_back(UpgradePodOf(*pod.json(), wait_for));
            }
          }
          ReadNextPods(names, done);
        });
  }

  void Act() {
    const driver::FleetView view = View();
    SetObjects(view);
    for (const driver::NodePatch& patch : view.patches) SendPatch(patch);
    FleetReport now{.pools = {}, .problems = view.problems, .unseen = ""};
    bool busy = !view.releases.empty();
    for (const driver::FleetView::Release& release : view.releases) {
      std::string user = release.has_driver ? UserOfGpus(release.patch.node) : "";
      if (user.empty()) {
        SendPatch(release.patch);
      } else {
        now.problems.push_back({release.patch.node, "DriverInUse",
                                fmt::format("the driver stays until no pod uses it: {}", user)});
      }
    }
    const bool before = std::exchange(all_released, false);
    all_released = view.releases.empty() && view.patches.empty() &&
                   std::ranges::all_of(view.pools, [](const driver::FleetView::Pool& pool) {
                     return pool.nodes.empty();
                   });
    for (const driver::FleetView::Pool& pool : view.pools) {
      const driver::UpgradeStep step = Upgrade(pool);
      busy |= step.counts.in_progress > 0;
      if (!pool.settings->enabled) continue;
      now.pools.push_back({pool.settings->name, step.counts, pool.on_host, step.blocked,
                           plans[pool.settings->name].text});
    }
    const bool changed =
        now.pools != last.pools || now.problems != last.problems || all_released != before;
    last = std::move(now);
    if (busy) queue.AddAfter(std::string(kStepKey), options.poll);
    if (changed) delegate->OnDriversChanged();
  }

  void SendPatch(const driver::NodePatch& patch) {
    if (!MayWrite(patch.node)) return;
    Send(patch.node, NodePatchOf(patch.labels, patch.annotations, VersionOf(patch.node)),
         [](bool) {});
  }

  // "pod ns/name"; "": none.
  std::string UserOfGpus(const std::string& node) const {
    const auto read = node_pods.find(node);
    if (read == node_pods.end()) return "its pods cannot be read";
    for (const driver::UpgradePod& pod : read->second) {
      if (pod.uses_gpu && !pod.ended) return fmt::format("pod {}/{}", pod.ns, pod.name);
    }
    return "";
  }

  void SetObjects(const driver::FleetView& view) {
    std::vector<Json> wanted;
    if (!view.daemonsets.empty()) {
      wanted.push_back(ConfigMapOf(options.ns, view.revisions));
      wanted.insert(wanted.end(), view.daemonsets.begin(), view.daemonsets.end());
    }
    revisions = view.revisions;
    const bool changed = wanted != objects || !objects_known;
    objects = std::move(wanted);
    objects_known = true;
    if (changed) delegate->OnDriversChanged();
  }

  // --- The steps of one pool.
  driver::UpgradeStep Upgrade(const driver::FleetView::Pool& pool) {
    std::vector<UpgradeNode> fleet = pool.nodes;
    for (UpgradeNode& node : fleet) {
      const auto found = node_pods.find(node.name);
      if (found != node_pods.end()) node.pods = WithoutDriver(found->second, node);
    }
    const WallTime now = context.client.runner().clock().WallNow();
    const driver::UpgradePolicy& policy = pool.settings->policy.policy;
    MakePlan(pool, fleet, now);
    driver::UpgradeStep step = driver::NextUpgradeStep(policy, fleet, now);
    std::map<std::string_view, const UpgradeNode*> by_name;
    for (const UpgradeNode& node : fleet) by_name[node.name] = &node;
    for (const UpgradeAction& action : step.actions) {
      const UpgradeNode& node = *by_name.at(action.node);
      const bool known = !NeedsPods(node) || node_pods.contains(node.name);
      const bool planned = !Begins(action) || plans[pool.settings->name].published;
      if (known && planned && MayWrite(node.name)) Do(action, node);
    }
    if (step.next) {
      queue.AddAfter(std::string(kStepKey), std::max<Duration>(*step.next - now, options.settle));
    }
    return step;
  }

  static std::vector<driver::UpgradePod> WithoutDriver(std::vector<driver::UpgradePod> all,
                                                       const UpgradeNode& node) {
    std::erase_if(all, [&](const driver::UpgradePod& pod) {
      return node.driver && pod.ns == node.driver->ns && pod.name == node.driver->name;
    });
    return all;
  }

  // --- Plans.
  struct Plan {
    std::string key;  // what it is about; "": nothing waits
    std::string text;
    bool published = false;
  };

  static std::vector<UpgradeNode> PlannedNodes(const driver::FleetView::Pool& pool) {
    std::vector<UpgradeNode> planned;
    for (const UpgradeNode& node : pool.nodes) {
      if (planned.size() < kNodesOfAPlan && Waits(node)) planned.push_back(node);
    }
    return planned;
  }

  // Changes with the wanted drivers, and not while nodes upgrade one after the other.
  static std::string PlanKeyOf(const driver::FleetView::Pool& pool) {
    std::set<std::string> wanted;
    for (const UpgradeNode& node : pool.nodes) {
      const auto state = driver::StateOfNode(node);
      if (Waits(node) || (state && driver::InProgress(*state))) wanted.insert(node.wanted_revision);
    }
    return fmt::format("{}", fmt::join(wanted, " "));
  }

  void MakePlan(const driver::FleetView::Pool& pool, const std::vector<UpgradeNode>& fleet,
                WallTime now) {
    const std::string& name = pool.settings->name;
    Plan& plan = plans[name];
    const std::string key = PlanKeyOf(pool);
    if (key == plan.key) return;
    if (key.empty()) {
      plan = {};
      return;
    }
    std::vector<UpgradeNode> some;
    size_t waiting = 0;
    for (const UpgradeNode& node : fleet) {
      if (!Waits(node) || ++waiting > kNodesOfAPlan) continue;
      if (!node_pods.contains(node.name)) return;  // the pods could not be read: later
      some.push_back(node);
    }
    driver::UpgradePolicy policy = pool.settings->policy.policy;
    const std::string automatic =
        policy.auto_upgrade ? ""
                            : fmt::format(
                                  "upgrades are not automatic: annotate a node with {}=true "
                                  "to upgrade it\n",
                                  names::kAnnotationUpgradeRequested);
    policy.auto_upgrade = true;
    policy.max_unavailable =
        std::to_string(driver::MaxUnavailable(policy, static_cast<int>(fleet.size())));
    std::string text = automatic + driver::PlanText(policy, std::move(some), now);
    if (waiting > kNodesOfAPlan)
      text += fmt::format("  and {} more nodes\n", waiting - kNodesOfAPlan);
    Log(Severity::kInfo, "plans a driver upgrade", {{"pool", name}, {"plan", text}});
    plan = {key, std::move(text), false};
  }

  // --- Writing.
  std::string VersionOf(const std::string& node) const {
    const DriverNodeState* state = nodes->Find(node);
    return state == nullptr ? "" : state->meta.resource_version;
  }

  // Not while a patch is under way, or the watch has not delivered the last one.
  bool MayWrite(const std::string& node) {
    const auto at = written.find(node);
    if (at == written.end()) return true;
    if (at->second.empty() || at->second == VersionOf(node)) return false;
    written.erase(at);
    return true;
  }

  void Send(const std::string& node, const Json& patch, std::function<void(bool ok)> on_done) {
    const std::string version = VersionOf(node);
    written[node] = "";
    operations[node] = context.client.Patch(
        kube::Node(node), kube::PatchKind::kMerge, patch,
        {.field_manager = std::string(names::kOperator), .before_send = context.before_send},
        [this, node, version, on_done = std::move(on_done)](const Result<Json>& answer) {
          written.erase(node);
          if (answer.ok()) {
            const Json* metadata = answer->Find("metadata");
            const bool same = metadata == nullptr ||
                              metadata->StringAt("resourceVersion").value_or("") == version;
            if (!same && VersionOf(node) == version) written[node] = version;
          }
          // After a conflict the watch delivers the newer version, which is looked at anew.
          const Code code = answer.status().code();
          if (!answer.ok() && code != Code::kAborted && code != Code::kNotFound) {
            NoteError(answer.status().Annotate("node " + node), &write_error);
            Log(Severity::kWarning, "cannot write a node, retrying",
                {{"error", write_error.ToString()}});
            queue.AddAfter(std::string(kStepKey), options.retry);
          }
          if (answer.ok()) NoteError(Status::Ok(), &write_error);
          on_done(answer.ok());
          Soon();
        });
  }

  void Do(const UpgradeAction& action, const UpgradeNode& node) {
    if (action.kind == UpgradeAction::Kind::kEvict ||
        action.kind == UpgradeAction::Kind::kDeletePod)
      return DoToPod(action);
    const UpgradeState before = driver::StateOfNode(node).value_or(UpgradeState::kUnknown);
    Send(node.name, NodePatchOf(action, VersionOf(node.name)), [this, action, before](bool ok) {
      if (!ok) return;
      Record(action);
      const std::string_view result = ResultOf(action, before);
      if (!result.empty()) context.metrics.driver_upgrades.Add(result);
    });
  }

  void DoToPod(const UpgradeAction& action) {
    const std::string key = kube::KeyOf(action.ns, action.pod);
    if (!going.insert(key).second) return;
    const auto on_done = [this, action, key](const Result<Json>& answer) {
      going.erase(key);
      OnPodAnswer(action, answer.status());
    };
    if (action.kind == UpgradeAction::Kind::kEvict) {
      operations[key] = context.client.Create({kube::kPods, action.pod, action.ns, "eviction"},
                                              EvictionOf(action), on_done, context.before_send);
      return;
    }
    const Status may = context.before_send ? context.before_send() : Status::Ok();
    if (!may.ok()) return;
    const DriverPodState* driver_pod = pods->Find(key);
    operations[key] = context.client.Delete(
        kube::Pod(action.ns, action.pod),
        {.uid = driver_pod == nullptr ? Uid() : driver_pod->meta.uid}, on_done);
  }

  void OnPodAnswer(const UpgradeAction& action, const Status& status) {
    const bool evicts = action.kind == UpgradeAction::Kind::kEvict;
    const bool blocked = status.code() == Code::kResourceExhausted;
    if (evicts) {
      context.metrics.driver_evictions.Add(status.ok() ? "accepted"
                                           : blocked   ? "blocked"
                                                       : "failed");
    }
    if (status.ok()) {
      Record(action);
    } else if (status.code() != Code::kNotFound && status.code() != Code::kAborted) {
      UpgradeAction refused = action;
      refused.warning = true;
      refused.reason = blocked ? "a disruption budget keeps it" : status.message();
      Record(refused, "DriverUpgradeWaitsForPod");
    }
    queue.AddAfter(std::string(kStepKey), options.poll);
  }

  void Record(const UpgradeAction& action, std::string_view reason = "") {
    const DriverNodeState* node = nodes->Find(action.node);
    const std::string why = reason.empty() ? EventReasonOf(action) : std::string(reason);
    const std::string text =
        action.pod.empty() ? action.reason
                           : fmt::format("pod {}/{}: {}", action.ns, action.pod, action.reason);
    Log(action.warning ? Severity::kWarning : Severity::kInfo, "driver upgrade",
        {{"node", action.node}, {"event", why}, {"what", text}});
    context.events.Record(
        {.kind = "Node", .name = action.node, .uid = node == nullptr ? Uid() : node->meta.uid},
        action.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal, why, text);
  }

  std::string Unseen() const {
    if (!node_handler) return "";
    for (const auto& [what, error] :
         {std::pair<const char*, const Status&>{"watch nodes", node_handler->error},
          {"watch driver pods", pod_handler->error},
          {"read ConfigMap tessera-driver-revisions", revisions_error},
          {"read pods of nodes to upgrade", pods_error},
          {"change nodes", write_error}}) {
      if (error.ok()) continue;
      const bool forbidden = error.code() == Code::kPermissionDenied;
      return fmt::format("cannot {}: {}{}", what, error.message(),
                         forbidden ? ": apply deploy/operator/drivers.yaml" : "");
    }
    return "";
  }

  const Context context;
  const Options options;
  Delegate* delegate;
  std::vector<driver::FleetPool> pools;
  bool managed = false;
  bool following = false;
  bool leftovers_known = false;
  bool all_released = false;
  std::set<std::string, std::less<>> selector_keys;
  std::optional<ChangeHandler<DriverNodeState>> node_handler;
  std::optional<ChangeHandler<DriverPodState>> pod_handler;
  std::unique_ptr<kube::Informer<DriverNodeState>> nodes;
  std::unique_ptr<kube::Informer<DriverPodState>> pods;
  bool revisions_known = false;
  driver::Revisions revisions;
  Status revisions_error, pods_error, write_error;
  bool objects_known = false;
  std::vector<Json> objects;
  std::map<std::string, std::vector<driver::UpgradePod>> node_pods;  // of this look
  std::map<std::string, Plan> plans;                                 // by pool
  FleetReport last;
  // The version that the last patch of a node was made for, until the watch delivers a newer one;
  // "": it is under way.
  std::map<std::string, std::string> written;
  std::set<std::string> going;  // pods whose eviction or deletion is under way
  kube::Operation leftovers_read, revisions_read, pods_read;
  std::map<std::string, kube::Operation> operations;  // by node or pod
  kube::KeyedQueue queue{
      context.client.runner(),
      {.max_running = 1},
      [this](const std::string&, kube::KeyedQueue::Done done) { Work(std::move(done)); }};
};

DriverController::DriverController(Context context, Options options, Delegate& delegate)
    : core_(std::make_shared<Core>(std::move(context), std::move(options), delegate)) {}

DriverController::~DriverController() {
  core_->delegate = nullptr;
  core_->leftovers_read.Cancel();
  core_->revisions_read.Cancel();
  core_->pods_read.Cancel();
  core_->operations.clear();
  core_->pods.reset();
  core_->nodes.reset();
}

void DriverController::SetPools(std::vector<driver::FleetPool> pools) {
  core_->SetPools(std::move(pools));
}

void DriverController::Release(std::vector<driver::FleetPool> pools) {
  core_->Release(std::move(pools));
}

bool DriverController::released() const { return core_->all_released && core_->objects_known; }

bool DriverController::ready() const {
  return core_->following ? core_->objects_known : core_->leftovers_known;
}

const std::vector<Json>& DriverController::objects() const { return core_->objects; }

std::optional<FleetReport> DriverController::report() const {
  if (!core_->managed && core_->last.problems.empty()) return std::nullopt;
  FleetReport report = core_->last;
  report.unseen = core_->Unseen();
  return report;
}

void DriverController::OnPublished(const FleetReport& report) {
  for (const DriverPoolReport& pool : report.pools) {
    Core::Plan& plan = core_->plans[pool.name];
    if (plan.published || plan.text.empty() || plan.text != pool.plan) continue;
    plan.published = true;
    core_->Soon();
  }
}

}  // namespace tessera::operators
