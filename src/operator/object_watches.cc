// SPDX-License-Identifier: Apache-2.0
#include "src/operator/object_watches.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/kube/informer.h"

namespace tessera::operators {
namespace {

constexpr std::string_view kAppsGroup = "apps";
// From a failed lookup of a type to the next one.
constexpr Duration kResolveRetry = std::chrono::seconds(30);

// The number of wanted pods is in the status of a DaemonSet, and in the spec of a Deployment.
WorkloadCounts CountsOf(const Json& object, int64_t generation) {
  const Json none = Json::MakeObject();
  const auto part = [&](std::string_view key) -> const Json& {
    const Json* found = object.Find(key);
    return found != nullptr && found->is_object() ? *found : none;
  };
  const Json& spec = part("spec");
  const Json& status = part("status");
  const bool is_daemonset = status.Find("desiredNumberScheduled") != nullptr;
  const auto count = [&](std::string_view key) { return status.IntAt(key).value_or(0); };
  // With the strategy OnDelete, pods keep an older template until a user deletes them.
  const bool on_delete = TextAt(spec, {"updateStrategy", "type"}) == "OnDelete";
  return {.desired =
              is_daemonset ? count("desiredNumberScheduled") : spec.IntAt("replicas").value_or(1),
          .updated = on_delete ? count("desiredNumberScheduled")
                               : count(is_daemonset ? "updatedNumberScheduled" : "updatedReplicas"),
          .available = count(is_daemonset ? "numberAvailable" : "availableReplicas"),
          .observed = count("observedGeneration") >= generation};
}

}  // namespace

void TrackedObject::Prepare(kube::ListQuery* query) {
  if (query->type.group != kAppsGroup) return kube::MetadataObject::Prepare(query);
  query->encoding = kube::Encoding::kJson;
}

Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, TrackedObject* out) {
  RETURN_IF_ERROR(kube::DecodeObject(raw, kept, static_cast<kube::MetadataObject*>(out)));
  const Json* json = raw.json();
  const bool whole = json != nullptr && (json->Find("spec") != nullptr || json->Find("status"));
  if (whole) out->workload = CountsOf(*json, out->generation);
  return {};
}

WatchScope ScopeOf(const Json& object) {
  const std::string kind = TextAt(object, {"kind"});
  return {TextAt(object, {"apiVersion"}) + "/" + kind, TextAt(object, {"metadata", "namespace"}),
          kind == "Secret" ? TextAt(object, {"metadata", "name"}) : ""};
}

std::string KeyOf(const WatchScope& scope, const std::string& name) {
  return scope.type + "|" + scope.ns + "|" + name;
}

std::string KeyOf(const Json& object) {
  return KeyOf(ScopeOf(object), TextAt(object, {"metadata", "name"}));
}

// Follows one type in one namespace.
struct ObjectWatches::Follower : kube::Informer<TrackedObject>::Handler {
  Follower(ObjectWatches& w, WatchScope s) : watches(w), scope(std::move(s)) {}
  void Deliver(const TrackedObject& object) {
    watches.delegate_.OnObject(KeyOf(scope, object.meta.name));
  }
  void OnAdded(const TrackedObject& now) override { Deliver(now); }
  void OnChanged(const TrackedObject&, const TrackedObject& now) override { Deliver(now); }
  void OnRemoved(const TrackedObject& last) override { Deliver(last); }
  void OnSynced() override { watches.delegate_.OnScopeSynced(scope); }
  void OnError(const Status& status, Duration) override {
    watches.metrics_.watch_errors.Add(scope.type);
    const bool is_new = error.code() != status.code();
    error = status;
    if (is_new) watches.delegate_.OnWatchState();
  }
  void OnRecovered() override {
    error = Status::Ok();
    watches.delegate_.OnWatchState();
  }
  bool synced() const { return informer != nullptr && informer->synced(); }

  ObjectWatches& watches;
  const WatchScope scope;
  Status error;
  bool resolving = false;
  kube::ResourceType type;
  kube::Operation find;
  std::unique_ptr<kube::Informer<TrackedObject>> informer;  // null until the type is known
};

