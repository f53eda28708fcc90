// SPDX-License-Identifier: Apache-2.0
// `tessera top`: the GPU usage of containers with a share, once or repeatedly. Unlike other
// commands it reads only the agents' pages, and does not count what pods hold (src/ledger).
// Included only in src/cli.
#pragma once

#include "src/cli/usage.h"

namespace tessera::cli {

// Why no agent has answered, with the remedy; OK if one has.
Status ProblemOf(const ClusterUses& uses);

}  // namespace tessera::cli
