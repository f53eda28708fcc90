// SPDX-License-Identifier: Apache-2.0
// deploy/manifests, for tests. The tree is the one that the test was built from, or the folder that
// TESSERA_SOURCE_DIR names where the test runs on another machine.
#pragma once

#include <string>
#include <vector>

#include "src/formats/json.h"

namespace tessera::admission::testing {

// REQUIRES for both: the file exists and is valid.
std::string ManifestText(const std::string& name);
// Each of its documents.
std::vector<Json> ReadManifest(const std::string& name);

}  // namespace tessera::admission::testing
