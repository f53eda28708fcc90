// SPDX-License-Identifier: Apache-2.0
// `tessera top`: the GPU usage of containers with a share, once or repeatedly. Unlike other
// commands it reads only the agents' pages, and needs no ledger (src/ledger). Included only in
// src/cli.
#pragma once

#include "src/cli/usage.h"

namespace tessera::cli {

// An error with its remedy if agents failed and none reported usage; otherwise OK.
Status ProblemOf(const ClusterUses& uses);

}  // namespace tessera::cli
