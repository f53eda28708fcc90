// SPDX-License-Identifier: Apache-2.0
// Metrics of the whole cluster, from the ledger: allocation, fragmentation, quota and waiting pods.
// Pure. Cost of a page: a pass over all pods, and a pass over all nodes for the fragmentation.
#pragma once

#include "src/base/clock.h"
#include "src/base/metrics.h"
#include "src/ledger/ledger.h"
#include "src/placement/quota.h"
#include "src/scheduler/wait_reasons.h"

namespace tessera::scheduler {

void WriteAllocation(const ledger::ClusterLedger& ledger, MetricsText* text);

// The part of the free compute that a typical pod cannot use: F_n(M) of placement/fragmentation.h,
// summed over all nodes and divided by all idle thousandths. The mix M consists of the most
// frequent shapes of the pods that hold GPUs, at most kMaxMixShapes. The value is 0 if no GPU is
// free or no pod holds a GPU.
inline constexpr size_t kMaxMixShapes = 32;
double FragmentationOf(const ledger::ClusterLedger& ledger);
void WriteFragmentation(const ledger::ClusterLedger& ledger, MetricsText* text);

void WriteQuota(const placement::Quota& quota, MetricsText* text);

// Label "size": "share" (of one GPU), "slice" (MIG devices), the number of whole GPUs "1", "2", "4"
// or "8", or "other"; "unknown" for a request that cannot be read.
std::string_view SizeOf(const device::DeviceRequest& request);
void WriteWaitingPods(const ledger::ClusterLedger& ledger, const WaitReasons& reasons, WallTime now,
                      MetricsText* text);

}  // namespace tessera::scheduler
