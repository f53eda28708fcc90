// SPDX-License-Identifier: Apache-2.0
// `tessera top`: the GPU usage of containers with a share, once or repeatedly. Unlike other
// commands it reads only the agents' pages, and needs no ledger (src/ledger). Included only in
// src/cli.
#pragma once

#include "src/cli/usage.h"

namespace tessera::cli {

// Why no agent has reported usage, with the remedy; OK if one has, or if no agent failed.
Status ProblemOf(const ClusterUses& uses);

}  // namespace tessera::cli
