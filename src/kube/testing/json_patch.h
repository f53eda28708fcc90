// SPDX-License-Identifier: Apache-2.0
// Applies a JSON patch as the API server does, for tests. Threads: a pure function.
#pragma once

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::kube::testing {

// RFC 6902 as far as we send it: "add", "remove" and "test" of members of objects. An operation
// that does not apply is INVALID_ARGUMENT, as it is for the API server.
Result<Json> ApplyPatch(Json document, const Json::Array& patch);

}  // namespace tessera::kube::testing
