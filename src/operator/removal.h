// SPDX-License-Identifier: Apache-2.0
// Removes Tessera from the cluster after its resource was deleted, in this order: drivers that no
// pod uses, agents and schedulers, tessera-runtime from the engines' configurations, what agents
// have written on nodes, all other objects. An agent would write on its node again, and needs its
// rights until it ends.
//
// Keeps no state that matters: another Removal goes on where this one was. Threads: the client's
// runner. Ownership: what Parts refers to outlives it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/weak_ptr.h"
#include "src/operator/cluster_access.h"
#include "src/operator/driver_controller.h"
#include "src/operator/engine_cleanup.h"
#include "src/operator/node_cleaner.h"
#include "src/operator/object_set.h"

namespace tessera::operators {

class Removal {
 public:
  struct Parts {
    ClusterAccess access;
    kube::TypeCatalog& types;
    ObjectSet& objects;
    DriverController* drivers;  // null: none are managed
    // Advance may have something to do, after this time.
    std::function<void(Duration wait)> on_progress;
    // Something stays on nodes, for an Event.
    std::function<void(const std::string& message)> on_warning;
  };
  // What the deleted resource wanted.
  struct Wanted {
    kube::OwnerReference owner;
    std::vector<driver::FleetPool> pools;  // of drivers
    std::vector<Json> cleanup;             // DaemonSets for EngineCleanup
  };

  // `patience`: how long engines are cleaned at most; nodes that are away are left out then.
  Removal(Parts parts, Wanted wanted, Duration patience);
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

  // Does what is due. Returns whether nothing is left. `agents_run`: pods of agents exist.
  bool Advance(bool agents_run);
  // What the removal waits for, as a clause.
  const std::string& step() const { return step_; }
  // Why nodes cannot be cleaned.
  const Status& error() const { return error_; }

 private:
  std::string WhyDriversStay();
  void CleanEngines();
  void OnEnginesCleaned(const Status& status);
  void CleanNodes();
  void OnNodesCleaned(const Status& status, size_t cleaned);
  void Enter(std::string step);

  const Parts parts_;
  const Wanted wanted_;
  const Duration patience_;
  std::string step_;
  bool releasing_ = false;  // the drivers
  bool removing_ = false;   // the agents
  bool engines_clean_ = false;
  bool nodes_clean_ = false;
  Status error_;
  std::unique_ptr<EngineCleanup> engine_cleanup_;
  std::unique_ptr<NodeCleaner> cleaner_;
  WeakPtrFactory<Removal> weak_{this};
};

}  // namespace tessera::operators
