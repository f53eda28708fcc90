// SPDX-License-Identifier: Apache-2.0
// Removes Tessera from the cluster after its resource was deleted, in this order:
//
//   1. drivers that no pod uses
//   2. agents and schedulers
//   3. tessera-runtime in the engines' configurations, and the fields that agents wrote on Nodes:
//      a running agent would write them again
//   4. all other objects: agents need their rights until they end
//   5. the objects that schedulers created at run time: a scheduler that still has its rights would
//      create them again
//
// Stores no state: a new Removal continues where an earlier one stopped. Threads: the client's
// runner. What Parts refers to must outlive the removal.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/operator/cluster_access.h"
#include "src/operator/driver_controller.h"
#include "src/operator/object_set.h"

namespace tessera::operators {

class EngineCleanup;
class NodeCleaner;

class Removal {
 public:
  struct Parts {
    ClusterAccess access;
    kube::TypeCatalog& types;
    ObjectSet& objects;
    DriverController* drivers;  // null: drivers are not managed
    // Called after progress; the owner calls Advance again after `wait`.
    std::function<void(Duration wait)> on_progress;
    // Called with the text of an Event about what remains on nodes.
    std::function<void(const std::string& message)> on_warning;
  };
  // What belongs to the deleted resource.
  struct Inputs {
    kube::OwnerReference owner;
    std::vector<driver::FleetPool> pools;              // of drivers
    std::vector<Json> cleanup;                         // DaemonSets for EngineCleanup
    std::vector<kube::ObjectRef> created_at_run_time;  // objects of schedulers, which have no owner
  };

  // `timeout`: the longest time for cleaning engines; afterwards unreachable nodes are skipped.
  Removal(Parts parts, Inputs inputs, Duration timeout);
  ~Removal();
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

  // Takes the steps that are due. Returns whether the removal is complete. `agents_run`: pods of
  // agents exist.
  bool Advance(bool agents_run);
  // The reason of the current wait, as a clause.
  const std::string& step() const { return step_; }
  // Why the current step has failed; it is retried.
  const Status& error() const { return error_; }

 private:
  std::string ReleaseDrivers();
  void CleanEngines();
  void OnEnginesCleaned(const Status& status);
  void CleanNodes();
  void OnNodesCleaned(const Status& status, size_t cleaned);
  void DeleteCreatedAtRunTime();
  void Enter(std::string step);

  const Parts parts_;
  const Inputs inputs_;
  const Duration timeout_;
  std::string step_;
  bool driver_release_started_ = false;
  bool workload_removal_started_ = false;  // of agents and schedulers
  bool engines_clean_ = false;
  bool nodes_clean_ = false;
  Status error_;
  std::unique_ptr<EngineCleanup> engine_cleanup_;
  std::unique_ptr<NodeCleaner> cleaner_;
  bool deletion_in_flight_ = false;
  size_t deleted_count_ = 0;  // of created_at_run_time
  kube::Operation deletion_;
  WeakPtrFactory<Removal> weak_{this};
};

}  // namespace tessera::operators
