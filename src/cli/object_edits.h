// SPDX-License-Identifier: Apache-2.0
// Finds the fields of an installed object that another client has changed or removed.
//
// The API server records who set each field (metadata.managedFields). A client that changes the
// value of a field takes the field over from the client that set it before. So values are not
// compared: a field was edited if the installer applies it and no longer owns it. The installer is
// the client that set label app.kubernetes.io/name, which all objects of Tessera have. Fields that
// others add are not edits.
//
// Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/ (FieldsV1).
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "src/formats/json.h"

namespace tessera::cli {

struct FieldEdit {
  std::string path;     // "spec.template.spec.containers[agent].image"
  std::string manager;  // the field manager, such as kubectl-edit; "": no client sets the field
  bool operator==(const FieldEdit&) const = default;
};

// `wanted`: the object as the installer applies it. `metadata`: of the object in the cluster.
std::vector<FieldEdit> EditsOf(const Json& wanted, const Json& metadata);

}  // namespace tessera::cli
