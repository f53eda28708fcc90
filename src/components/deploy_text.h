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
// The objects of chart/templates/NAME.yaml without the lines that have a directive ("{{"): the
// caller sets what these say, and removes what stands between them and is not wanted. A member
// without anything left is missing.
std::vector<Json> ChartObjects(std::string_view name);
// The only one of that template.
Json ChartObject(std::string_view name);

}  // namespace tessera::components