ObjectWatches::ObjectWatches(kube::Client& client, kube::TypeCatalog& types,
                             OperatorMetrics& metrics, Delegate& delegate)
    : client_(client), types_(types), metrics_(metrics), delegate_(delegate) {}

ObjectWatches::~ObjectWatches() = default;

void ObjectWatches::Follow(const Json& object) {
  const WatchScope scope = ScopeOf(object);
  auto& follower = followers_[scope];
  if (follower == nullptr) follower = std::make_unique<Follower>(*this, scope);
  if (follower->informer == nullptr && !follower->resolving) {
    Resolve(*follower, TextAt(object, {"apiVersion"}), TextAt(object, {"kind"}));
  }
}

void ObjectWatches::Resolve(Follower& follower, const std::string& api_version,
                            const std::string& kind) {
  follower.resolving = true;
  follower.find = types_.Find(
      api_version, kind, [this, &follower, api_version, kind](Result<kube::ResourceType> type) {
        follower.resolving = false;
        follower.error = type.status();
        if (type.ok()) Watch(follower, *type);
        if (!type.ok()) ResolveLater(follower.scope, api_version, kind);
        delegate_.OnWatchState();
      });
}

void ObjectWatches::ResolveLater(const WatchScope& scope, const std::string& api_version,
                                 const std::string& kind) {
  client_.runner().PostDelayed(kResolveRetry, [this, weak = weak_.Get(), scope, api_version, kind] {
    if (!weak) return;
    Follower& follower = *followers_.at(scope);
    if (follower.informer == nullptr && !follower.resolving) {
      Resolve(follower, api_version, kind);
    }
  });
}

void ObjectWatches::Watch(Follower& follower, const kube::ResourceType& type) {
  const WatchScope& scope = follower.scope;
  kube::ListQuery query{.type = type, .ns = scope.ns};
  if (scope.name.empty()) {
    query.label_selector = names::kPartOfSelector;
  } else {
    query.field_selector = "metadata.name=" + scope.name;
  }
  const auto none = [](std::string_view) { return false; };
  follower.type = type;
  follower.informer = std::make_unique<kube::Informer<TrackedObject>>(
      client_, std::move(query),
      kube::KeptFields{.label = none, .annotation = none, .manager = std::string(names::kOperator)},
      follower);
}

const ObjectWatches::Follower* ObjectWatches::FollowerOf(const Json& object) const {
  const auto found = followers_.find(ScopeOf(object));
  return found == followers_.end() ? nullptr : found->second.get();
}

const TrackedObject* ObjectWatches::Find(const Json& object) const {
  const Follower* follower = FollowerOf(object);
  if (follower == nullptr || follower->informer == nullptr) return nullptr;
  return follower->informer->Find(
      kube::KeyOf(TextAt(object, {"metadata", "namespace"}), TextAt(object, {"metadata", "name"})));
}

bool ObjectWatches::Synced(const Json& object) const {
  const Follower* follower = FollowerOf(object);
  return follower != nullptr && follower->synced();
}

bool ObjectWatches::AllSynced() const {
  return std::ranges::all_of(followers_, [](const auto& item) {
    const Follower& follower = *item.second;
    // A type that the server does not know has no objects.
    return follower.informer == nullptr ? follower.error.code() == Code::kNotFound
                                        : follower.synced();
  });
}

void ObjectWatches::ForEach(const Visit& visit) const {
  for (const auto& [scope, follower] : followers_) {
    if (follower->informer == nullptr) continue;
    follower->informer->ForEach(
        [&](const TrackedObject& object) { visit(scope, follower->type, object); });
  }
}

std::string ObjectWatches::WatchError() const {
  for (const auto& [scope, follower] : followers_) {
    const Status& error = follower->error;
    if (error.ok() || error.code() == Code::kNotFound) continue;
    return fmt::format("cannot watch {}, so changes of them by others are not seen: {}", scope.type,
                       error.message());
  }
  return "";
}

}  // namespace tessera::operators
