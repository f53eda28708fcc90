// SPDX-License-Identifier: Apache-2.0
// The startup taint: a node that joins with one of the configured keys gets no pods until its GPUs
// have passed the smoke test (smoke_test.h). The agent removes taints with these keys, and never
// adds or changes one. Pure; any thread.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "src/formats/json.h"

namespace tessera::agent {

using TaintKeys = std::set<std::string, std::less<>>;

// The JSON patch that removes all taints with these keys from `node`; nullopt if there is none.
// The API server rejects the patch if the taints of the Node have changed since it was read, so
// that no taint of another writer is lost.
std::optional<Json> TaintPatchFor(const Json& node, const TaintKeys& keys);

}  // namespace tessera::agent
