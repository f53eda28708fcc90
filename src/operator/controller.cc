// SPDX-License-Identifier: Apache-2.0
#include "src/operator/controller.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/components/cluster_policy.h"
#include "src/kube/keyed_queue.h"
#include "src/kube/metadata_object.h"
#include "src/kube/type_catalog.h"
#include "src/operator/change_handler.h"
#include "src/operator/cluster_policy_reader.h"
#include "src/operator/driver_controller.h"
#include "src/operator/object_set.h"
#include "src/operator/removal.h"
#include "src/operator/status_writer.h"
#include "src/operator/tessera_resource.h"

namespace tessera::operators {
namespace {

constexpr std::string_view kResourceKey = "resource";
constexpr std::string_view kStatusKey = "status";

}  // namespace

struct Controller::Core : ObjectSet::Delegate, DriverController::Delegate {
  Core(ClusterAccess a, Rendering r, ControllerOptions o)
      : access(std::move(a)), rendering(std::move(r)), options(std::move(o)) {}

  void Start() {
    const auto changed = [this] { queue.Add(std::string(kResourceKey)); };
    const auto nodes_changed = [this] {
      health.reset();
      StatusSoon();
    };
    resource_handler.emplace(access.metrics, "tesseras", changed);
    node_handler.emplace(access.metrics, "nodes", nodes_changed);
    pod_handler.emplace(access.metrics, "pods", [this] {
      health.reset();
      OnObjectsChanged();
    });
    const auto none = [](std::string_view) { return false; };
    resources.emplace(access.client, kube::ListQuery{.type = kTesseras}, kube::Keep{},
                      *resource_handler);
    nodes.emplace(access.client, kube::ListQuery{}, KeepOfNodes(), *node_handler);
    pods.emplace(
        access.client,
        kube::ListQuery{.ns = options.ns, .label_selector = std::string(names::kAgentSelector)},
        kube::Keep{.label = none, .annotation = none, .resource = none}, *pod_handler);
    objects = NewSet(ExamplesOf(rendering));
    if (!rendering.definition.is_null()) {
      definition = NewSet({});
      definition->SetWanted({{"definition", {rendering.definition}}}, {});
    }
    if (rendering.pools) {
      drivers = std::make_unique<DriverController>(
          access, DriverController::Options{.ns = options.ns, .poll = options.driver_poll},
          static_cast<DriverController::Delegate&>(*this));
    }
    policies.emplace(access.client, options.resync, changed);
    writer.emplace(access.client, access.before_send, access.metrics,
                   [this](const StatusInput& input, const std::vector<StatusChange>& changes) {
                     OnStatusPublished(input, changes);
                   });
  }

  std::unique_ptr<ObjectSet> NewSet(std::vector<Json> examples) {
    return std::make_unique<ObjectSet>(
        access.client, types,
        ObjectSet::Options{.label_selector = std::string(names::kPartOfSelector),
                           .examples = std::move(examples),
                           .settle = options.settle,
                           .before_send = access.before_send},
        access.metrics, static_cast<ObjectSet::Delegate&>(*this));
  }

  // --- What others say.
  void OnObjectsChanged() override {
    StatusSoon();
    if (removal != nullptr) queue.Add(std::string(kResourceKey));
  }

  void OnRepair(const std::string& component, const std::string& what) override {
    Log(Severity::kInfo, "restored an object", {{"component", component}, {"what", what}});
    Record(kube::EventKind::kNormal, "Restored", what);
  }

  void OnDriversChanged() override {
    StatusSoon();
    queue.Add(std::string(kResourceKey));
  }

  const kube::JsonObject* Resource() const {
    return resources ? resources->Find(std::string(names::kResourceName)) : nullptr;
  }

  void Record(kube::EventKind kind, std::string_view reason, const std::string& message) {
    const kube::JsonObject* resource = Resource();
    if (resource == nullptr) return;
    access.events.Record({.api_version = ApiVersionOfTessera(),
                          .kind = std::string(names::kResourceKind),
                          .name = resource->meta.name,
                          .uid = resource->meta.uid},
                         kind, reason, message);
  }

  void Work(const std::string& key, kube::KeyedQueue::Done done) {
    if (key == kStatusKey) return WriteStatus(std::move(done));
    Reconcile(std::move(done));
  }

