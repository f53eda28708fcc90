// SPDX-License-Identifier: Apache-2.0
// `tessera-runtime explain --bundle DIR`: prints what a container would get and why, and changes
// nothing. In Kubernetes it asks the agent, as create does.
#pragma once

#include <string>

#include "src/runtime/decision.h"
#include "src/runtime/options.h"

namespace tessera::runtime {

std::string DescribeDecision(const Decision& decision);
int ExplainMain(int argc, char** argv, const Result<Options>& options);

}  // namespace tessera::runtime
