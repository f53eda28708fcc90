// SPDX-License-Identifier: Apache-2.0
// The GPUs that the containers of this node hold, for pages. Init containers count until they end.
// A copy, so that it can leave the grants' thread.
#pragma once

#include <string>
#include <vector>

#include "src/agent/grants/grant_ledger.h"
#include "src/agent/pods/pods.h"

namespace tessera::agent {

struct HeldContainer {
  ContainerRef holder;
  std::vector<device::DeviceShare> shares;
  std::string engine_id;  // the container's ID at the engine; "": unknown
  bool ended = false;     // the container has ended, and its pod keeps the GPUs
};

struct Holdings {
  std::vector<HeldContainer> containers;
  GpuAccounts accounts;
};

// `pods` may be null.
Holdings HoldingsOf(const GrantLedger& ledger, const Pods* pods);

}  // namespace tessera::agent
