// SPDX-License-Identifier: Apache-2.0
#include "src/operator/object_set.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "api/names.h"
#include "src/base/log.h"
#include "src/kube/informer.h"
#include "src/kube/keyed_queue.h"
#include "src/operator/tracked_object.h"

namespace tessera::operators {
namespace {

constexpr std::string_view kPruneKey = "//prune";  // no component has this name
// Restoring an object waits 2^n times this after n restorations; a quiet time forgets them.
constexpr Duration kFirstRepair = std::chrono::milliseconds(50);
constexpr int kMaxRepairs = 10;
constexpr Duration kQuiet = std::chrono::minutes(10);

std::string TextAt(const Json& object, std::string_view key) {
  return object.StringAt(key).value_or("");
}

std::string MetaText(const Json& object, std::string_view key) {
  const Json* metadata = object.Find("metadata");
  return metadata == nullptr ? "" : metadata->StringAt(key).value_or("");
}

// "apps/v1/DaemonSet".
std::string TypeKey(const Json& object) {
  return TextAt(object, "apiVersion") + "/" + TextAt(object, "kind");
}

// Where an object is watched. Secrets are watched one by one: a watch of all of them could read
// the content of each.
struct Scope {
  std::string type;
  std::string ns;
  std::string name;  // "": all with the label
  auto operator<=>(const Scope&) const = default;
};

Scope ScopeOf(const Json& object) {
  const bool secret = TextAt(object, "kind") == "Secret";
  return {TypeKey(object), MetaText(object, "namespace"), secret ? MetaText(object, "name") : ""};
}

// The objects whose deletion ends pods, or requests that would fail without these pods.
bool GoesFirst(const std::string& type) {
  for (const std::string_view kind : {"/DaemonSet", "/Deployment", "/MutatingWebhookConfiguration",
                                      "/ValidatingWebhookConfiguration"}) {
    if (type.ends_with(kind)) return true;
  }
  return false;
}

}  // namespace

struct ObjectSet::Core : std::enable_shared_from_this<ObjectSet::Core> {
  Core(kube::Client& c, kube::TypeCatalog& t, Options o, OperatorMetrics& m, Delegate& d)
      : client(c), types(t), options(std::move(o)), metrics(m), delegate(&d) {}

  // Follows one type in one namespace.
  struct Follower : kube::Informer<TrackedObject>::Handler {
    Follower(Core& c, Scope s) : core(c), scope(std::move(s)) {}
    void OnAdded(const TrackedObject& now) override { core.OnObject(scope, now.meta); }
    void OnChanged(const TrackedObject&, const TrackedObject& now) override {
      core.OnObject(scope, now.meta);
    }
    void OnRemoved(const TrackedObject& last) override { core.OnObject(scope, last.meta); }
    void OnSynced() override { core.OnSynced(scope); }
    void OnError(const Status& status, Duration) override {
      core.metrics.errors.Add(scope.type);
      const bool is_new = error.code() != status.code();
      error = status;
      if (is_new) core.Changed();
    }
    void OnRecovered() override {
      error = Status::Ok();
      core.Changed();
    }

    Core& core;
    const Scope scope;
    Status error;
    bool resolving = false;
    kube::ResourceType type;
    kube::Operation find;
    std::unique_ptr<kube::Informer<TrackedObject>> informer;  // null until the type is known
  };

  struct Entry {
    Json object;
    std::string text;     // of the object, to see a change of the settings
    std::string applied;  // text that the server has; "": unknown
    uint64_t fields = 0;  // digest of the applied fields, see MetadataObject
    // The watch has not delivered what the last apply wrote, so its state is older than that.
    bool awaits = false;
    int repairs = 0;
    MonotonicTime repaired{};
    Status error;
  };
  struct Group {
    std::string name;
    std::vector<std::string> keys;  // of entries
  };

  static std::string KeyOf(const Scope& scope, const std::string& name) {
    return scope.type + "|" + scope.ns + "|" + name;
  }
  static std::string KeyOf(const Json& object) {
    return KeyOf(ScopeOf(object), MetaText(object, "name"));
  }
  // "DaemonSet tessera-agent".
  static std::string TitleOf(const Json& object) {
    return TextAt(object, "kind") + " " + MetaText(object, "name");
  }

  void Changed() {
    if (delegate != nullptr) delegate->OnObjectsChanged();
  }

