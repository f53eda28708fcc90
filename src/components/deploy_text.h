// SPDX-License-Identifier: Apache-2.0
// Reads the files of deploy/ that are compiled in. A missing or invalid file is a bug, and ends the
// program. Threads: pure functions.
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
// The objects of chart/templates/NAME.yaml without the lines that have a Helm directive ("{{"). The
// caller sets the values of these lines, and removes the lines that Helm would omit. A JSON member
// is missing if each of its lines has a directive.
std::vector<Json> ChartObjects(std::string_view name);
// The object of a template that has only one.
Json ChartObject(std::string_view name);

}  // namespace tessera::components
