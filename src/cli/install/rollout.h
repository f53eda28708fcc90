// SPDX-License-Identifier: Apache-2.0
// Whether all pods of a DaemonSet or a Deployment have the newest version and are ready. Threads:
// pure functions.
#pragma once

#include <string>

#include "src/formats/json.h"

namespace tessera::cli {

// "" if the object is rolled out or of another kind; else what is missing: "DaemonSet
// tessera-system/tessera-agent: 2 of 3 pods ready". A DaemonSet without nodes is rolled out.
std::string WhyNotRolledOut(const Json& object);

}  // namespace tessera::cli