  // --- Watches.
  Follower& FollowerFor(const Json& object) {
    Scope scope = ScopeOf(object);
    auto& follower = followers[scope];
    if (follower == nullptr) follower = std::make_unique<Follower>(*this, scope);
    if (follower->informer == nullptr && !follower->resolving) Resolve(*follower, object);
    return *follower;
  }

  void Resolve(Follower& follower, const Json& object) {
    follower.resolving = true;
    follower.find = types.FindFor(
        object, [this, &follower, version = TextAt(object, "apiVersion"),
                 kind = TextAt(object, "kind")](const Result<kube::ResourceType>& type) {
          follower.resolving = false;
          follower.error = type.status();
          if (type.ok()) Follow(follower, *type);
          if (!type.ok()) ResolveLater(follower.scope, version, kind);
          Changed();
        });
  }

  void ResolveLater(const Scope& scope, const std::string& version, const std::string& kind) {
    client.runner().PostDelayed(
        options.longest_retry, [this, weak = weak_from_this(), scope, version, kind] {
          if (weak.expired() || delegate == nullptr) return;
          Follower& follower = *followers.at(scope);
          if (follower.informer != nullptr || follower.resolving) return;
          Resolve(follower, Json::MakeObject({{"apiVersion", Json::String(version)},
                                              {"kind", Json::String(kind)}}));
        });
  }

  void Follow(Follower& follower, const kube::ResourceType& type) {
    const Scope& scope = follower.scope;
    kube::ListQuery query{.type = type, .ns = scope.ns, .label_selector = options.label_selector};
    if (!scope.name.empty()) {
      query.label_selector.clear();
      query.field_selector = "metadata.name=" + scope.name;
    }
    const auto none = [](std::string_view) { return false; };
    follower.type = type;
    follower.informer = std::make_unique<kube::Informer<TrackedObject>>(
        client, std::move(query),
        kube::Keep{.label = none, .annotation = none, .manager = std::string(names::kOperator)},
        follower);
  }

  const TrackedObject* Actual(const std::string& key) const {
    const auto entry = entries.find(key);
    if (entry == entries.end()) return nullptr;
    const Json& object = entry->second.object;
    const auto follower = followers.find(ScopeOf(object));
    if (follower == followers.end() || follower->second->informer == nullptr) return nullptr;
    return follower->second->informer->Find(
        kube::KeyOf(MetaText(object, "namespace"), MetaText(object, "name")));
  }

  bool Synced(const Json& object) const {
    const auto follower = followers.find(ScopeOf(object));
    return follower != followers.end() && follower->second->informer != nullptr &&
           follower->second->informer->synced();
  }

  void OnSynced(const Scope& scope) {
    for (auto& [key, entry] : entries) {
      if (ScopeOf(entry.object) == scope) entry.awaits = false;
    }
    // What was deleted while nothing watched it shows now.
    for (const Group& group : groups) queue.Add(group.name);
    queue.AddAfter(std::string(kPruneKey), options.settle);
    Changed();
  }

  void OnObject(const Scope& scope, const kube::ObjectMeta& meta) {
    const std::string key = KeyOf(scope, meta.name);
    const auto entry = entries.find(key);
    if (entry != entries.end()) entry->second.awaits = false;
    if (entry == entries.end() || removing) {
      queue.AddAfter(std::string(kPruneKey), options.first_retry);
    } else if (!entry->second.applied.empty() && Drifted(key, entry->second)) {
      queue.AddAfter(component_of.at(key), RepairWait(entry->second));
    }
    Changed();
  }

  // --- Applying.
  bool Drifted(const std::string& key, const Entry& entry) const {
    if (entry.awaits || !Synced(entry.object)) return false;
    const TrackedObject* actual = Actual(key);
    return actual == nullptr || actual->applied_fields != entry.fields;
  }

  Duration RepairWait(const Entry& entry) const {
    if (client.runner().clock().Now() - entry.repaired > kQuiet) return kFirstRepair;
    return kFirstRepair * (1 << std::min(entry.repairs, kMaxRepairs));
  }

  void Work(const std::string& key, kube::KeyedQueue::Done done) {
    if (key == kPruneKey) return Prune(std::move(done));
    const auto group = std::find_if(groups.begin(), groups.end(),
                                    [&](const Group& one) { return one.name == key; });
    if (group == groups.end() || removing) return done(Status::Ok());
    auto run = std::make_shared<Run>();
    run->component = key;
    run->keys.assign(group->keys.begin(), group->keys.end());
    run->done = std::move(done);
    ApplyNext(run);
  }

