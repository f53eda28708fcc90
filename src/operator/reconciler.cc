// SPDX-License-Identifier: Apache-2.0
#include "src/operator/reconciler.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/components/cluster_policy.h"

namespace tessera::operators {
namespace {

constexpr kube::ResourceType kClusterPolicies{"nvidia.com", "v1", "clusterpolicies", false};

std::string NameOfFirst(const kube::ListPage& page) {
  const Json* object = page.items.empty() ? nullptr : page.items.front().json();
  return object == nullptr ? "" : TextAt(*object, {"metadata", "name"});
}

kube::OwnerReference OwnerOf(const kube::ObjectMeta& meta) {
  return {.api_version = std::string(names::kCustomResourceApiVersion),
          .kind = std::string(names::kCustomResourceKind),
          .name = meta.name,
          .uid = meta.uid};
}

Json SpecOf(const kube::JsonObject& resource) {
  const Json* spec = resource.value.Find("spec");
  return spec == nullptr ? Json() : *spec;
}

bool AdoptsNodesOfNvidia(const kube::ObjectMeta& meta) {
  return ValueAt(meta.annotations, names::kAnnotationAdoptNvidiaNodes) == "true";
}

// Calls a function of Rendering with the spec of the deleted resource. If the spec is invalid,
// drivers and agents come from an earlier spec; the result for the default spec is then the best
// guess.
template <typename T>
std::vector<T> RenderAtDeletion(const std::function<Result<std::vector<T>>(const Json&)>& render,
                                const Json& spec) {
  if (!render) return {};
  Result<std::vector<T>> rendered = render(spec);
  if (!rendered.ok()) rendered = render(Json());
  return rendered.ok() ? *std::move(rendered) : std::vector<T>();
}

}  // namespace

ClusterPolicyReader::ClusterPolicyReader(kube::Client& client, Duration interval,
                                         std::function<void()> on_read)
    : client_(client), interval_(interval), on_read_(std::move(on_read)) {
  Read();
}

void ClusterPolicyReader::Read() {
  read_ = client_.List({.type = kClusterPolicies, .limit = 1, .metadata_only = true},
                       [this](const Result<kube::ListPage>& page) {
                         const bool no_definition = page.status().code() == Code::kNotFound;
                         error_ = no_definition ? Status::Ok() : page.status();
                         known_ |= error_.ok();
                         if (page.ok()) name_ = NameOfFirst(*page);
                         if (no_definition) name_.clear();
                         client_.runner().PostDelayed(interval_, [this, weak = weak_.Get()] {
                           if (weak) Read();
                         });
                         on_read_();
                       });
}

Reconciler::Reconciler(const ClusterAccess& access, const Rendering& rendering,
                       const ControllerOptions& options, Delegate& delegate)
    : access_(access),
      rendering_(rendering),
      options_(options),
      delegate_(delegate),
      types_(access.client),
      policies_(access.client, options.cluster_policy_period,
                [this] { delegate_.OnReconcileDue(Duration::zero()); }) {
  objects_ = NewSet(rendering_.one_of_each_kind);
  if (!rendering_.definition.is_null()) {
    definition_ = NewSet({});
    definition_->SetWanted({{"definition", {rendering_.definition}}}, {});
  }
  if (rendering_.pools) {
    drivers_ =
        std::make_unique<DriverController>(access_, DriverController::Options{.ns = options_.ns},
                                           static_cast<DriverController::Delegate&>(*this));
  }
}

std::unique_ptr<ObjectSet> Reconciler::NewSet(std::vector<Json> one_of_each_kind) {
  return std::make_unique<ObjectSet>(
      access_.client, types_,
      ObjectSet::Options{.one_of_each_kind = std::move(one_of_each_kind),
                         .prune_delay = options_.prune_delay,
                         .before_send = access_.before_send},
      access_.metrics, static_cast<ObjectSet::Delegate&>(*this));
}

void Reconciler::OnObjectsChanged() {
  delegate_.OnReportChanged();
  if (is_removing()) delegate_.OnReconcileDue(Duration::zero());
}

void Reconciler::OnRepair(const std::string& component, const std::string& description) {
  Log(Severity::kInfo, "restored an object", {{"component", component}, {"what", description}});
  delegate_.OnEvent(kube::EventKind::kNormal, "Restored", description);
}

void Reconciler::OnDriversChanged() {
  delegate_.OnReportChanged();
  delegate_.OnReconcileDue(Duration::zero());
}

void Reconciler::Reconcile(const kube::JsonObject* resource, bool agents_run,
                           kube::KeyedQueue::Done done) {
  const MonotonicTime began = Now();
  if (resource == nullptr) {
    // The garbage collector deletes the resource's objects by their owner references.
    removal_.reset();
    generation_ = 0;
    return done(Status::Ok());
  }
  kube::MetadataObject meta;
  (void)kube::DecodeObject(kube::RawObject(resource->value), {}, &meta);
  const bool has_finalizer = std::find(meta.finalizers.begin(), meta.finalizers.end(),
                                       names::kOperatorFinalizer) != meta.finalizers.end();
  if (meta.meta.deleting) {
    if (!has_finalizer) return done(Status::Ok());
    return Remove(meta, SpecOf(*resource), agents_run, std::move(done));
  }
  if (!has_finalizer) {
    // The finalizer is set before the first object is created, so that no object is left behind.
    meta.finalizers.emplace_back(names::kOperatorFinalizer);
    return WriteFinalizers(meta, std::move(done));
  }
  // The previous resource may have been deleted and created again between two calls.
  removal_.reset();
  Render(*resource, meta);
  access_.metrics.reconcile.Observe(Now() - began);
  delegate_.OnReportChanged();
  done(Status::Ok());
}

void Reconciler::Render(const kube::JsonObject& resource, const kube::MetadataObject& meta) {
  generation_ = meta.generation;
  keeps_off_nvidia_nodes_ = !policies_.name().empty() && !AdoptsNodesOfNvidia(resource.meta);
  const Json spec = SpecOf(resource);
  if (spec.is_null()) {
    // The API server drops the spec if the resource is written while its definition has no schema.
    return SetSpecError(
        Error(Code::kInvalidArgument,
              "spec is missing: write it again, or \"spec: {{}}\" for the defaults"));
  }
  if (Status status = SetDriverPools(spec); !status.ok()) return SetSpecError(std::move(status));
  // Rendering without the driver's DaemonSets would delete the existing ones.
  if (drivers_ != nullptr && !drivers_->ready()) return;
  std::string text =
      fmt::format("{} {} {}", resource.meta.uid.str(), keeps_off_nvidia_nodes_, spec.Serialize());
  for (const Json& object : DriverObjects()) text += object.Serialize();
  if (text == rendered_input_) {
    spec_error_ = Status::Ok();
    return;
  }
  auto components = rendering_.render(spec);
  if (!components.ok()) return SetSpecError(components.status());
  spec_error_ = Status::Ok();
  rendered_input_ = std::move(text);
  if (keeps_off_nvidia_nodes_) components::KeepOffNvidiaNodes(&*components);
  AddDriverObjects(&*components);
  objects_->SetWanted(*std::move(components), OwnerOf(resource.meta));
  apply_deadline_ = Now() + 5 * options_.prune_delay;
}

void Reconciler::SetSpecError(Status status) {
  if (spec_error_.message() != status.message()) {
    Log(Severity::kWarning, "the spec is invalid, keeping the objects of the last valid one",
        {{"error", status.message()}});
  }
  spec_error_ = std::move(status);
}

Status Reconciler::SetDriverPools(const Json& spec) {
  if (drivers_ == nullptr) return Status::Ok();
  const std::string text = spec.Serialize();
  if (text == drivers_spec_text_) return Status::Ok();
  ASSIGN_OR_RETURN(std::vector<driver::FleetPool> pools, rendering_.pools(spec));
  drivers_spec_text_ = text;
  drivers_->SetPools(std::move(pools));
  return Status::Ok();
}

std::vector<Json> Reconciler::DriverObjects() const {
  return drivers_ == nullptr ? std::vector<Json>() : drivers_->objects();
}

void Reconciler::AddDriverObjects(std::vector<components::Component>* components) const {
  const std::vector<Json> objects = DriverObjects();
  if (objects.empty()) return;
  auto found =
      std::ranges::find(*components, components::kDriverComponent, &components::Component::name);
  if (found == components->end()) {
    found = components->insert(found, {std::string(components::kDriverComponent), {}});
  }
  found->objects.insert(found->objects.end(), objects.begin(), objects.end());
}

void Reconciler::WriteFinalizers(const kube::MetadataObject& meta, kube::KeyedQueue::Done done) {
  const kube::ObjectRef ref{kube::kTesseras, meta.meta.name, "", ""};
  finalizer_write_ = access_.client.Patch(
      ref, kube::PatchKind::kMerge,
      kube::FinalizersPatch(meta.finalizers, meta.meta.resource_version),
      {.field_manager = std::string(names::kOperator), .before_send = access_.before_send},
      [done = std::move(done)](const Result<Json>& answer) {
        const Code code = answer.status().code();
        // After a conflict the watch delivers the newer version.
        done(code == Code::kAborted || code == Code::kNotFound ? Status::Ok() : answer.status());
      });
}

void Reconciler::Remove(kube::MetadataObject meta, const Json& spec, bool agents_run,
                        kube::KeyedQueue::Done done) {
  generation_ = meta.generation;
  if (removal_ == nullptr) {
    drivers_spec_text_.clear();
    removal_ = MakeRemoval(meta.meta, spec);
  }
  if (!removal_->Advance(agents_run)) return done(Status::Ok());
  std::erase(meta.finalizers, names::kOperatorFinalizer);
  WriteFinalizers(meta, std::move(done));
}

std::unique_ptr<Removal> Reconciler::MakeRemoval(const kube::ObjectMeta& meta, const Json& spec) {
  Removal::Parts parts{
      .access = access_,
      .types = types_,
      .objects = *objects_,
      .drivers = drivers_.get(),
      .on_progress =
          [this](Duration wait) {
            delegate_.OnReportChanged();
            delegate_.OnReconcileDue(wait);
          },
      .on_warning =
          [this](const std::string& message) {
            Log(Severity::kWarning, "the deletion is not complete", {{"why", message}});
            delegate_.OnEvent(kube::EventKind::kWarning, "EngineNotCleaned", message);
          }};
  const std::string scheduler(names::kScheduler);
  return std::make_unique<Removal>(
      std::move(parts),
      Removal::Inputs{OwnerOf(meta),
                      RenderAtDeletion(rendering_.pools, spec),
                      RenderAtDeletion(rendering_.cleanup, spec),
                      {{kube::kEndpointSlices, scheduler, options_.ns, ""},
                       {kube::kLeases, scheduler, options_.ns, ""}}},
      options_.cleanup_timeout);
}

bool Reconciler::is_applying() const {
  if (is_removing() || !spec_error_.ok()) return false;
  if (drivers_ != nullptr && !drivers_->ready()) return !drivers_->has_access_error();
  return !objects_->all_applied() && Now() < apply_deadline_;
}

const std::string& Reconciler::respected_policy() const {
  static const std::string kNone;
  return keeps_off_nvidia_nodes_ ? policies_.name() : kNone;
}

StatusInput Reconciler::Report() const {
  StatusInput report{.generation = generation_, .spec_status = spec_error_};
  if (is_removing()) report.deletion_waits_for = removal_->step();
  report.components = objects_->Reports();
  if (definition_ != nullptr) {
    for (ComponentReport& component : definition_->Reports()) {
      if (component.state == ComponentState::kFailed) {
        report.components.push_back(std::move(component));
      }
    }
  }
  if (drivers_ != nullptr) report.drivers = drivers_->report();
  report.access_error = policies_.error().ok() ? objects_->WatchError()
                                               : fmt::format("cannot watch ClusterPolicies: {}",
                                                             policies_.error().message());
  if (report.drivers && report.access_error.empty())
    report.access_error = report.drivers->access_error;
  return report;
}

void Reconciler::OnPublished(const StatusInput& status) {
  if (drivers_ != nullptr && status.drivers) drivers_->OnPublished(*status.drivers);
}

}  // namespace tessera::operators
