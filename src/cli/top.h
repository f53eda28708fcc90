// SPDX-License-Identifier: Apache-2.0
// `tessera top`: the GPU usage of containers with a share, once or repeatedly. Unlike other
// commands it reads only the agents and needs no ledger. Included only in src/cli.
#pragma once

#include <string>

#include "src/cli/command_line.h"
#include "src/cli/usage.h"
#include "src/kube/config.h"

namespace tessera::cli {

// `ns`: the default namespace, from the context. Returns the exit code.
int RunTop(const CliOptions& line, Style style, const std::string& ns, kube::Config config);

// Why no agent has answered, with the remedy; OK if one has.
Status ProblemOf(const ClusterUses& uses);

}  // namespace tessera::cli