  // The applies of one component, one after the other.
  struct Run {
    std::string component;
    std::deque<std::string> keys;
    kube::KeyedQueue::Done done;
    Status error;
    // Of the object that is being applied.
    std::string text;
    bool drifted = false;
    std::string version;  // before; "": it does not exist
  };

  void ApplyNext(const std::shared_ptr<Run>& run) {
    while (!run->keys.empty()) {
      const std::string key = run->keys.front();
      run->keys.pop_front();
      const auto entry = entries.find(key);
      if (entry == entries.end() || removing) continue;
      FollowerFor(entry->second.object);
      const bool drifted = !entry->second.applied.empty() && Drifted(key, entry->second);
      if (entry->second.applied == entry->second.text && !drifted) continue;
      const TrackedObject* actual = Actual(key);
      run->drifted = drifted;
      run->text = entry->second.text;
      run->version = actual == nullptr ? "" : actual->meta.resource_version;
      return Apply(run, key, entry->second);
    }
    operations.erase(run->component);
    Changed();
    run->done(run->error);
  }

  void Apply(const std::shared_ptr<Run>& run, const std::string& key, const Entry& entry) {
    const auto weak = weak_from_this();
    operations[run->component] =
        types.FindFor(entry.object, [this, weak, run, key](const Result<kube::ResourceType>& type) {
          if (weak.expired()) return;
          const auto found = entries.find(key);
          if (found == entries.end()) return ApplyNext(run);
          if (!type.ok()) return Applied(run, key, type.status());
          Send(run, key, found->second, *type);
        });
  }

  void Send(const std::shared_ptr<Run>& run, const std::string& key, const Entry& entry,
            const kube::ResourceType& type) {
    const kube::ApplyOptions apply{.field_manager = std::string(names::kOperator),
                                   .force = true,
                                   .before_send = options.before_send};
    operations[run->component] =
        client.Apply(type, entry.object, apply,
                     [this, weak = weak_from_this(), run, key](const Result<Json>& answer) {
                       if (!weak.expired()) Applied(run, key, answer);
                     });
  }

  void Applied(const std::shared_ptr<Run>& run, const std::string& key,
               const Result<Json>& answer) {
    const auto found = entries.find(key);
    if (found != entries.end()) {
      Entry& entry = found->second;
      entry.error = answer.status();
      if (answer.ok()) NoteApplied(*run, key, entry, *answer);
      if (!answer.ok()) {
        metrics.applies.Add("failed");
        Log(Severity::kWarning, "cannot apply an object, retrying",
            {{"object", TitleOf(entry.object)}, {"error", answer.status().ToString()}});
        if (run->error.ok()) run->error = answer.status();
      }
    }
    ApplyNext(run);
  }

  void NoteApplied(const Run& run, const std::string& key, Entry& entry, const Json& answer) {
    const kube::Keep keep{.manager = std::string(names::kOperator)};
    kube::MetadataObject object;
    if (!kube::DecodeObject(kube::RawObject(answer), keep, &object).ok()) return;
    const bool unchanged = object.meta.resource_version == run.version;
    metrics.applies.Add(unchanged ? "unchanged" : run.version.empty() ? "created" : "changed");
    entry.applied = run.text;
    // If the watch has delivered this version already, its digest is what later ones compare with.
    const TrackedObject* actual = Actual(key);
    const bool seen =
        actual != nullptr && actual->meta.resource_version == object.meta.resource_version;
    entry.fields = seen ? actual->applied_fields : object.applied_fields;
    entry.awaits = !seen;
    if (!run.drifted || unchanged) return;
    const MonotonicTime now = client.runner().clock().Now();
    entry.repairs = now - entry.repaired > kQuiet ? 1 : entry.repairs + 1;
    entry.repaired = now;
    metrics.repairs.Add(run.component);
    delegate->OnRepair(run.component, fmt::format("{} was {}: restored", TitleOf(entry.object),
                                                  run.version.empty() ? "deleted" : "edited"));
  }

  // --- Deleting.
  struct Doomed {
    kube::ObjectRef ref;
    Uid uid;
    std::string key;
  };

  bool Owned(const TrackedObject& object) const {
    // What another controller owns, too, such as NVIDIA's RuntimeClass, is left to it.
    return !object.owners.empty() &&
           std::all_of(object.owners.begin(), object.owners.end(),
                       [&](const kube::OwnerReference& one) { return one.uid == owner.uid; });
  }

