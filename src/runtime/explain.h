// SPDX-License-Identifier: Apache-2.0
// `tessera-runtime explain --bundle DIR`: prints the decision for a container and its reason.
// Changes nothing. In Kubernetes it asks the agent, as create does. Threads: one.
#pragma once

#include <string>

#include "src/runtime/decision.h"
#include "src/runtime/options.h"

namespace tessera::runtime {

std::string DescribeDecision(const Decision& decision);
int ExplainMain(int argc, char** argv, const Result<Options>& options);

}  // namespace tessera::runtime
