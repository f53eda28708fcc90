// SPDX-License-Identifier: Apache-2.0
// deploy/manifests, for tests. The folder of the tree comes from TESSERA_SOURCE_DIR.
#pragma once

#include <string>
#include <vector>

#include "src/formats/json.h"

namespace tessera::scheduler::testing {

// REQUIRES, as all here: the file is there and good.
std::string ManifestText(const std::string& name);
// Each of its documents.
std::vector<Json> ReadManifest(const std::string& name);

}  // namespace tessera::scheduler::testing
