// SPDX-License-Identifier: Apache-2.0
// Reconciles the cluster with the resource Tessera during one term of leading (reconciler.h), and
// writes the resource's status (status_reporter.h) and Events.
//
// A new controller reads everything from the API server; no state survives a term. If the cluster
// matches the resource, the controller writes nothing.
//
// Threads: the client's runner. What ClusterAccess refers to must outlive the controller.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "src/operator/cluster_access.h"
#include "src/operator/rendering.h"

namespace tessera::operators {

struct ControllerOptions {
  std::string ns;  // of the agents' pods
  // Time between two reads of ClusterPolicies, which are not watched.
  Duration cluster_policy_period = std::chrono::minutes(1);
  Duration prune_delay = std::chrono::seconds(1);          // as in ObjectSet::Options
  Duration status_delay = std::chrono::milliseconds(500);  // collects changes for one write
  Duration cleanup_timeout = std::chrono::minutes(2);      // as in Removal
};

class Controller {
 public:
  Controller(ClusterAccess access, Rendering rendering, ControllerOptions options);
  ~Controller();
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;

  // Whether the resource and the cluster have been read.
  bool synced() const;
  // nullopt if the resource does not exist.
  std::optional<StatusInput> status() const;
  // Compares the wanted with the actual state now, as after each change. For benchmarks.
  void ReconcileForTest();

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tessera::operators
