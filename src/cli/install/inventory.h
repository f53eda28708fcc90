// SPDX-License-Identifier: Apache-2.0
// The record of an installation in the cluster, ConfigMap tessera-installation: the settings that
// the user gave to `tessera install`, and each object that it applied.
//
// Threads: pure functions. Errors: DATA_LOSS with the remedy.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/formats/json.h"

namespace tessera::cli {

struct InstallationRecord {
  std::string version;  // version of the program that applied the objects last
  Json spec;            // settings as the user gave them, without defaults
  std::vector<ObjectId> objects;
  // Whether the installation created the namespace; then uninstall deletes it.
  bool owns_namespace = false;
};

// The ConfigMap.
ObjectId InventoryId();
Json InventoryObject(const InstallationRecord& installation);
Result<InstallationRecord> ReadInventory(const Json& config_map);

// `ids`, followed by the members of `more` that are not in `ids`.
std::vector<ObjectId> UnionOf(std::vector<ObjectId> ids, const std::vector<ObjectId>& more);

}  // namespace tessera::cli
