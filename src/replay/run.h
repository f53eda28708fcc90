// SPDX-License-Identifier: Apache-2.0
// One run: one policy, one seed, one order of arrivals, no departures. Reports allocation and
// fragmentation by arrived load.
//
// Threads: runs share only the trace, which is read-only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/placement/cluster.h"
#include "src/replay/trace.h"
#include "src/replay/workload.h"

namespace tessera::replay {

using placement::kPodSizes;
using placement::PodSize;
PodSize SizeOf(const TracePod& pod);

// The state when the GPUs requested by all arrived pods first reached `load` percent of capacity.
// The last point is the state after all pods have arrived.
struct LoadPoint {
  int load = 0;
  double allocation = 0;       // percent of capacity that pods hold
  double fragmentation = 0;    // percent of capacity that is idle and useless to typical pods
  double idle_fragmented = 0;  // fragmentation in percent of the idle GPUs
  // GPUs of refused pods, by size; for kNoGpu the number of pods.
  std::array<double, kPodSizes> refused{};
};

struct RunResult {
  std::string policy;
  uint64_t seed = 0;
  std::vector<LoadPoint> points;      // for loads 0, 1, 2 … up to the arrived load
  std::vector<uint32_t> decision_ns;  // in order of arrival; empty without keep_latencies
  Duration decision_time{};           // time of all decisions
  Duration learning_time{};           // time of learning from arrivals
};

struct RunOptions {
  std::string policy;
  uint64_t seed = 0;
  int load = 130;  // GPUs that all arriving pods request, in percent of capacity
  ShareResource share_resource = ShareResource::kCompute;
  bool fragmentation = true;  // false: omitted from the points, which is faster
  bool keep_latencies = false;
};

// INVALID_ARGUMENT for an unknown policy or a cluster without GPUs.
Result<RunResult> Run(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                      const RunOptions& options, const Clock& clock);

}  // namespace tessera::replay
