// SPDX-License-Identifier: Apache-2.0
// `tessera migrate`: what it takes to put Tessera in the place of NVIDIA's operator or another
// device plugin. Reads, and decides nothing about pods: all of them go on.
//
// Threads: pure functions. Included only in src/cli.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cli/output/listing.h"
#include "src/components/cluster_policy.h"
#include "src/formats/json.h"

namespace tessera::cli {

// Objects as the API server has them.
struct MigrationFacts {
  std::vector<Json> policies;     // ClusterPolicies
  std::vector<Json> daemon_sets;  // of all namespaces
  std::vector<Json> pods;         // of all namespaces
  std::vector<Json> nodes;
};

// What offers GPUs now.
struct MigrationSource {
  std::string object;  // "DaemonSet kube-system/gpushare-device-plugin-ds"
  std::string system;  // "gpushare"
  size_t nodes = 0;    // on which it runs
};

struct MigrationNode {
  std::string name;
  std::string gpus;    // "nvidia.com/gpu: 8"
  std::string system;  // what offers them now; "" if nothing does
  size_t pods = 0;     // that hold GPUs
  std::string then;    // what happens when the plan is applied
};

struct MigrationPod {
  std::string name;
  std::string node;
  std::string request;
  std::string then;
};

struct Migration {
  std::vector<MigrationSource> sources;
  Json resource;  // the Tessera with the settings
  std::vector<components::MappedSetting> mapped;
  std::vector<std::string> dropped;  // "spec.gds: not managed"
  std::vector<MigrationNode> nodes;  // with GPUs
  std::vector<MigrationPod> pods;    // that hold GPUs
  // What keeps the plan from being applied, each with the command that removes it.
  std::vector<std::string> obstacles;
  std::vector<std::string> steps;  // after it is applied
};

// `more`: settings that are merged over those of what is there. NOT_FOUND if nothing that it knows
// offers GPUs. INVALID_ARGUMENT if a setting is none that Tessera can have.
Result<Migration> PlanOf(const MigrationFacts& facts, const Json& more = Json::MakeObject());

// The plan as text, or the resource in another format.
Result<std::string> ShowMigration(const Migration& migration, const Style& style);

}  // namespace tessera::cli
