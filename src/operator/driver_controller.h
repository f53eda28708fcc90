// SPDX-License-Identifier: Apache-2.0
// Installs and upgrades drivers as src/operator/driver decides: reads the fleet (fleet_reader.h),
// labels nodes, provides the wanted DaemonSets, and passes the steps of upgrades to
// upgrade_executor.h.
//
// No node begins before the plan of its upgrade is published (upgrade_plans.h). A node that cannot
// be patched or drained delays no other node.
//
// If no driver is wanted and no node has a driver of earlier settings, the controller watches
// nothing. Threads: the client's runner. What ClusterAccess refers to, and the delegate, must
// outlive the controller. Idle cost: that of FleetReader.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/formats/json.h"
#include "src/kube/keyed_queue.h"
#include "src/operator/cluster_access.h"
#include "src/operator/fleet_reader.h"
#include "src/operator/resource_status.h"
#include "src/operator/upgrade_executor.h"
#include "src/operator/upgrade_plans.h"

namespace tessera::operators {

class DriverController : private FleetReader::Delegate, private UpgradeExecutor::Delegate {
 public:
  struct Options {
    std::string ns;                                        // of the driver's pods
    Duration step_delay = std::chrono::milliseconds(200);  // collects changes for one pass
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

  DriverController(ClusterAccess access, Options options, Delegate& delegate);
  ~DriverController() override;
  DriverController(const DriverController&) = delete;
  DriverController& operator=(const DriverController&) = delete;

  // Sets the wanted drivers; see driver::PoolsOf.
  void SetPools(std::vector<driver::FleetPool> pools);
  // Removes all drivers. A node keeps its driver until no pod uses its GPUs.
  void Release(std::vector<driver::FleetPool> pools);
  // After Release: whether no node has a driver or labels of an upgrade.
  bool released() const { return all_released_ && objects_known_; }
  // Whether objects() is known.
  bool ready() const { return reader_.following() ? objects_known_ : leftovers_checked_; }
  // The ConfigMap with the revisions that a rollback needs, followed by the DaemonSets.
  const std::vector<Json>& objects() const { return objects_; }
  // nullopt if drivers are not managed, no node has a problem, and no request fails.
  std::optional<FleetReport> report() const;
  // Whether a request of this controller fails; report() then has the error.
  bool has_access_error() const { return !AccessError().empty(); }
  // Call when the status of the resource contains the report's plans.
  void OnPublished(const FleetReport& report);

 private:
  void OnFleetChanged() override { StepAfter(options_.step_delay); }
  void OnErrorsChanged() override { delegate_.OnDriversChanged(); }
  void OnNodeWritten() override { StepAfter(options_.step_delay); }
  void OnPodAnswer() override { StepAfter(options_.poll); }
  void OnWriteError() override;

  void FollowPools();
  void FindLeftovers();
  void StepAfter(Duration wait);
  void Step(const kube::KeyedQueue::Done& done);
  std::deque<FleetReader::PodsToRead> PodsToRead() const;
  void Act();
  void SetObjects(const driver::FleetView& view);
  void ReleaseNodes(const driver::FleetView& view, FleetReport* report);
  std::string PodUsingGpus(const std::string& node) const;
  driver::UpgradeStep Upgrade(const driver::FleetView::PoolView& pool);
  std::vector<driver::UpgradeNode> WithPods(const std::vector<driver::UpgradeNode>& nodes) const;
  std::string AccessError() const;

  kube::Client& client_;
  const Options options_;
  DriverController::Delegate& delegate_;
  std::vector<driver::FleetPool> pools_;
  bool managed_ = false;
  bool leftovers_checked_ = false;
  bool all_released_ = false;
  bool objects_known_ = false;
  std::vector<Json> objects_;
  FleetReport last_report_;
  UpgradePlans plans_;
  FleetReader reader_;
  UpgradeExecutor executor_;
  kube::KeyedQueue queue_;
};

}  // namespace tessera::operators
