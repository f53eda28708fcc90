// SPDX-License-Identifier: Apache-2.0
// Templates of the chart (deploy/chart/templates) whose objects depend on no value, for tests.
// Reads the source tree of the build, or the directory in TESSERA_SOURCE_DIR if the test runs on
// another machine.
#pragma once

#include <string>
#include <vector>

#include "src/formats/json.h"

namespace tessera::admission::testing {

// REQUIRES for both: the file exists and is valid without its lines of template actions.
std::string ManifestText(const std::string& name);
// The documents of the file.
std::vector<Json> ReadManifest(const std::string& name);

}  // namespace tessera::admission::testing