  bool AllSynced() const {
    return std::all_of(followers.begin(), followers.end(), [](const auto& follower) {
      const Follower& one = *follower.second;
      // A type that the server does not have has no objects.
      if (one.informer == nullptr) return one.error.code() == Code::kNotFound;
      return one.informer->synced();
    });
  }

  template <typename F>
  void EachOwned(const F& f) const {
    for (const auto& item : followers) {
      const Follower& follower = *item.second;
      if (follower.informer == nullptr) continue;
      follower.informer->ForEach([&](const TrackedObject& object) {
        if (Owned(object)) f(item.first, follower, object);
      });
    }
  }

  void Prune(const kube::KeyedQueue::Done& done) {
    // Until the first settings are known, nothing is too much.
    if (owner.uid.empty() || (!wanted_known && !removing) || !AllSynced())
      return done(Status::Ok());
    auto doomed = std::make_shared<std::deque<Doomed>>();
    EachOwned([&](const Scope& scope, const Follower& follower, const TrackedObject& object) {
      if (object.meta.deleting) return;
      const bool wanted = !removing && entries.contains(KeyOf(scope, object.meta.name));
      const bool may_go = !removing || remove_rest || GoesFirst(scope.type);
      if (wanted || !may_go) return;
      doomed->push_back({{follower.type, object.meta.name, object.meta.ns, ""},
                         object.meta.uid,
                         KeyOf(scope, object.meta.name)});
    });
    DeleteNext(doomed, Status::Ok(), done);
  }

  void DeleteNext(const std::shared_ptr<std::deque<Doomed>>& doomed, const Status& error,
                  const kube::KeyedQueue::Done& done) {
    const Status may = options.before_send ? options.before_send() : Status::Ok();
    if (doomed->empty() || !may.ok()) {
      operations.erase(std::string(kPruneKey));
      prune_error = error;
      Changed();
      return done(error);
    }
    const Doomed one = doomed->front();
    doomed->pop_front();
    // Newer settings may want it again.
    if (!removing && entries.contains(one.key)) return DeleteNext(doomed, error, done);
    metrics.deletions.Add();
    operations[std::string(kPruneKey)] = client.Delete(
        one.ref, {.uid = one.uid, .propagation = kube::Propagation::kBackground},
        [this, weak = weak_from_this(), doomed, error, done](const Result<Json>& answer) {
          if (weak.expired()) return;
          // It is gone, or another object of its name has come.
          const bool gone = answer.ok() || answer.status().code() == Code::kNotFound ||
                            answer.status().code() == Code::kAborted;
          DeleteNext(doomed, gone || !error.ok() ? error : answer.status(), done);
        });
  }

  // --- Reports.
  ComponentReport ReportOf(const Group& group) const {
    ComponentReport report{group.name, ComponentState::kReady, "Ready", "", 0};
    report.objects = group.keys.size();
    size_t failed = 0;
    std::string waiting;
    for (const std::string& key : group.keys) {
      const Entry& entry = entries.at(key);
      if (!entry.error.ok() && ++failed == 1) {
        report.reason = ReasonOf(entry.error);
        report.message =
            fmt::format("cannot apply {}: {}", TitleOf(entry.object), entry.error.message());
      }
      if (waiting.empty()) waiting = WaitsFor(key, entry);
    }
    if (failed > 0) {
      report.state = ComponentState::kFailed;
      if (failed > 1) report.message += fmt::format("; and {} more objects", failed - 1);
      if (report.reason == "Forbidden") {
        report.message += ": give the operator this right, see its ClusterRole tessera-operator";
      }
      return report;
    }
    if (waiting.empty()) {
      report.message = fmt::format("{} objects are applied and ready", group.keys.size());
      return report;
    }
    report.state = ComponentState::kProgressing;
    report.reason = "NotReady";
    report.message = waiting;
    return report;
  }

  // Why the object is not ready yet; "" if it is.
  std::string WaitsFor(const std::string& key, const Entry& entry) const {
    if (entry.applied != entry.text) return TitleOf(entry.object) + " is being applied";
    if (!GoesFirst(TypeKey(entry.object)) || TextAt(entry.object, "apiVersion") != "apps/v1") {
      return "";
    }
    const TrackedObject* actual = Actual(key);
    if (actual == nullptr) return TitleOf(entry.object) + " is being created";
    if (!actual->workload || actual->workload->ready()) return "";
    const WorkloadCounts& counts = *actual->workload;
    if (!counts.observed) return TitleOf(entry.object) + ": its controller has not seen it yet";
    return fmt::format("{}: {} of {} pods are ready, {} run the newest version",
                       TitleOf(entry.object), counts.available, counts.desired, counts.updated);
  }

