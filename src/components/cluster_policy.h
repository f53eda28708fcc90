// SPDX-License-Identifier: Apache-2.0
// Coexistence with NVIDIA's GPU operator, and migration from it. Both read NVIDIA's ClusterPolicy
// and never change it. Threads: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/components/objects.h"
#include "src/formats/json.h"

namespace tessera::components {

// Keeps the pods of these DaemonSets off nodes that NVIDIA's operator manages. Adds a rule on the
// label nvidia.com/gpu.deploy.device-plugin to each term of their required node affinity, or a term
// with this rule if there is none. Other objects stay as they are.
void KeepOffNvidiaNodes(std::vector<Json>* objects);
// Does the same for all components, and removes the RuntimeClass "nvidia", which belongs to
// NVIDIA's operator.
void KeepOffNvidiaNodes(std::vector<Component>* components);

// Whether NVIDIA's operator runs its device plugin on the node, or has paused it there: the nodes
// that KeepOffNvidiaNodes excludes.
bool IsManagedByNvidia(const Json& node);
// The same for the value of the node's label nvidia.com/gpu.deploy.device-plugin; "": no label.
bool IsManagedByNvidia(std::string_view deploy_device_plugin);

struct MappedSetting {
  std::string field;    // of the ClusterPolicy: "spec.toolkit.enabled"
  std::string setting;  // of the spec of Tessera: "runtime.enabled"
  Json value;
};

struct MigrationPlan {
  Json resource;  // a resource Tessera with the settings that could be converted
  std::vector<MappedSetting> mapped_settings;
  // Fields of the ClusterPolicy that were not converted, each with the reason: "spec.migManager:
  // …".
  std::vector<std::string> unmapped_settings;
  // Steps for the user, in order.
  std::vector<std::string> steps;
};

// Converts a ClusterPolicy to an equivalent resource Tessera. INVALID_ARGUMENT if `policy` is no
// ClusterPolicy.
Result<MigrationPlan> PlanMigration(const Json& policy);

// The resource Tessera with this spec.
Json TesseraResource(Json spec);

}  // namespace tessera::components
