// SPDX-License-Identifier: Apache-2.0
// Finds entries of NVIDIA's container toolkit in an engine's configuration. Its handlers give GPUs
// by a container's environment and bypass Tessera's grants and accounting. Pure; threads: one.
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
