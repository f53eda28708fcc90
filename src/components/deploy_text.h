// SPDX-License-Identifier: Apache-2.0
// Reads the files of deploy/ that are compiled in. A missing or invalid one is a broken invariant.
// Threads: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "src/formats/json.h"

namespace tessera::components {

// `path` below deploy/.
std::string_view DeployText(std::string_view path);
// The paths that begin with `prefix`, sorted.
std::vector<std::string_view> DeployPaths(std::string_view prefix);
Json ParsedYaml(std::string_view path);
// The documents of a YAML file; "---" lines separate them.
std::vector<Json> ParsedDocuments(std::string_view path);

}  // namespace tessera::components
