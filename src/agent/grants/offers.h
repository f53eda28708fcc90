// SPDX-License-Identifier: Apache-2.0
// What each resource offers to the kubelet right now. Dialects know nothing of each other, and
// neither does kube-scheduler: it adds up each resource by itself. So what containers of one
// dialect hold of a GPU is withdrawn from the others, by ids that become Unhealthy, and comes back
// when they end: as many ids of a resource are healthy as its own pods hold plus as many as still
// fit.
//
// Withdrawn are ids that the kubelet has not given away, those of the GPU itself first: an id that
// a pod has and that turns Unhealthy would be counted twice, and shown as that pod's misfortune.
//
// Pure; any thread.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "src/agent/grants/gpu_accounts.h"
#include "src/agent/kubelet/device_set.h"

namespace tessera::agent {

struct NodeUse {
  GpuAccounts accounts;                    // granted, and assigned to pods of this node
  std::set<std::string, std::less<>> ids;  // of all resources, that the kubelet has given to pods
  bool operator==(const NodeUse&) const = default;
};

// In a fixed order, so that equal offers make equal lists. Empty for a resource that is not served.
std::vector<DeviceSet::Offer> OffersOf(std::string_view resource, const DeviceSet& set,
                                       const NodeUse& use);

}  // namespace tessera::agent
