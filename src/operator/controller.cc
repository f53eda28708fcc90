// SPDX-License-Identifier: Apache-2.0
#include "src/operator/controller.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/components/cluster_policy.h"
#include "src/components/settings.h"
#include "src/kube/keyed_queue.h"
#include "src/kube/metadata_object.h"
#include "src/kube/type_catalog.h"
#include "src/operator/change_handler.h"
#include "src/operator/driver_controller.h"
#include "src/operator/node_cleaner.h"
#include "src/operator/object_set.h"

namespace tessera::operators {
namespace {

constexpr kube::ResourceType kTesseras{names::kGroup, names::kResourceVersion,
                                       names::kResourcePlural, false};
constexpr kube::ResourceType kClusterPolicies{"nvidia.com", "v1", "clusterpolicies", false};
constexpr std::string_view kResourceKey = "resource";
constexpr std::string_view kStatusKey = "status";

std::string ApiVersionOfResource() {
  return fmt::format("{}/{}", names::kGroup, names::kResourceVersion);
}

// An object of each type and namespace that settings may render.
std::vector<Json> ExamplesOf(const Rendering& rendering) {
  std::vector<Json> examples;
  const auto components = rendering.render(rendering.every_kind);
  if (!components.ok()) return examples;
  for (const components::Component& component : *components) {
    examples.insert(examples.end(), component.objects.begin(), component.objects.end());
  }
  return examples;
}

}  // namespace

Rendering DefaultRendering() {
  return {.render = [](const Json& spec) -> Result<std::vector<components::Component>> {
            ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
            return components::RenderComponents(settings);
          },
          .definition = components::TesseraDefinition(),
          .every_kind = components::SpecOfEveryKind(),
          .pools = [](const Json& spec) -> Result<std::vector<driver::FleetPool>> {
            ASSIGN_OR_RETURN(const components::Settings settings, components::ParseSettings(spec));
            return driver::PoolsOf(settings);
          }};
}

struct Controller::Core : std::enable_shared_from_this<Controller::Core>,
                          ObjectSet::Delegate,
                          DriverController::Delegate {
  Core(Context c, Rendering r, ControllerOptions o)
      : context(std::move(c)), rendering(std::move(r)), options(std::move(o)) {}

  void Start() {
    const auto changed = [this] { queue.Add(std::string(kResourceKey)); };
    const auto nodes_changed = [this] {
      health.reset();
      StatusSoon();
    };
    resource_handler.emplace(context.metrics, "tesseras", changed);
    node_handler.emplace(context.metrics, "nodes", nodes_changed);
    pod_handler.emplace(context.metrics, "pods", [this] {
      health.reset();
      OnObjectsChanged();
    });
    const auto none = [](std::string_view) { return false; };
    resources.emplace(context.client, kube::ListQuery{.type = kTesseras}, kube::Keep{},
                      *resource_handler);
    nodes.emplace(context.client, kube::ListQuery{}, KeepOfNodes(), *node_handler);
    pods.emplace(
        context.client,
        kube::ListQuery{.ns = options.ns, .label_selector = std::string(names::kAgentSelector)},
        kube::Keep{.label = none, .annotation = none, .resource = none}, *pod_handler);
    objects = NewSet(ExamplesOf(rendering));
    if (!rendering.definition.is_null()) {
      definition = NewSet({});
      definition->SetWanted({{"definition", {rendering.definition}}}, {});
    }
    if (rendering.pools) {
      drivers = std::make_unique<DriverController>(
          DriverController::Context{context.client, context.events, context.metrics,
                                    context.before_send},
          DriverController::Options{.ns = options.ns, .poll = options.driver_poll},
          static_cast<DriverController::Delegate&>(*this));
    }
    ReadPolicies();
  }

  std::unique_ptr<ObjectSet> NewSet(std::vector<Json> examples) {
    return std::make_unique<ObjectSet>(
        context.client, types,
        ObjectSet::Options{.label_selector = std::string(names::kPartOfSelector),
                           .examples = std::move(examples),
                           .settle = options.settle,
                           .before_send = context.before_send},
        context.metrics, static_cast<ObjectSet::Delegate&>(*this));
  }

  // --- What others say.
  void OnObjectsChanged() override {
    StatusSoon();
    if (!finalizing.empty()) queue.Add(std::string(kResourceKey));
  }

  void OnRepair(const std::string& component, const std::string& what) override {
    Log(Severity::kInfo, "restored an object", {{"component", component}, {"what", what}});
    Record(kube::EventKind::kNormal, "Restored", what);
  }

  void OnDriversChanged() override {
    StatusSoon();
    queue.Add(std::string(kResourceKey));
  }

  static std::string NameOfFirst(const kube::ListPage& page) {
    const Json* object = page.items.empty() ? nullptr : page.items.front().json();
    const Json* metadata = object == nullptr ? nullptr : object->Find("metadata");
    return metadata == nullptr ? "" : metadata->StringAt("name").value_or("");
  }

  void OnPolicy(std::string name) {
    policies_known = true;
    if (name == policy) return;
    policy = std::move(name);
    wanted_text.clear();
  }

  // ClusterPolicies have a definition only where NVIDIA's operator is.
  void ReadPolicies() {
    policies_read = context.client.List(
        {.type = kClusterPolicies, .limit = 1, .metadata_only = true},
        [this](const Result<kube::ListPage>& page) {
          const bool no_definition = page.status().code() == Code::kNotFound;
          policy_error = no_definition ? Status::Ok() : page.status();
          // After an error the last answer holds: an agent beside NVIDIA's device plugin would give
          // the same GPUs away.
          if (page.ok()) OnPolicy(NameOfFirst(*page));
          if (no_definition) OnPolicy("");
          queue.Add(std::string(kResourceKey));
          context.client.runner().PostDelayed(options.resync, [this, weak = weak_from_this()] {
            if (!weak.expired() && !ended) ReadPolicies();
          });
        });
  }

  const kube::JsonObject* Resource() const {
    return resources ? resources->Find(std::string(names::kResourceName)) : nullptr;
  }

  void Record(kube::EventKind kind, std::string_view reason, const std::string& message) {
    const kube::JsonObject* resource = Resource();
    if (resource == nullptr) return;
    context.events.Record({.api_version = ApiVersionOfResource(),
                           .kind = std::string(names::kResourceKind),
                           .name = resource->meta.name,
                           .uid = resource->meta.uid},
                          kind, reason, message);
  }

  void Work(const std::string& key, kube::KeyedQueue::Done done) {
    if (ended) return done(Status::Ok());
    if (key == kStatusKey) return WriteStatus(std::move(done));
    Reconcile(std::move(done));
  }

  // --- The resource.
  void Reconcile(kube::KeyedQueue::Done done) {
    const MonotonicTime began = Now();
    const kube::JsonObject* resource = Resource();
    if (!resources->synced() || !policies_known) return done(Status::Ok());
    if (resource == nullptr) {
      // Its objects have gone with it, or go now, by their owner references.
      finalizing.clear();
      nodes_clean = removing = releasing = false;
      generation = 0;
      last_input.reset();
      return done(Status::Ok());
    }
    kube::MetadataObject meta;
    (void)kube::DecodeObject(kube::RawObject(resource->value), {}, &meta);
    const bool has_finalizer = std::find(meta.finalizers.begin(), meta.finalizers.end(),
                                         names::kOperatorFinalizer) != meta.finalizers.end();
    if (meta.meta.deleting) {
      if (!has_finalizer) return done(Status::Ok());
      return Finalize(meta, std::move(done));
    }
    if (!has_finalizer) {
      // Before the first object is made, so that none is left behind.
      meta.finalizers.emplace_back(names::kOperatorFinalizer);
      return WriteFinalizers(meta, std::move(done));
    }
    // The last resource may have been deleted and created again between two looks.
    finalizing.clear();
    nodes_clean = removing = releasing = false;
    clean_error = Status::Ok();
    Render(*resource, meta);
    context.metrics.reconcile.Observe(Now() - began);
    StatusSoon();
    done(Status::Ok());
  }

  static kube::OwnerReference OwnerOf(const kube::ObjectMeta& meta) {
    return {.api_version = ApiVersionOfResource(),
            .kind = std::string(names::kResourceKind),
            .name = meta.name,
            .uid = meta.uid};
  }

  bool KeepsOff(const kube::ObjectMeta& meta) const {
    if (policy.empty()) return false;
    const auto adopt = meta.annotations.find(names::kAnnotationAdoptNvidiaNodes);
    return adopt == meta.annotations.end() || adopt->second != "true";
  }

  void Render(const kube::JsonObject& resource, const kube::MetadataObject& meta) {
    generation = meta.generation;
    keeps_off = KeepsOff(resource.meta);
    const Json* found = resource.value.Find("spec");
    const Json spec = found == nullptr ? Json() : *found;
    if (Status status = WantDrivers(spec); !status.ok()) return SetSpecError(std::move(status));
    // Without the driver's DaemonSets they would be deleted.
    if (drivers != nullptr && !drivers->ready()) return;
    std::string text =
        fmt::format("{} {} {}", resource.meta.uid.view(), keeps_off, spec.Serialize());
    for (const Json& object : DriverObjects()) text += object.Serialize();
    if (text == wanted_text) {
      spec_error = Status::Ok();
      return;
    }
    auto components = rendering.render(spec);
    if (!components.ok()) return SetSpecError(components.status());
    spec_error = Status::Ok();
    wanted_text = std::move(text);
    if (keeps_off) components::KeepOffNvidiaNodes(&*components);
    AddDriverObjects(&*components);
    objects->SetWanted(*std::move(components), OwnerOf(resource.meta));
    applied_by = Now() + 5 * options.settle;
  }

  void SetSpecError(Status status) {
    if (spec_error.message() != status.message()) {
      Log(Severity::kWarning, "the spec is invalid, keeping the objects of the last valid one",
          {{"error", status.message()}});
    }
    spec_error = std::move(status);
  }

  // --- Drivers.
  Status WantDrivers(const Json& spec) {
    if (drivers == nullptr) return Status::Ok();
    const std::string text = spec.Serialize();
    if (text == drivers_text) return Status::Ok();
    ASSIGN_OR_RETURN(std::vector<driver::FleetPool> pools, rendering.pools(spec));
    drivers_text = text;
    drivers->SetPools(std::move(pools));
    return Status::Ok();
  }

  std::vector<Json> DriverObjects() const {
    return drivers == nullptr ? std::vector<Json>() : drivers->objects();
  }

  void AddDriverObjects(std::vector<components::Component>* components) const {
    const std::vector<Json> more = DriverObjects();
    if (more.empty()) return;
    auto found =
        std::ranges::find(*components, components::kDriverComponent, &components::Component::name);
    if (found == components->end()) {
      found = components->insert(found, {std::string(components::kDriverComponent), {}});
    }
    found->objects.insert(found->objects.end(), more.begin(), more.end());
  }

  // The nodes end their upgrades and lose their drivers. Returns what that waits for; "": nothing.
  std::string ReleaseDrivers() {
    if (drivers == nullptr || drivers->released()) return "";
    if (!releasing) {
      auto pools = rendering.pools(
          Resource()->value.Find("spec") == nullptr ? Json() : *Resource()->value.Find("spec"));
      // An invalid spec has no driver that could be released but by the defaults.
      if (!pools.ok()) pools = rendering.pools(Json());
      releasing = true;
      drivers_text.clear();
      drivers->Release(pools.ok() ? *std::move(pools) : std::vector<driver::FleetPool>());
    }
    const std::optional<FleetReport> report = drivers->report();
    if (!report) return "the nodes are being released from upgrades and drivers";
    if (!report->unseen.empty()) return report->unseen;
    if (report->problems.empty()) return "the nodes are being released from upgrades and drivers";
    const driver::FleetProblem& first = report->problems.front();
    return fmt::format("node {}: {}", first.node, first.message);
  }

  void WriteFinalizers(const kube::MetadataObject& meta, kube::KeyedQueue::Done done) {
    const kube::ObjectRef ref{kTesseras, meta.meta.name, "", ""};
    finalizer_write = context.client.Patch(
        ref, kube::PatchKind::kMerge,
        kube::FinalizersPatch(meta.finalizers, meta.meta.resource_version),
        {.field_manager = std::string(names::kOperator), .before_send = context.before_send},
        [done = std::move(done)](const Result<Json>& answer) {
          const Code code = answer.status().code();
          // After a conflict the watch delivers the newer version.
          done(code == Code::kAborted || code == Code::kNotFound ? Status::Ok() : answer.status());
        });
  }

  // --- Deleting: workloads, then what agents left on nodes, then the rest, then the finalizer.
  void Finalize(kube::MetadataObject meta, kube::KeyedQueue::Done done) {
    const kube::OwnerReference owner = OwnerOf(meta.meta);
    generation = meta.generation;
    if (std::string why = ReleaseDrivers(); !why.empty()) {
      SetFinalizing(std::move(why));
      return done(Status::Ok());
    }
    const bool workloads = objects->Remaining(true) > 0 || pods->size() > 0 || !pods->synced();
    if (!nodes_clean && (workloads || !removing)) {
      removing = true;
      SetFinalizing("the agents and schedulers are being removed; running pods keep their GPUs");
      objects->Remove(owner, false);
      return done(Status::Ok());
    }
    if (!nodes_clean) return CleanNodes(std::move(done));
    if (objects->Remaining(false) > 0) {
      SetFinalizing("the remaining objects are being removed");
      objects->Remove(owner, true);
      return done(Status::Ok());
    }
    SetFinalizing("done");
    std::erase(meta.finalizers, names::kOperatorFinalizer);
    WriteFinalizers(meta, std::move(done));
  }

  void SetFinalizing(std::string what) {
    if (finalizing == what) return;
    Log(Severity::kInfo, "the resource is being deleted", {{"step", what}});
    finalizing = std::move(what);
    StatusSoon();
    queue.AddAfter(std::string(kResourceKey), options.settle);
  }

  void CleanNodes(kube::KeyedQueue::Done done) {
    SetFinalizing("labels, annotations and conditions are being removed from the nodes");
    if (cleaner != nullptr) return done(Status::Ok());
    cleaner = std::make_unique<NodeCleaner>(
        context.client, context.before_send,
        [this, done = std::move(done)](const Status& status, size_t cleaned) {
          nodes_clean = status.ok();
          if (nodes_clean) Log(Severity::kInfo, "cleaned the nodes", {{"nodes", cleaned}});
          clean_error = status;
          done(status);
          // Not inside the cleaner's call.
          context.client.runner().Post([this, weak = weak_from_this()] {
            if (weak.expired() || ended) return;
            cleaner.reset();
            // After an error the queue retries by itself, later.
            if (nodes_clean) queue.Add(std::string(kResourceKey));
          });
        });
  }

  // --- The status.
  void StatusSoon() {
    if (!ended) queue.AddAfter(std::string(kStatusKey), options.status_delay);
  }

  // Thousands of nodes are looked at only after one of them, or of their agents, has changed.
  const NodeHealth& Health() {
    if (health && health_keeps_off == keeps_off) return *health;
    NodeHealthCollector collector(keeps_off);
    pods->ForEach([&](const AgentPodState& pod) { collector.AddPod(pod); });
    nodes->ForEach([&](const GpuNodeState& node) { collector.AddNode(node); });
    health = collector.Take();
    health_keeps_off = keeps_off;
    return *health;
  }

  StatusInput Input() {
    StatusInput input{.generation = generation, .spec = spec_error, .deleting = finalizing};
    input.components = objects->Reports();
    if (definition != nullptr) {
      for (ComponentReport& report : definition->Reports()) {
        if (report.state == ComponentState::kFailed) input.components.push_back(std::move(report));
      }
    }
    input.nodes = Health();
    if (drivers != nullptr) input.drivers = drivers->report();
    if (input.drivers) AddDriverProblems(*input.drivers, &input.nodes);
    input.unseen = Unseen();
    if (input.drivers && input.unseen.empty()) input.unseen = input.drivers->unseen;
    if (!clean_error.ok()) input.unseen = "cannot clean the nodes: " + clean_error.message();
    if (keeps_off) {
      input.coexistence = fmt::format(
          "ClusterPolicy {} of NVIDIA's operator manages {} nodes, which get no agent: label a "
          "node "
          "{}=false to move it, or annotate this resource with {}=true to take all of them",
          policy, input.nodes.of_nvidia, names::kLabelDeployDevicePlugin,
          names::kAnnotationAdoptNvidiaNodes);
    }
    return input;
  }

  std::string Unseen() const {
    for (const auto& [name, error] :
         {std::pair<const char*, const Status&>{"nodes", node_handler->error},
          {"the agents' pods", pod_handler->error},
          {"ClusterPolicies", policy_error}}) {
      if (!error.ok()) return fmt::format("cannot watch {}: {}", name, error.message());
    }
    return objects->Unseen();
  }

  void WriteStatus(kube::KeyedQueue::Done done) {
    const MonotonicTime began = Now();
    const kube::JsonObject* resource = Resource();
    const bool nodes_known = nodes->synced() || !node_handler->error.ok();
    const bool pods_known = pods->synced() || !pod_handler->error.ok();
    // Before the first rendering there is nothing to say.
    if (resource == nullptr || !nodes_known || !pods_known || generation == 0) {
      return done(Status::Ok());
    }
    // A new leader applies all objects once, mostly without a change: not worth a status.
    if (finalizing.empty() && spec_error.ok() && !objects->settled() && Now() < applied_by) {
      StatusSoon();
      return done(Status::Ok());
    }
    const Json* previous = resource->value.Find("status");
    last_input = Input();
    Json status = StatusOf(*last_input, previous, context.client.runner().clock().WallNow());
    const std::string text = CanonicalText(status);
    context.metrics.reconcile.Observe(Now() - began);
    const bool written = text == written_text && resource->meta.resource_version == written_over;
    const bool stands = previous != nullptr && CanonicalText(*previous) == text;
    if (stands) TellPublished(last_input->drivers);
    if (written || stands) return done(Status::Ok());
    std::vector<StatusChange> changes = ChangesBetween(previous, status);
    written_text = text;
    written_over = resource->meta.resource_version;
    SendStatus(*resource, std::move(status), std::move(changes), std::move(done));
  }

  void TellPublished(const std::optional<FleetReport>& report) {
    if (drivers != nullptr && report) drivers->OnPublished(*report);
  }

  void SendStatus(const kube::JsonObject& resource, Json status, std::vector<StatusChange> changes,
                  kube::KeyedQueue::Done done) {
    const Json body = Json::MakeObject(
        {{"apiVersion", Json::String(ApiVersionOfResource())},
         {"kind", Json::String(names::kResourceKind)},
         {"metadata", Json::MakeObject({{"name", Json::String(resource.meta.name)},
                                        {"uid", Json::String(resource.meta.uid.view())}})},
         {"status", std::move(status)}});
    status_write = context.client.Apply(
        kTesseras, body,
        {.field_manager = std::string(names::kOperator),
         .force = true,
         .subresource = "status",
         .before_send = context.before_send},
        [this, changes = std::move(changes), report = last_input->drivers,
         done = std::move(done)](const Result<Json>& answer) {
          if (answer.status().code() == Code::kNotFound) return done(Status::Ok());
          if (!answer.ok()) {
            written_text.clear();
            Log(Severity::kWarning, "cannot write the status, retrying",
                {{"error", answer.status().ToString()}});
            return done(answer.status());
          }
          context.metrics.status_writes.Add();
          TellPublished(report);
          for (const StatusChange& change : changes) {
            Record(change.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal,
                   change.reason, change.message);
          }
          done(Status::Ok());
        });
  }

  MonotonicTime Now() const { return context.client.runner().clock().Now(); }

  const Context context;
  const Rendering rendering;
  const ControllerOptions options;
  kube::TypeCatalog types{context.client};
  std::optional<ChangeHandler<kube::JsonObject>> resource_handler;
  std::optional<ChangeHandler<GpuNodeState>> node_handler;
  std::optional<ChangeHandler<AgentPodState>> pod_handler;
  std::optional<kube::Informer<kube::JsonObject>> resources;
  std::optional<kube::Informer<GpuNodeState>> nodes;
  std::optional<kube::Informer<AgentPodState>> pods;
  bool ended = false;
  bool policies_known = false;
  bool keeps_off = false;
  std::string policy;  // name of NVIDIA's ClusterPolicy; "": there is none
  Status policy_error;
  int64_t generation = 0;   // of the resource that was rendered last
  std::string wanted_text;  // what was rendered last
  Status spec_error;
  MonotonicTime applied_by{};  // when the status says which objects are not applied yet
  std::string finalizing;      // step of the deletion; "": not being deleted
  bool releasing = false;      // the drivers
  bool removing = false;       // the agents
  bool nodes_clean = false;
  Status clean_error;
  std::optional<NodeHealth> health;  // nullopt: nodes or pods have changed
  bool health_keeps_off = false;
  std::optional<StatusInput> last_input;
  std::string written_text;  // status that was written last, over this version
  std::string written_over;
  kube::Operation policies_read, finalizer_write, status_write;
  std::unique_ptr<NodeCleaner> cleaner;
  kube::KeyedQueue queue{
      context.client.runner(),
      {.max_running = 2, .longest_wait = std::chrono::seconds(30)},
      [this](const std::string& key, kube::KeyedQueue::Done done) { Work(key, std::move(done)); }};
  std::unique_ptr<ObjectSet> objects, definition;
  std::unique_ptr<DriverController> drivers;  // null: none are managed
  std::string drivers_text;                   // the spec whose drivers are wanted
};

Controller::Controller(Context context, Rendering rendering, ControllerOptions options)
    : core_(std::make_shared<Core>(std::move(context), std::move(rendering), std::move(options))) {
  core_->Start();
}

Controller::~Controller() {
  core_->ended = true;
  core_->policies_read.Cancel();
  core_->finalizer_write.Cancel();
  core_->status_write.Cancel();
  core_->cleaner.reset();
  core_->drivers.reset();
  core_->objects.reset();
  core_->definition.reset();
  core_->pods.reset();
  core_->nodes.reset();
  core_->resources.reset();
}

bool Controller::synced() const {
  return core_->resources->synced() && core_->nodes->synced() && core_->pods->synced() &&
         core_->policies_known;
}

std::optional<StatusInput> Controller::status() const {
  return core_->Resource() == nullptr ? std::nullopt : core_->last_input;
}

void Controller::ReconcileForTest() {
  core_->queue.Add(std::string(kResourceKey));
  core_->queue.Add(std::string(kStatusKey));
}

}  // namespace tessera::operators
