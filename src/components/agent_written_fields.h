// SPDX-License-Identifier: Apache-2.0
// Finds the labels, annotations, conditions and resource counts that agents wrote on a Node, and
// makes the patches that remove them. The API server records the writer of each field
// (managedFields), so fields of other writers stay. Annotations tessera.dev/... are an exception:
// the patches remove them regardless of the writer.
//
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/formats/json.h"

namespace tessera::components {

// Names of fields.
struct AgentWrittenFields {
  std::vector<std::string> labels;
  std::vector<std::string> annotations;
  std::vector<std::string> conditions;  // types
  std::vector<std::string> resources;   // in capacity and allocatable

  bool empty() const {
    return labels.empty() && annotations.empty() && conditions.empty() && resources.empty();
  }
};

AgentWrittenFields AgentWrittenFieldsOf(const Json& node);

// A merge patch that removes these labels and annotations from the Node; nullopt if there are none.
std::optional<Json> NodeCleanupPatch(const AgentWrittenFields& fields);
// A strategic merge patch that removes these conditions and resources from the Node's status;
// nullopt if there are none.
std::optional<Json> NodeStatusCleanupPatch(const AgentWrittenFields& fields);

}  // namespace tessera::components