  kube::Client& client;
  kube::TypeCatalog& types;
  const Options options;
  OperatorMetrics& metrics;
  Delegate* delegate;
  kube::OwnerReference owner;
  bool wanted_known = false;
  bool removing = false;
  bool remove_rest = false;
  Status prune_error;
  std::vector<Group> groups;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> component_of;  // by key of an entry
  std::map<Scope, std::unique_ptr<Follower>> followers;
  std::map<std::string, kube::Operation> operations;  // by component
  kube::KeyedQueue queue{
      client.runner(),
      {.max_running = 16, .first_wait = options.first_retry, .longest_wait = options.longest_retry},
      [this](const std::string& key, kube::KeyedQueue::Done done) { Work(key, std::move(done)); }};
};

ObjectSet::ObjectSet(kube::Client& client, kube::TypeCatalog& types, Options options,
                     OperatorMetrics& metrics, Delegate& delegate)
    : core_(std::make_shared<Core>(client, types, std::move(options), metrics, delegate)) {
  for (const Json& example : core_->options.examples) core_->FollowerFor(example);
}

ObjectSet::~ObjectSet() {
  core_->delegate = nullptr;
  core_->operations.clear();
  core_->followers.clear();
}

void ObjectSet::SetWanted(std::vector<components::Component> components,
                          const kube::OwnerReference& owner) {
  Core& core = *core_;
  core.owner = owner;
  core.wanted_known = true;
  core.removing = false;
  core.groups.clear();
  core.component_of.clear();
  std::map<std::string, Core::Entry> before = std::exchange(core.entries, {});
  for (components::Component& component : components) {
    Core::Group& group = core.groups.emplace_back();
    group.name = component.name;
    for (Json& object : component.objects) {
      if (!owner.uid.empty()) kube::SetOwner(&object, owner);
      const std::string key = Core::KeyOf(object);
      Core::Entry entry;
      if (const auto old = before.find(key); old != before.end()) entry = std::move(old->second);
      entry.text = object.Serialize();
      entry.object = std::move(object);
      group.keys.push_back(key);
      core.component_of[key] = group.name;
      core.FollowerFor(entry.object);
      core.entries.insert_or_assign(key, std::move(entry));
    }
    core.queue.Add(group.name);
  }
  core.queue.AddAfter(std::string(kPruneKey), core.options.settle);
}

void ObjectSet::Remove(const kube::OwnerReference& owner, bool rest) {
  core_->owner = owner;
  core_->removing = true;
  core_->remove_rest = rest;
  core_->queue.Add(std::string(kPruneKey));
}

std::vector<ComponentReport> ObjectSet::Reports() const {
  std::vector<ComponentReport> reports;
  for (const Core::Group& group : core_->groups) reports.push_back(core_->ReportOf(group));
  if (!core_->prune_error.ok()) {
    reports.push_back(
        {"removal", ComponentState::kFailed, ReasonOf(core_->prune_error),
         "cannot delete an object that the spec no longer has: " + core_->prune_error.message(),
         0});
  }
  return reports;
}

size_t ObjectSet::Remaining(bool workloads_only) const {
  if (!core_->AllSynced()) return 1;
  // Objects that were applied just now, and that no watch has delivered yet.
  size_t remaining = 0;
  for (const auto& [key, operation] : core_->operations) remaining += key != kPruneKey ? 1 : 0;
  for (const auto& [key, entry] : core_->entries) {
    if (entry.awaits && (!workloads_only || GoesFirst(TypeKey(entry.object)))) ++remaining;
  }
  core_->EachOwned([&](const Scope& scope, const auto&, const TrackedObject&) {
    if (!workloads_only || GoesFirst(scope.type)) ++remaining;
  });
  return remaining;
}

std::string ObjectSet::Unseen() const {
  for (const auto& [scope, follower] : core_->followers) {
    const Status& error = follower->error;
    if (error.ok() || error.code() == Code::kNotFound) continue;
    return fmt::format("cannot watch {}, so changes of them by others are not seen: {}", scope.type,
                       error.message());
  }
  return "";
}

bool ObjectSet::settled() const {
  return core_->wanted_known && core_->AllSynced() &&
         std::all_of(core_->entries.begin(), core_->entries.end(),
                     [](const auto& entry) { return entry.second.applied == entry.second.text; });
}

}  // namespace tessera::operators
