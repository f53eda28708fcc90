// SPDX-License-Identifier: Apache-2.0
// Finds the tool that installed Tessera, the objects that the installation should have but that do
// not exist, and the roles that lack rights. Of other objects the content is not compared.
//
// The expected objects are those in the inventory of `tessera install`, or those that the settings
// of the resource Tessera give. Other tools, such as Helm, leave no settings that a viewer may
// read. Then the objects of a setting are expected if one of them exists: a setting with a single
// object, such as the NetworkPolicy, counts as turned off if this object is missing.
//
// Threads: the client's. Cost: a request for the metadata of each expected object, and one for each
// role.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/formats/json.h"

namespace tessera::cli {

enum class InstallTool : uint8_t { kNone, kTessera, kOperator, kHelm, kOther };

struct HelmRelease {
  std::string name;  // "": none
  std::string ns;    // where Helm keeps its record
};
// The release of Helm that the metadata of an object names.
HelmRelease HelmReleaseOf(const Json& metadata);

struct InstalledObjects {
  // kNone: no object of Tessera exists. kOther: a tool that left no trace, such as kubectl.
  InstallTool tool = InstallTool::kOther;
  HelmRelease release;                        // of kHelm
  std::vector<ObjectId> missing;              // without those that the user may not list
  std::vector<ObjectId> missing_of_operator;  // of the operator itself, which it does not restore
  // Roles that exist and have fewer rules than this version gives them.
  std::vector<ObjectId> weak_roles;
  std::vector<ObjectId> weak_roles_of_operator;
};

// `resource`: the resource Tessera; NOT_FOUND: there is none.
InstalledObjects ReadInstalledObjects(ClusterClient& api, const Result<Json>& resource);

}  // namespace tessera::cli
