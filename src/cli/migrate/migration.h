// SPDX-License-Identifier: Apache-2.0
// `tessera migrate`: plans how Tessera replaces NVIDIA's operator or another device plugin. Changes
// no pod: all pods continue.
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

// A system that offers GPUs now.
struct MigrationSource {
  std::string object;  // "DaemonSet kube-system/gpushare-device-plugin-ds"
  std::string system;  // "gpushare"
  size_t nodes = 0;    // number of nodes on which it runs
};

struct MigrationNode {
  std::string name;
  std::string gpus;     // "nvidia.com/gpu: 8"
  std::string system;   // the system that offers them now; "": none
  size_t pods = 0;      // number of pods that hold GPUs
  std::string outcome;  // what happens when the plan is applied
};

struct MigrationPod {
  std::string name;
  std::string node;
  std::string request;
  std::string outcome;
};

struct Migration {
  std::vector<MigrationSource> sources;
  Json resource;  // the resource Tessera with the settings
  std::vector<components::MappedSetting> mapped_settings;
  std::vector<std::string> unmapped_settings;  // "spec.gds: not managed"
  std::vector<MigrationNode> nodes;            // with GPUs
  std::vector<MigrationPod> pods;              // that hold GPUs
  // Reasons why the plan cannot be applied, each with the command that removes the obstacle.
  std::vector<std::string> obstacles;
  std::vector<std::string> steps;  // steps for the user after the plan is applied
};

// `overrides`: settings that are merged over the settings of the systems to replace. NOT_FOUND if
// no known system offers GPUs. INVALID_ARGUMENT for an unknown or invalid setting.
Result<Migration> PlanOf(const MigrationFacts& facts, const Json& overrides = Json::MakeObject());

// The plan as text, or the resource in another format.
Result<std::string> ShowMigration(const Migration& migration, const Style& style);

}  // namespace tessera::cli
