// SPDX-License-Identifier: Apache-2.0
// A trace with times: pods arrive, wait in a queue while they fit on no node, run for their
// recorded lifetime, and leave. After each departure all waiting pods are tried in their order of
// arrival; a small pod may overtake a large one, but not a pod of its own shape.
//
// By default the load is steady and spans all nodes; its pods are copies of pods of the trace
// (docs/tasks/replay.md).
//
// Threads: runs share only the trace, which is read-only.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/replay/parallel.h"
#include "src/replay/run.h"
#include "src/replay/trace.h"

namespace tessera::replay {

// Means over one of kTimelinePoints equal parts of the observed time. The observed time is the time
// in which pods arrive; with `as_recorded`, the time from the first creation to the last deletion
// in the trace.
struct TimelinePoint {
  double seconds = 0;        // end of the part, since the start
  double allocation = 0;     // percent of capacity
  double fragmentation = 0;  // percent of capacity
  double waiting = 0;        // GPUs that waiting pods request
};
inline constexpr int kTimelinePoints = 200;

// Pods that fit on no node when they arrived. Moves are tried only if no pod of the same shape is
// waiting already.
struct BlockedPods {
  // All pods that had to wait.
  uint64_t waited = 0;
  // Pods that had to wait although enough GPU was idle in total.
  uint64_t enough_idle = 0;
  // Pods of `enough_idle` for which a few moves made room, or would have made room.
  uint64_t room_by_moves = 0;
  // Pods that were moved for this, or would have been moved.
  uint64_t moved = 0;
};

struct TimelineResult {
  std::string policy;
  uint64_t seed = 0;
  size_t nodes = 0;
  int64_t capacity_milli = 0;
  int64_t peak_milli = 0;  // the most that pods would hold at once if no pod waited
  double observed_seconds = 0;
  size_t pods = 0;        // arrived pods
  double gpu_hours = 0;   // allocated in the observed time
  double allocation = 0;  // allocated GPU time in percent of capacity
  double fragmentation = 0;
  double mean_wait = 0;          // seconds, of started pods, weighted by their GPUs
  double last_pod_end = 0;       // end of the last pod, in seconds since the start
  uint64_t never_scheduled = 0;  // pods that fit on no node, even on an empty one
  BlockedPods blocked;
  std::array<std::vector<int64_t>, kPodSizes> waits;  // seconds, ascending, of started pods
  std::vector<TimelinePoint> points;
};

struct TimelineOptions {
  std::vector<std::string> policies;
  std::vector<uint64_t> seeds;
  int load = 100;            // mean concurrent request, in percent of all GPUs
  bool as_recorded = false;  // each pod once at its recorded time; ignores `load`
  bool moves = false;        // moves pods to make room; false: only counts
  int threads = 1;
  Progress progress;
};

// Returns the runs by policy, then by seed. FAILED_PRECONDITION for a list without times;
// INVALID_ARGUMENT for an unknown policy, nodes without GPUs, or pods without GPU requests.
Result<std::vector<TimelineResult>> RunTimelines(const std::vector<TraceNode>& nodes,
                                                 const PodList& list,
                                                 const TimelineOptions& options);

}  // namespace tessera::replay
