// SPDX-License-Identifier: Apache-2.0
// Keeps the objects in the API server as the settings render them: applies them by server-side
// apply, restores objects that another client edited or deleted, and deletes objects that are no
// longer rendered. Without changes it sends nothing: from the metadata of the watched objects it
// detects drift, a change of the fields that the operator has applied.
//
// Components are independent: an object that cannot be applied delays no other object. A component
// with an error is retried with growing waits. An object that another client keeps changing is
// restored with growing waits, too.
//
// Does not interpret the objects, except that the pods of Deployments and DaemonSets must be ready.
// Threads: the client's runner. Client, types, metrics and delegate must outlive the set. The
// delegate must not destroy the set inside a call. Idle cost: one watch for each type and
// namespace.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/components/objects.h"
#include "src/kube/client.h"
#include "src/kube/keyed_queue.h"
#include "src/kube/metadata_object.h"
#include "src/kube/type_catalog.h"
#include "src/operator/metrics.h"
#include "src/operator/object_watches.h"
#include "src/operator/resource_status.h"
#include "src/operator/wanted_objects.h"

namespace tessera::operators {

class ObjectSet : private ObjectWatches::Delegate {
 public:
  struct Options {
    // One object of each type and namespace that earlier settings may have rendered. These types
    // are watched from the start, to find objects to delete.
    std::vector<Json> one_of_each_kind;
    // From a change to the deletion of superfluous objects.
    Duration prune_delay = std::chrono::seconds(1);
    kube::BeforeSend before_send;  // checked before each write
  };
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // Reports() or Remaining() may have changed.
    virtual void OnObjectsChanged() = 0;
    // An object was restored. `description`: "ClusterRole tessera-agent was edited: restored".
    virtual void OnRepair(const std::string& component, const std::string& description) = 0;
  };

  ObjectSet(kube::Client& client, kube::TypeCatalog& types, Options options,
            OperatorMetrics& metrics, Delegate& delegate);
  ~ObjectSet() override;
  ObjectSet(const ObjectSet&) = delete;
  ObjectSet& operator=(const ObjectSet&) = delete;

  // Sets the rendered objects, which all get `owner` (no owner if its uid is empty). Objects with
  // that owner that are not in `components` are deleted.
  void SetWanted(std::vector<components::Component> components, const kube::OwnerReference& owner);
  // Stops applying, and deletes the owner's Deployments, DaemonSets and webhook configurations.
  // Pods that still run need the other objects, such as Roles.
  void RemoveWorkloads(const kube::OwnerReference& owner);
  // Stops applying, and deletes all objects of the owner.
  void RemoveAll(const kube::OwnerReference& owner);

  // One report for each component, in order.
  std::vector<ComponentReport> Reports() const;
  // The number of the owner's objects that still exist. With `workloads_only` counts only the
  // objects that RemoveWorkloads deletes. At least 1 until all watches are synced.
  size_t Remaining(bool workloads_only) const;
  // Which watch fails, and why; "": none.
  std::string WatchError() const;
  // Whether all wanted objects were applied and all watches are synced.
  bool all_applied() const;

 private:
  struct ComponentRun;
  struct PendingDeletion {
    kube::ObjectRef ref;
    Uid uid;
    std::string key;
  };

  void OnObject(const std::string& key) override;
  void OnScopeSynced(const WatchScope& scope) override;
  void OnWatchState() override { delegate_.OnObjectsChanged(); }

  void Remove(const kube::OwnerReference& owner, bool workloads_only);
  void Work(const std::string& key, kube::KeyedQueue::Done done);
  void ApplyNext(const std::shared_ptr<ComponentRun>& run);
  void Send(const std::shared_ptr<ComponentRun>& run, const std::string& key,
            const WantedObject& wanted);
  void OnAnswer(const std::shared_ptr<ComponentRun>& run, const std::string& key,
                const Result<Json>& answer);
  Status RecordApply(const ComponentRun& run, WantedObject* wanted, const Json& answer);

  bool Owns(const TrackedObject& object) const;
  void Prune(const kube::KeyedQueue::Done& done);
  void DeleteNext(const std::shared_ptr<std::deque<PendingDeletion>>& deletions,
                  const Status& error, const kube::KeyedQueue::Done& done);

  kube::Client& client_;
  kube::TypeCatalog& types_;
  const Options options_;
  OperatorMetrics& metrics_;
  Delegate& delegate_;
  kube::OwnerReference owner_;
  bool wanted_known_ = false;
  bool removing_ = false;
  bool removes_workloads_only_ = false;
  Status prune_error_;
  ObjectWatches watches_;
  WantedObjects wanted_;
  std::map<std::string, kube::Operation> operations_;  // by component
  kube::KeyedQueue queue_;                             // of components
  WeakPtrFactory<ObjectSet> weak_{this};
};

}  // namespace tessera::operators