  // --- The resource.
  void Reconcile(kube::KeyedQueue::Done done) {
    const MonotonicTime began = Now();
    const kube::JsonObject* resource = Resource();
    if (!resources->synced() || !policies->known()) return done(Status::Ok());
    if (resource == nullptr) {
      // The garbage collector deletes the resource's objects by their owner references.
      removal.reset();
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
      return Remove(meta, std::move(done));
    }
    if (!has_finalizer) {
      // The finalizer is set before the first object is created, so that no object is left behind.
      meta.finalizers.emplace_back(names::kOperatorFinalizer);
      return WriteFinalizers(meta, std::move(done));
    }
    // The previous resource may have been deleted and created again between two calls.
    removal.reset();
    Render(*resource, meta);
    access.metrics.reconcile.Observe(Now() - began);
    StatusSoon();
    done(Status::Ok());
  }

  static kube::OwnerReference OwnerOf(const kube::ObjectMeta& meta) {
    return {.api_version = ApiVersionOfTessera(),
            .kind = std::string(names::kResourceKind),
            .name = meta.name,
            .uid = meta.uid};
  }

  bool KeepsOff(const kube::ObjectMeta& meta) const {
    if (policies->name().empty()) return false;
    const auto adopt = meta.annotations.find(names::kAnnotationAdoptNvidiaNodes);
    return adopt == meta.annotations.end() || adopt->second != "true";
  }

  void Render(const kube::JsonObject& resource, const kube::MetadataObject& meta) {
    generation = meta.generation;
    keeps_off = KeepsOff(resource.meta);
    const Json* found = resource.value.Find("spec");
    const Json spec = found == nullptr ? Json() : *found;
    if (Status status = WantDrivers(spec); !status.ok()) return SetSpecError(std::move(status));
    // Rendering without the driver's DaemonSets would delete the existing ones.
    if (drivers != nullptr && !drivers->ready()) return;
    std::string text =
        fmt::format("{} {} {}", resource.meta.uid.str(), keeps_off, spec.Serialize());
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

  void WriteFinalizers(const kube::MetadataObject& meta, kube::KeyedQueue::Done done) {
    const kube::ObjectRef ref{kTesseras, meta.meta.name, "", ""};
    finalizer_write = access.client.Patch(
        ref, kube::PatchKind::kMerge,
        kube::FinalizersPatch(meta.finalizers, meta.meta.resource_version),
        {.field_manager = std::string(names::kOperator), .before_send = access.before_send},
        [done = std::move(done)](const Result<Json>& answer) {
          const Code code = answer.status().code();
          // After a conflict the watch delivers the newer version.
          done(code == Code::kAborted || code == Code::kNotFound ? Status::Ok() : answer.status());
        });
  }

  void Remove(kube::MetadataObject meta, kube::KeyedQueue::Done done) {
    generation = meta.generation;
    if (removal == nullptr) {
      drivers_text.clear();
      removal = std::make_unique<Removal>(
          Removal::Parts{
              .access = access,
              .types = types,
              .objects = *objects,
              .drivers = drivers.get(),
              .on_progress =
                  [this](Duration wait) {
                    StatusSoon();
                    queue.AddAfter(std::string(kResourceKey), wait);
                  },
              .on_warning =
                  [this](const std::string& message) {
                    Log(Severity::kWarning, "the deletion is not complete", {{"why", message}});
                    Record(kube::EventKind::kWarning, "EngineNotCleaned", message);
                  }},
          Removal::Wanted{OwnerOf(meta.meta), AtDeletion(rendering.pools),
                          AtDeletion(rendering.cleanup)},
          options.cleanup_patience);
    }
    if (!removal->Advance(pods->size() > 0 || !pods->synced())) return done(Status::Ok());
    std::erase(meta.finalizers, names::kOperatorFinalizer);
    WriteFinalizers(meta, std::move(done));
  }

  // The result of a function of the rendering for the deleted spec. If the spec is invalid, drivers
  // and agents come from an earlier spec; then the result for the default spec is the best guess.
  template <typename T>
  std::vector<T> AtDeletion(
      const std::function<Result<std::vector<T>>(const Json&)>& render) const {
    if (!render) return {};
    const Json* spec = Resource()->value.Find("spec");
    Result<std::vector<T>> rendered = render(spec == nullptr ? Json() : *spec);
    if (!rendered.ok()) rendered = render(Json());
    return rendered.ok() ? *std::move(rendered) : std::vector<T>();
  }

  // --- The status.
  void StatusSoon() { queue.AddAfter(std::string(kStatusKey), options.status_delay); }

  // Collects the health of thousands of nodes only after a node or an agent's pod has changed.
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
    StatusInput input{.generation = generation, .spec = spec_error};
    if (removal != nullptr) input.deleting = removal->step();
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
    if (removal != nullptr && !removal->error().ok()) {
      input.unseen = "cannot clean the nodes: " + removal->error().message();
    }
    if (keeps_off) {
      input.coexistence = fmt::format(
          "ClusterPolicy {} of NVIDIA's operator manages {} nodes, which get no agent: label a "
          "node {}=false to move it, or annotate this resource with {}=true to take all of them",
          policies->name(), input.nodes.of_nvidia, names::kLabelDeployDevicePlugin,
          names::kAnnotationAdoptNvidiaNodes);
    }
    return input;
  }

