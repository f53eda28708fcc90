// SPDX-License-Identifier: Apache-2.0
// Usage of each GPU by pods, in the format of gpushare's extender:
//
//   {"nodes":[{"name","totalGPU","usedGPU","devs":[{"id","totalGPU","usedGPU",
//                                                   "pods":[{"name","namespace","usedGPU"}]}]}]}
//
// Its "GPU" are units of memory, GiB or MiB. A GPU that is held whole counts as used whole.
// Threads: the ledger's. Cost: a pass over nodes and pods.
#pragma once

#include <string>
#include <string_view>

#include "src/ledger/ledger.h"

namespace tessera::scheduler {

// All nodes with GPUs, or only `node`; an unknown node has "error".
std::string Inspect(const ledger::ClusterLedger& ledger, std::string_view node);

}  // namespace tessera::scheduler
