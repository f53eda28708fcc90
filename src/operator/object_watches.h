// SPDX-License-Identifier: Apache-2.0
// Watches objects of types that are known only at run time: one watch for each type and namespace
// that was ever followed. Each Secret has its own watch, because the right to watch all Secrets
// would allow reading all of them.
//
// Threads: the client's runner. Client, types, metrics and delegate must outlive the watches.
// Errors: a watch that fails is retried, and a type that the server does not know is looked up
// again.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/base/weak_ptr.h"
#include "src/kube/client.h"
#include "src/kube/metadata_object.h"
#include "src/kube/type_catalog.h"
#include "src/operator/metrics.h"

namespace tessera::operators {

// How many pods of a Deployment or DaemonSet are ready.
struct WorkloadCounts {
  int64_t desired = 0;
  int64_t updated = 0;    // run the newest template
  int64_t available = 0;  // ready for at least minReadySeconds
  bool observed = false;  // status.observedGeneration is the newest

  bool ready() const { return observed && updated >= desired && available >= desired; }
  bool operator==(const WorkloadCounts&) const = default;
};

// An object as its watch delivers it: the whole object for types in group apps, the metadata for
// other types.
struct TrackedObject : kube::MetadataObject {
  std::optional<WorkloadCounts> workload;

  static void Prepare(kube::ListQuery* query);
  bool operator==(const TrackedObject&) const = default;
};
Status DecodeObject(const kube::RawObject& raw, const kube::KeptFields& kept, TrackedObject* out);

// The objects that one watch delivers.
struct WatchScope {
  std::string type;  // "apps/v1/DaemonSet"
  std::string ns;
  std::string name;  // "": all objects of Tessera, by their labels
  auto operator<=>(const WatchScope&) const = default;
};
WatchScope ScopeOf(const Json& object);

// Identifies an object among the objects of all scopes.
std::string KeyOf(const WatchScope& scope, const std::string& name);
std::string KeyOf(const Json& object);

class ObjectWatches {
 public:
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // The object was added, changed or removed.
    virtual void OnObject(const std::string& key) = 0;
    // The scope was listed, at the start or after a watch has broken.
    virtual void OnScopeSynced(const WatchScope& scope) = 0;
    // AllSynced() or WatchError() may have changed.
    virtual void OnWatchState() = 0;
  };
  using Visit =
      std::function<void(const WatchScope&, const kube::ResourceType&, const TrackedObject&)>;

  ObjectWatches(kube::Client& client, kube::TypeCatalog& types, OperatorMetrics& metrics,
                Delegate& delegate);
  ~ObjectWatches();
  ObjectWatches(const ObjectWatches&) = delete;
  ObjectWatches& operator=(const ObjectWatches&) = delete;

  // Starts the watch of the scope of this object, unless it runs already.
  void Follow(const Json& object);

  // The object as its watch delivered it last; null if the watch has not delivered it. Valid until
  // the object changes.
  const TrackedObject* Find(const Json& object) const;
  // Whether the watch of this object has listed its scope.
  bool Synced(const Json& object) const;
  bool AllSynced() const;
  void ForEach(const Visit& visit) const;
  // Which scope cannot be watched, and why; "": none.
  std::string WatchError() const;

 private:
  struct Follower;
  const Follower* FollowerOf(const Json& object) const;
  void Resolve(Follower& follower, const std::string& api_version, const std::string& kind);
  void ResolveLater(const WatchScope& scope, const std::string& api_version,
                    const std::string& kind);
  void Watch(Follower& follower, const kube::ResourceType& type);

  kube::Client& client_;
  kube::TypeCatalog& types_;
  OperatorMetrics& metrics_;
  Delegate& delegate_;
  std::map<WatchScope, std::unique_ptr<Follower>> followers_;
  WeakPtrFactory<ObjectWatches> weak_{this};
};

}  // namespace tessera::operators
