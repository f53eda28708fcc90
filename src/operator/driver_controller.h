// SPDX-License-Identifier: Apache-2.0
// Installs and upgrades drivers, as operator/driver decides: follows nodes with GPUs and driver
// pods, labels nodes, says which DaemonSets are wanted, and carries out the steps of upgrades: it
// patches nodes, cordons them, evicts pods by the Eviction API, and restarts driver pods. Records
// each step as an Event on the Node.
//
// A node is patched only in the version that was looked at, so a cordon of an administrator in
// between is noticed. No node begins before the plan of its upgrade is published. A node that
// cannot be written or emptied delays no other one.
//
// Without managed drivers it follows nothing. Threads: the client's runner. Ownership: what Context
// refers to, and the delegate, outlive it. Idle cost: a watch of nodes with GPUs, and one of driver
// pods.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/formats/json.h"
#include "src/kube/client.h"
#include "src/kube/events.h"
#include "src/operator/fleet_report.h"
#include "src/operator/metrics.h"

namespace tessera::operators {

class DriverController {
 public:
  struct Context {
    kube::Client& client;
    kube::EventRecorder& events;
    OperatorMetrics& metrics;
    kube::BeforeSend before_send;  // checked before each write
  };
  struct Options {
    std::string ns;                                    // of the driver's pods
    Duration settle = std::chrono::milliseconds(200);  // collects changes for one look
    // How often the pods of nodes in an upgrade are read.
    Duration poll = std::chrono::seconds(2);
    Duration retry = std::chrono::seconds(5);  // after a failed read
  };
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // objects() or report() may have changed.
    virtual void OnDriversChanged() = 0;
  };

  DriverController(Context context, Options options, Delegate& delegate);
  ~DriverController();
  DriverController(const DriverController&) = delete;
  DriverController& operator=(const DriverController&) = delete;

  // What the settings want; see driver::PoolsOf.
  void SetPools(std::vector<driver::FleetPool> pools);
  // The settings want no driver any more. A node keeps its driver until no pod uses its GPUs.
  void Release(std::vector<driver::FleetPool> pools);
  // After Release: whether no node has a driver or a mark of an upgrade any more.
  bool released() const;
  // Whether objects() is known.
  bool ready() const;
  // The DaemonSets, and before them the ConfigMap with what a rollback needs.
  const std::vector<Json>& objects() const;
  // nullopt without managed drivers.
  std::optional<FleetReport> report() const;
  // The report's plans stand in the status of the resource.
  void OnPublished(const FleetReport& report);

 private:
  struct Core;
  std::shared_ptr<Core> core_;
};

}  // namespace tessera::operators
