// SPDX-License-Identifier: Apache-2.0
// Plans which GPUs a container gets:
//
//   granted before      The GPUs of the earlier grant.
//   assigned            The GPUs of the pod's annotations, whatever IDs the kubelet gave: the
//                       scheduler sees the whole cluster, the kubelet only device IDs of this node.
//   not assigned        The pod bypasses the scheduler. The planner chooses GPUs (local_choice.h).
//   unknown pod         Only the tokens define the request.
//
// The planner records nothing: grant_service.h binds the plan. Threads: one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "src/agent/grants/grant_description.h"
#include "src/agent/grants/grant_ledger.h"
#include "src/agent/grants/node_occupancy.h"
#include "src/agent/kubelet/device_set.h"
#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/base/task_runner.h"
#include "src/device/limit_variables.h"
#include "src/grant/message.h"

namespace tessera::agent {

// A request that waits for its answer, with the device IDs that the kubelet gave the container,
// if they are known.
struct PendingRequest {
  ContainerRef requester;
  std::vector<Claim> claims;
  StringMap variables;  // environment variables of the container that lower its limits
  bool requester_is_guess = false;
  MonotonicTime release_deadline{};  // end of the wait for pods that are ending
  std::shared_ptr<Duration> waited;  // null, or the sum of waits for the kubelet and for pods
  std::function<void(Result<grant::Grant>)> reply;
};

struct PlannedGrant {
  GrantLedger::Entry entry;
  std::optional<device::Assignment> chosen;  // the agent's choice; nullopt: it made none
};

class GrantPlanner {
 public:
  // The arguments must outlive the object. `pods_known`: the agent has access to the API server.
  GrantPlanner(const DescriptionOptions* description, const GrantLedger* ledger,
               NodeOccupancy* occupancy, const DialectSettings* dialects, bool pods_known)
      : description_(description),
        ledger_(ledger),
        occupancy_(occupancy),
        dialects_(dialects),
        pods_known_(pods_known) {}

  // Errors are for users. RESOURCE_EXHAUSTED: the node has no room for a pod that bypasses the
  // scheduler.
  Result<PlannedGrant> Plan(const PendingRequest& pending,
                            const std::shared_ptr<const DeviceSet>& set);

 private:
  PlannedGrant PlanAssigned(const PendingRequest& pending, const device::DeviceRequest& request,
                            const device::ContainerRequest& container,
                            const std::vector<device::DeviceShare>& shares,
                            const DeviceSet& set) const;
  Result<PlannedGrant> PlanLocally(const PendingRequest& pending,
                                   const device::DeviceRequest& request,
                                   const std::shared_ptr<const DeviceSet>& set);

  const DescriptionOptions* const description_;
  const GrantLedger* const ledger_;
  NodeOccupancy* const occupancy_;
  const DialectSettings* const dialects_;
  const bool pods_known_;
};

}  // namespace tessera::agent
