// SPDX-License-Identifier: Apache-2.0
// The GPUs that the containers of this node hold, for the agent's HTTP pages. Init containers count
// until they end. Holdings is a copy, so that threads other than the grants' thread may read it.
#pragma once

#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/pods/pods.h"

namespace tessera::agent {

struct HeldContainer {
  ContainerRef holder;
  std::vector<device::DeviceShare> shares;
  std::string container_id;  // PodInfo::ContainerId
  bool ended = false;        // the container has ended, and its pod keeps the GPUs
};

struct Holdings {
  std::vector<HeldContainer> containers;
  GpuAccounts accounts;  // the same holds, by GPU
};

// `pods` may be null.
Holdings HoldingsOf(const GrantLedger& ledger, const Pods* pods);

}  // namespace tessera::agent
