// SPDX-License-Identifier: Apache-2.0
#include "src/operator/wanted_objects.h"

#include <algorithm>
#include <utility>

#include "api/names.h"

namespace tessera::operators {
namespace {

// After n restorations of an object, the next one waits 2^n times this. kQuietTime without drift
// resets n to 0.
constexpr Duration kFirstRepairWait = std::chrono::milliseconds(50);
constexpr int kMaxRepairs = 10;
constexpr Duration kQuietTime = std::chrono::minutes(10);
// After kContestedRepairs restorations, the object is reported as contested: another client keeps
// changing it. The report ends when the object was not restored for kContestedTime, which is longer
// than any wait between restorations.
constexpr int kContestedRepairs = 5;
constexpr Duration kContestedTime = std::chrono::minutes(2);
// The longest delay of a watch event. A list that arrives later than this after an apply includes
// the result of the apply, so the object need not wait for its event.
constexpr Duration kMaxEventDelay = std::chrono::seconds(10);

}  // namespace

std::string TitleOf(const Json& object) {
  return fmt::format("{} {}", object.StringAt("kind").value_or(""),
                     object.Find("metadata")->StringAt("name").value_or(""));
}

bool IsWorkloadOrWebhook(const std::string& type) {
  for (const std::string_view kind : {"/DaemonSet", "/Deployment", "/MutatingWebhookConfiguration",
                                      "/ValidatingWebhookConfiguration"}) {
    if (type.ends_with(kind)) return true;
  }
  return false;
}

void WantedObjects::Set(std::vector<components::Component> components,
                        const kube::OwnerReference& owner) {
  components_.clear();
  std::map<std::string, WantedObject> before = std::exchange(objects_, {});
  for (components::Component& wanted_component : components) {
    WantedComponent& component =
        components_.emplace_back(WantedComponent{wanted_component.name, {}});
    for (Json& object : wanted_component.objects) {
      if (!owner.uid.empty()) kube::SetOwner(&object, owner);
      const std::string key = KeyOf(object);
      WantedObject wanted;
      if (const auto old = before.find(key); old != before.end()) wanted = std::move(old->second);
      wanted.component = wanted_component.name;
      wanted.text = object.Serialize();
      wanted.object = std::move(object);
      component.keys.push_back(key);
      objects_.insert_or_assign(key, std::move(wanted));
    }
  }
}

const WantedObjects::WantedComponent* WantedObjects::FindComponent(std::string_view name) const {
  const auto found = std::ranges::find(components_, name, &WantedComponent::name);
  return found == components_.end() ? nullptr : &*found;
}

WantedObject* WantedObjects::Find(const std::string& key) {
  const auto found = objects_.find(key);
  return found == objects_.end() ? nullptr : &found->second;
}

bool WantedObjects::HasDrifted(const WantedObject& object) const {
  if (object.applied_text.empty() || object.awaits_event || !watches_.Synced(object.object))
    return false;
  const TrackedObject* actual = watches_.Find(object.object);
  return actual == nullptr || actual->applied_fields != object.fields_digest;
}

bool WantedObjects::NeedsApply(const WantedObject& object) const {
  return object.applied_text != object.text || HasDrifted(object);
}

Duration WantedObjects::RepairWait(const WantedObject& object) const {
  if (clock_.Now() - object.repaired_at > kQuietTime) return kFirstRepairWait;
  return kFirstRepairWait * (1 << std::min(object.repairs, kMaxRepairs));
}

bool WantedObjects::AllApplied() const {
  return std::ranges::all_of(
      objects_, [](const auto& item) { return item.second.applied_text == item.second.text; });
}

void WantedObjects::OnDelivered(const std::string& key) {
  if (WantedObject* object = Find(key)) object->awaits_event = false;
}

Duration WantedObjects::OnListed(const WatchScope& scope) {
  Duration wait = Duration::zero();
  for (auto& [key, object] : objects_) {
    if (!object.awaits_event || ScopeOf(object.object) != scope) continue;
    const Duration remaining = object.applied_at + kMaxEventDelay - clock_.Now();
    object.awaits_event = remaining > Duration::zero();
    if (object.awaits_event) wait = std::max(wait, remaining);
  }
  return wait;
}

Result<ApplyEffect> WantedObjects::OnApplied(WantedObject* object, const std::string& text,
                                             const std::string& version, const Json& answer) const {
  const kube::KeptFields kept{.manager = std::string(names::kOperator)};
  kube::MetadataObject applied;
  RETURN_IF_ERROR(kube::DecodeObject(kube::RawObject(answer), kept, &applied));
  object->applied_text = text;
  // HasDrifted compares the digest with that of the watched object. So if the watch has already
  // delivered this version, its digest is taken.
  const TrackedObject* actual = watches_.Find(object->object);
  const bool seen =
      actual != nullptr && actual->meta.resource_version == applied.meta.resource_version;
  object->fields_digest = seen ? actual->applied_fields : applied.applied_fields;
  object->awaits_event = !seen;
  object->applied_at = clock_.Now();
  if (applied.meta.resource_version == version) return ApplyEffect::kUnchanged;
  return version.empty() ? ApplyEffect::kCreated : ApplyEffect::kChanged;
}

void WantedObjects::OnRepaired(WantedObject* object) const {
  const MonotonicTime now = clock_.Now();
  object->repairs = now - object->repaired_at > kQuietTime ? 1 : object->repairs + 1;
  object->repaired_at = now;
}

bool WantedObjects::IsContested(const WantedObject& object) const {
  return object.repairs >= kContestedRepairs && clock_.Now() - object.repaired_at < kContestedTime;
}

ComponentReport WantedObjects::ReportOf(const WantedComponent& component) const {
  ComponentReport report{component.name, ComponentState::kReady, "Ready", "", 0};
  report.object_count = component.keys.size();
  size_t failed = 0;
  std::string waiting, contested;
  for (const std::string& key : component.keys) {
    const WantedObject& object = objects_.at(key);
    if (contested.empty() && IsContested(object)) contested = TitleOf(object.object);
    if (!object.error.ok() && ++failed == 1) {
      report.reason = ReasonOf(object.error);
      report.message =
          fmt::format("cannot apply {}: {}", TitleOf(object.object), object.error.message());
    }
    if (waiting.empty()) waiting = WhyNotReady(object);
  }
  if (failed > 0) {
    report.state = ComponentState::kFailed;
    if (failed > 1) report.message += fmt::format("; and {} more objects", failed - 1);
    if (report.reason == "Forbidden") {
      report.message += ": give the operator this right, see its ClusterRole tessera-operator";
    }
    return report;
  }
  if (!contested.empty()) {
    report.state = ComponentState::kFailed;
    report.reason = "ObjectContested";
    report.message = fmt::format(
        "another client changes {} again and again: stop the client that its managedFields name, "
        "or change the resource Tessera",
        contested);
    return report;
  }
  if (waiting.empty()) {
    report.message = fmt::format("{} objects are applied and ready", component.keys.size());
    return report;
  }
  report.state = ComponentState::kProgressing;
  report.reason = "NotReady";
  report.message = waiting;
  return report;
}

std::string WantedObjects::WhyNotReady(const WantedObject& object) const {
  const std::string title = TitleOf(object.object);
  if (object.applied_text != object.text) return title + " is being applied";
  const std::string type = ScopeOf(object.object).type;
  if (!IsWorkloadOrWebhook(type) || !type.starts_with("apps/v1/")) return "";
  const TrackedObject* actual = watches_.Find(object.object);
  if (actual == nullptr) return title + " is being created";
  if (!actual->workload || actual->workload->ready()) return "";
  const WorkloadCounts& counts = *actual->workload;
  if (!counts.observed) return title + ": its controller has not seen it yet";
  return fmt::format("{}: {} of {} pods are ready, {} run the newest version", title,
                     counts.available, counts.desired, counts.updated);
}

}  // namespace tessera::operators
