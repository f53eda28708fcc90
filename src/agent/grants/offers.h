// SPDX-License-Identifier: Apache-2.0
// The offers of each resource to the kubelet. Kube-scheduler adds up each resource by itself, so
// the part of a GPU that containers of one dialect hold is withdrawn from the other dialects: some
// of their IDs become Unhealthy until the holding containers end. The number of healthy IDs of a
// resource is the number that its own pods hold, plus the number that still fits.
//
// Only IDs that the kubelet has not allocated are withdrawn, the IDs of the held GPU first. If an
// ID of a running pod became Unhealthy, it would reduce the free amount twice, and would look like
// a fault of that pod.
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
  GpuAccounts accounts;  // grants, and assignments to pods of this node
  // IDs of all resources that the kubelet has allocated to pods.
  std::set<std::string, std::less<>> allocated_ids;
  bool operator==(const NodeUse&) const = default;
};

// The order is fixed, so equal offers make equal lists. Empty for a resource that is not served.
std::vector<DeviceSet::Offer> OffersOf(std::string_view resource, const DeviceSet& set,
                                       const NodeUse& use);

}  // namespace tessera::agent
