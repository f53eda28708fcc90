// SPDX-License-Identifier: Apache-2.0
#include "src/operator/object_set.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"

namespace tessera::operators {
namespace {

constexpr std::string_view kPruneKey = "//prune";  // no component has this key
// Waits after a failed apply or deletion.
constexpr Duration kFirstRetry = std::chrono::milliseconds(200);
constexpr Duration kLongestRetry = std::chrono::seconds(30);

}  // namespace

// The applies of one component, one after the other.
struct ObjectSet::ComponentRun {
  std::string component;
  std::deque<std::string> keys;
  kube::KeyedQueue::Done done;
  Status error;
  // The object that is being applied:
  std::string text;
  bool drifted = false;
  std::string old_version;  // resourceVersion before the apply; "": the object does not exist
};

ObjectSet::ObjectSet(kube::Client& client, kube::TypeCatalog& types, Options options,
                     OperatorMetrics& metrics, Delegate& delegate)
    : client_(client),
      types_(types),
      options_(std::move(options)),
      metrics_(metrics),
      delegate_(delegate),
      watches_(client, types, metrics, static_cast<ObjectWatches::Delegate&>(*this)),
      wanted_(watches_, client.runner().clock()),
      queue_(client.runner(),
             {.max_running = 16, .first_wait = kFirstRetry, .longest_wait = kLongestRetry},
             [this](const std::string& key, kube::KeyedQueue::Done done) {
               Work(key, std::move(done));
             }) {
  for (const Json& example : options_.one_of_each_kind) watches_.Follow(example);
}

ObjectSet::~ObjectSet() = default;

void ObjectSet::SetWanted(std::vector<components::Component> components,
                          const kube::OwnerReference& owner) {
  owner_ = owner;
  wanted_known_ = true;
  removing_ = false;
  wanted_.Set(std::move(components), owner);
  for (const auto& [key, wanted] : wanted_.objects()) watches_.Follow(wanted.object);
  for (const WantedObjects::WantedComponent& component : wanted_.components())
    queue_.Add(component.name);
  queue_.AddAfter(std::string(kPruneKey), options_.prune_delay);
}

void ObjectSet::RemoveWorkloads(const kube::OwnerReference& owner) {
  Remove(owner, /*workloads_only=*/true);
}

void ObjectSet::RemoveAll(const kube::OwnerReference& owner) {
  Remove(owner, /*workloads_only=*/false);
}

void ObjectSet::Remove(const kube::OwnerReference& owner, bool workloads_only) {
  owner_ = owner;
  removing_ = true;
  removes_workloads_only_ = workloads_only;
  queue_.Add(std::string(kPruneKey));
}

// --- What watches deliver.
void ObjectSet::OnObject(const std::string& key) {
  wanted_.OnDelivered(key);
  const WantedObject* wanted = wanted_.Find(key);
  if (wanted == nullptr || removing_) {
    queue_.AddAfter(std::string(kPruneKey), kFirstRetry);
  } else if (wanted_.HasDrifted(*wanted)) {
    queue_.AddAfter(wanted->component, wanted_.RepairWait(*wanted));
  }
  delegate_.OnObjectsChanged();
}

void ObjectSet::OnScopeSynced(const WatchScope& scope) {
  if (const Duration wait = wanted_.OnListed(scope); wait > Duration::zero()) {
    client_.runner().PostDelayed(wait, [this, scope, weak = weak_.Get()] {
      if (weak) OnScopeSynced(scope);
    });
  }
  // Objects that were deleted while the watch was broken are noticed now.
  for (const WantedObjects::WantedComponent& component : wanted_.components())
    queue_.Add(component.name);
  queue_.AddAfter(std::string(kPruneKey), options_.prune_delay);
  delegate_.OnObjectsChanged();
}

// --- Applying.
void ObjectSet::Work(const std::string& key, kube::KeyedQueue::Done done) {
  if (key == kPruneKey) return Prune(done);
  const WantedObjects::WantedComponent* component = wanted_.FindComponent(key);
  if (component == nullptr || removing_) return done(Status::Ok());
  auto run = std::make_shared<ComponentRun>();
  run->component = key;
  run->keys.assign(component->keys.begin(), component->keys.end());
  run->done = std::move(done);
  ApplyNext(run);
}

void ObjectSet::ApplyNext(const std::shared_ptr<ComponentRun>& run) {
  while (!run->keys.empty()) {
    const std::string key = run->keys.front();
    run->keys.pop_front();
    const WantedObject* wanted = wanted_.Find(key);
    if (wanted == nullptr || removing_) continue;
    watches_.Follow(wanted->object);
    if (wanted_.NeedsApply(*wanted)) return Send(run, key, *wanted);
  }
  operations_.erase(run->component);
  delegate_.OnObjectsChanged();
  run->done(run->error);
}

void ObjectSet::Send(const std::shared_ptr<ComponentRun>& run, const std::string& key,
                     const WantedObject& wanted) {
  const TrackedObject* actual = watches_.Find(wanted.object);
  run->drifted = wanted_.HasDrifted(wanted);
  run->text = wanted.text;
  run->old_version = actual == nullptr ? "" : actual->meta.resource_version;
  const auto send = [this, run, key](const Result<kube::ResourceType>& type) {
    const WantedObject* now = wanted_.Find(key);
    if (now == nullptr) return ApplyNext(run);
    if (!type.ok()) return OnAnswer(run, key, type.status());
    const kube::PatchOptions apply{.field_manager = std::string(names::kOperator),
                                   .force = true,
                                   .before_send = options_.before_send};
    operations_[run->component] =
        client_.Apply(*type, now->object, apply,
                      [this, run, key](const Result<Json>& answer) { OnAnswer(run, key, answer); });
  };
  operations_[run->component] = types_.FindFor(wanted.object, send);
}

void ObjectSet::OnAnswer(const std::shared_ptr<ComponentRun>& run, const std::string& key,
                         const Result<Json>& answer) {
  if (WantedObject* wanted = wanted_.Find(key)) {
    wanted->error = answer.ok() ? RecordApply(*run, wanted, *answer) : answer.status();
    if (!wanted->error.ok()) {
      metrics_.applies.Add("failed");
      Log(Severity::kWarning, "cannot apply an object, retrying",
          {{"object", TitleOf(wanted->object)}, {"error", wanted->error.ToString()}});
      if (run->error.ok()) run->error = wanted->error;
    }
  }
  ApplyNext(run);
}

Status ObjectSet::RecordApply(const ComponentRun& run, WantedObject* wanted, const Json& answer) {
  ASSIGN_OR_RETURN(const ApplyEffect effect,
                   wanted_.OnApplied(wanted, run.text, run.old_version, answer));
  metrics_.applies.Add(effect == ApplyEffect::kUnchanged ? "unchanged"
                       : effect == ApplyEffect::kCreated ? "created"
                                                         : "changed");
  if (!run.drifted || effect == ApplyEffect::kUnchanged) return Status::Ok();
  wanted_.OnRepaired(wanted);
  metrics_.repairs.Add(run.component);
  delegate_.OnRepair(run.component,
                     fmt::format("{} was {}: restored", TitleOf(wanted->object),
                                 effect == ApplyEffect::kCreated ? "deleted" : "edited"));
  return Status::Ok();
}

// --- Deleting.
bool ObjectSet::Owns(const TrackedObject& object) const {
  // Keeps objects that have another owner as well, such as NVIDIA's RuntimeClass.
  return !object.owners.empty() &&
         std::ranges::all_of(object.owners, [&](const kube::OwnerReference& owner) {
           return owner.uid == owner_.uid;
         });
}

void ObjectSet::Prune(const kube::KeyedQueue::Done& done) {
  // Until the first settings are known, no object is superfluous.
  if (owner_.uid.empty() || (!wanted_known_ && !removing_) || !watches_.AllSynced()) {
    return done(Status::Ok());
  }
  auto deletions = std::make_shared<std::deque<PendingDeletion>>();
  watches_.ForEach(
      [&](const WatchScope& scope, const kube::ResourceType& type, const TrackedObject& object) {
        if (object.meta.deleting || !Owns(object)) return;
        const std::string key = KeyOf(scope, object.meta.name);
        const bool wanted = !removing_ && wanted_.Find(key) != nullptr;
        const bool may_delete =
            !removing_ || !removes_workloads_only_ || IsWorkloadOrWebhook(scope.type);
        if (wanted || !may_delete) return;
        deletions->push_back({{type, object.meta.name, object.meta.ns, ""}, object.meta.uid, key});
      });
  DeleteNext(deletions, Status::Ok(), done);
}

void ObjectSet::DeleteNext(const std::shared_ptr<std::deque<PendingDeletion>>& deletions,
                           const Status& error, const kube::KeyedQueue::Done& done) {
  const Status may_write = options_.before_send ? options_.before_send() : Status::Ok();
  if (deletions->empty() || !may_write.ok()) {
    operations_.erase(std::string(kPruneKey));
    prune_error_ = error;
    delegate_.OnObjectsChanged();
    return done(error);
  }
  const PendingDeletion deletion = deletions->front();
  deletions->pop_front();
  // Newer settings may want the object again.
  if (!removing_ && wanted_.Find(deletion.key) != nullptr)
    return DeleteNext(deletions, error, done);
  metrics_.deletions.Add();
  operations_[std::string(kPruneKey)] =
      client_.Delete(deletion.ref, {.uid = deletion.uid, .propagation = kube::kBackgroundDeletion},
                     [this, deletions, error, done](const Result<Json>& answer) {
                       // The object was deleted, or replaced by another object of its name.
                       const bool gone = answer.ok() || answer.status().code() == Code::kNotFound ||
                                         answer.status().code() == Code::kAborted;
                       DeleteNext(deletions, gone || !error.ok() ? error : answer.status(), done);
                     });
}

// --- Reports.
std::vector<ComponentReport> ObjectSet::Reports() const {
  std::vector<ComponentReport> reports;
  for (const WantedObjects::WantedComponent& component : wanted_.components()) {
    reports.push_back(wanted_.ReportOf(component));
  }
  if (!prune_error_.ok()) {
    reports.push_back(
        {"removal", ComponentState::kFailed, ReasonOf(prune_error_),
         "cannot delete an object that the spec no longer has: " + prune_error_.message(), 0});
  }
  return reports;
}

size_t ObjectSet::Remaining(bool workloads_only) const {
  if (!watches_.AllSynced()) return 1;
  const auto counts = [&](const std::string& type) {
    return !workloads_only || IsWorkloadOrWebhook(type);
  };
  // Includes objects that were just applied and that no watch has delivered yet.
  size_t remaining = 0;
  for (const auto& [key, operation] : operations_) remaining += key != kPruneKey ? 1 : 0;
  for (const auto& [key, wanted] : wanted_.objects()) {
    if (wanted.awaits_event && counts(ScopeOf(wanted.object).type)) ++remaining;
  }
  watches_.ForEach([&](const WatchScope& scope, const auto&, const TrackedObject& object) {
    if (Owns(object) && counts(scope.type)) ++remaining;
  });
  return remaining;
}

std::string ObjectSet::WatchError() const { return watches_.WatchError(); }

bool ObjectSet::all_applied() const {
  return wanted_known_ && watches_.AllSynced() && wanted_.AllApplied();
}

}  // namespace tessera::operators
