// SPDX-License-Identifier: Apache-2.0
// The input of `tessera doctor`: objects of the API server and pages of the agents, read once.
// Included only in src/cli.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/status.h"
#include "src/cli/usage.h"
#include "src/device/assignment.h"
#include "src/device/gpu.h"

namespace tessera::cli {

// The sum of the metric's samples; 0 if it has no sample.
double SumOf(std::string_view page, std::string_view metric);

struct ClusterFacts {
  // Objects as the API server has them.
  Result<std::vector<Json>> nodes = std::vector<Json>();
  Result<std::vector<Json>> pods = std::vector<Json>();  // all namespaces
  Result<std::vector<Json>> daemon_sets = std::vector<Json>();
  Result<std::vector<Json>> runtime_classes = std::vector<Json>();
  Result<Json> quota = Status(Code::kNotFound, "");
  InstallationObjects installation;
  std::map<std::string, Result<std::string>> agent_metrics;  // by node
  std::map<std::string, Result<UsagePage>> agent_uses;       // by node

  // Set by DeriveInventoriesAndAssignments from the members above.
  std::map<std::string, device::NodeInventory> inventories;  // by node; only decodable annotations
  // Each pod that is bound to a node and has not ended, with its assignment.
  std::vector<std::pair<const Json*, device::Assignment>> assignments;
  void DeriveInventoriesAndAssignments();
};

// Reads all facts. If the user may not read a kind of object, its member has the error. Fails only
// if nodes or pods cannot be listed.
Result<std::unique_ptr<ClusterFacts>> ReadFacts(ClusterClient& api);

}  // namespace tessera::cli
