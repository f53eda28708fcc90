// SPDX-License-Identifier: Apache-2.0
// Applies a JSON patch as the API server does, for tests. Threads: a pure function.
#pragma once

#include "src/base/status.h"
#include "src/formats/json.h"

namespace tessera::kube::testing {

// Supports the subset of RFC 6902 that Tessera sends: "add", "remove" and "test" of members of
// objects. INVALID_ARGUMENT if an operation does not apply, as in the API server.
Result<Json> ApplyPatch(Json document, const Json::Array& patch);

}  // namespace tessera::kube::testing
