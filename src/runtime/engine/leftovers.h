// SPDX-License-Identifier: Apache-2.0
// Finds entries of NVIDIA's container toolkit in an engine's configuration. Its handlers give GPUs
// by a container's environment and bypass Tessera's grants and accounting. Pure; threads: one.
#pragma once

#include <string>
#include <vector>

#include "src/runtime/engine/plan.h"

namespace tessera::engine {

// Returns a line for the operator for each entry: file, finding, remedy. Ignores the handler
// `settings.runtime_name`, which the plan points to tessera-runtime. Skips unreadable files.
std::vector<std::string> FindLeftovers(const EngineSettings& settings, const Plan& plan,
                                       const ConfigTree& tree);

}  // namespace tessera::engine
