// SPDX-License-Identifier: Apache-2.0
// The DaemonSets of tessera-agent: one for each pool, and one for nodes outside of all pools.
// agent_objects.cc also defines RenderCleanup (objects.h). Threads: pure functions.
#pragma once

#include <vector>

#include "src/components/settings.h"
#include "src/formats/json.h"

namespace tessera::components {

std::vector<Json> RenderAgents(const Settings& settings);

}  // namespace tessera::components
