// SPDX-License-Identifier: Apache-2.0
// What `tessera install` keeps in the cluster, in ConfigMap tessera-installation: the settings that
// were given, and each object that was applied.
//
// Threads: pure functions. Errors: DATA_LOSS with the remedy.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/formats/json.h"

namespace tessera::cli {

struct Installation {
  std::string version;  // of the program that applied it last
  Json spec;            // settings as given, without defaults
  std::vector<ObjectId> objects;
  // Whether the namespace was created for it, so that uninstall deletes it.
  bool owns_namespace = false;
};

// The ConfigMap.
ObjectId InventoryId();
Json InventoryObject(const Installation& installation);
Result<Installation> ReadInventory(const Json& config_map);

// `ids`, and those of `more` that it lacks, which come behind.
std::vector<ObjectId> UnionOf(std::vector<ObjectId> ids, const std::vector<ObjectId>& more);

}  // namespace tessera::cli
