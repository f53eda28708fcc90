// SPDX-License-Identifier: Apache-2.0
// Finds what NVIDIA's container toolkit left in an engine's configuration. Each handler of it gives
// GPUs by the environment of a container, past Tessera's grants and accounts. Pure; threads: one.
#pragma once

#include <string>
#include <vector>

#include "src/runtime/engine/plan.h"

namespace tessera::engine {

// For people, a line for each: file, what it is, what to do. The handler `wanted.runtime_name` is
// not one, because it leads to tessera-runtime by then. Files that cannot be read are passed over.
std::vector<std::string> FindLeftovers(const Wanted& wanted, const Plan& plan,
                                       const ConfigTree& tree);

}  // namespace tessera::engine