  std::string Unseen() const {
    for (const auto& [name, error] :
         {std::pair<const char*, const Status&>{"nodes", node_handler->error},
          {"the agents' pods", pod_handler->error},
          {"ClusterPolicies", policies->error()}}) {
      if (!error.ok()) return fmt::format("cannot watch {}: {}", name, error.message());
    }
    return objects->Unseen();
  }

  void WriteStatus(kube::KeyedQueue::Done done) {
    const MonotonicTime began = Now();
    const kube::JsonObject* resource = Resource();
    const bool nodes_known = nodes->synced() || !node_handler->error.ok();
    const bool pods_known = pods->synced() || !pod_handler->error.ok();
    // Before the first rendering the status is unknown.
    if (resource == nullptr || !nodes_known || !pods_known || generation == 0) {
      return done(Status::Ok());
    }
    // A new leader applies all objects once, mostly without a change, so these applies change no
    // status.
    if (removal == nullptr && spec_error.ok() && !objects->settled() && Now() < applied_by) {
      StatusSoon();
      return done(Status::Ok());
    }
    last_input = Input();
    writer->Write(*resource, *last_input, std::move(done));
    access.metrics.reconcile.Observe(Now() - began);
  }

  void OnStatusPublished(const StatusInput& input, const std::vector<StatusChange>& changes) {
    if (drivers != nullptr && input.drivers) drivers->OnPublished(*input.drivers);
    for (const StatusChange& change : changes) {
      Record(change.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal, change.reason,
             change.message);
    }
  }

  MonotonicTime Now() const { return access.client.runner().clock().Now(); }

  const ClusterAccess access;
  const Rendering rendering;
  const ControllerOptions options;
  kube::TypeCatalog types{access.client};
  std::optional<ChangeHandler<kube::JsonObject>> resource_handler;
  std::optional<ChangeHandler<GpuNodeState>> node_handler;
  std::optional<ChangeHandler<AgentPodState>> pod_handler;
  std::optional<kube::Informer<kube::JsonObject>> resources;
  std::optional<kube::Informer<GpuNodeState>> nodes;
  std::optional<kube::Informer<AgentPodState>> pods;
  std::optional<ClusterPolicyReader> policies;
  bool keeps_off = false;
  int64_t generation = 0;   // of the resource that was rendered last
  std::string wanted_text;  // what was rendered last
  Status spec_error;
  MonotonicTime applied_by{};        // when the status says which objects are not applied yet
  std::optional<NodeHealth> health;  // nullopt: nodes or pods have changed since it was collected
  bool health_keeps_off = false;
  std::optional<StatusInput> last_input;
  std::optional<StatusWriter> writer;
  kube::Operation finalizer_write;
  kube::KeyedQueue queue{
      access.client.runner(),
      {.max_running = 2, .longest_wait = std::chrono::seconds(30)},
      [this](const std::string& key, kube::KeyedQueue::Done done) { Work(key, std::move(done)); }};
  std::unique_ptr<ObjectSet> objects, definition;
  std::unique_ptr<DriverController> drivers;  // null: drivers are not managed
  std::string drivers_text;                   // the spec whose drivers are wanted
  std::unique_ptr<Removal> removal;           // null: the resource is not being deleted
};

Controller::Controller(ClusterAccess access, Rendering rendering, ControllerOptions options)
    : core_(std::make_unique<Core>(std::move(access), std::move(rendering), std::move(options))) {
  core_->Start();
}

Controller::~Controller() = default;

bool Controller::synced() const {
  return core_->resources->synced() && core_->nodes->synced() && core_->pods->synced() &&
         core_->policies->known();
}

std::optional<StatusInput> Controller::status() const {
  return core_->Resource() == nullptr ? std::nullopt : core_->last_input;
}

void Controller::ReconcileForTest() {
  core_->queue.Add(std::string(kResourceKey));
  core_->queue.Add(std::string(kStatusKey));
}

}  // namespace tessera::operators
