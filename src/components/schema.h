// SPDX-License-Identifier: Apache-2.0
// Checks values against a JSON schema. Supports the keywords that Tessera's schema uses: type (one
// or a list), properties, additionalProperties, required, items, enum, minLength, maxLength,
// minimum, maximum, pattern. Errors show the `description` of the schema. Other keywords are
// ignored.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::components {

// INVALID_ARGUMENT names the first invalid value by its path, and describes the allowed values. A
// null is valid everywhere: it stands for a missing value.
Status CheckAgainstSchema(const Json& schema, const Json& value, const std::string& path);

// The schema of a Tessera resource's spec: the schema of the chart's values with its references
// resolved, in which every member is optional, and with the additional member `pools`.
const Json& SpecSchema();

// `schema` as the API server accepts it in a CustomResourceDefinition (a structural schema).
Json StructuralSchema(const Json& schema);

}  // namespace tessera::components
