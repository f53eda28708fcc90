// SPDX-License-Identifier: Apache-2.0
// `tessera top`: what limited containers use of their GPUs, once or again and again. Unlike other
// commands it asks the agents and needs no account of the cluster. Ends the program's work with an
// exit code. Private to this room.
#pragma once

#include <string>

#include "src/cli/command_line.h"
#include "src/cli/usage.h"
#include "src/kube/config.h"

namespace tessera::cli {

// `style`: of what is printed. `ns`: that of the context.
int RunTop(const CommandLine& line, Style style, const std::string& ns, kube::Config config);

// Why none of the agents tells anything, with the way out; OK where one does.
Status ProblemOf(const ClusterUses& uses);

}  // namespace tessera::cli
