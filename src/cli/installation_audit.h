// SPDX-License-Identifier: Apache-2.0
// Finds the tool that installed Tessera, the objects of the installation that are missing, and the
// objects that another client has changed.
//
// The expected objects are those in the inventory of `tessera install`, or those that the settings
// of the resource Tessera give. Other tools, such as Helm, leave no settings that a viewer may
// read. For them, the objects of a setting are expected if one of these objects exists. So a
// setting with a single object, such as the NetworkPolicy, counts as turned off if this object is
// missing. Fields that were removed from objects of these tools are not found, because a setting
// may have removed them.
//
// Threads: the client's thread. Cost: a request for the metadata of each expected object.
#pragma once

#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/cli/cluster_client.h"
#include "src/cli/object_edits.h"
#include "src/formats/json.h"

namespace tessera::cli {

enum class InstallTool : uint8_t { kNone, kTessera, kOperator, kHelm, kOther };

struct HelmRelease {
  std::string name;  // "": none
  std::string ns;    // where Helm keeps its record
};
// The release of Helm that the metadata of an object names.
HelmRelease HelmReleaseOf(const Json& metadata);

struct EditedObject {
  ObjectId id;
  std::vector<FieldEdit> edits;
};

// Leaves out objects that the user may not read.
struct ObjectProblems {
  std::vector<ObjectId> missing;
  std::vector<EditedObject> edited;
};

struct InstallationAudit {
  // kNone: no object of Tessera exists. kOther: a tool that left no trace, such as kubectl.
  InstallTool tool = InstallTool::kOther;
  HelmRelease release;  // of kHelm
  ObjectProblems problems;
  ObjectProblems problems_of_operator;  // of the operator's own objects, which it does not restore
};

// `resource`: the resource Tessera; NOT_FOUND: there is none.
InstallationAudit AuditInstallation(ClusterClient& api, const Result<Json>& resource);

}  // namespace tessera::cli
