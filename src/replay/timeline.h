// SPDX-License-Identifier: Apache-2.0
// A trace with times: pods arrive, wait in a queue while they fit nowhere, run for as long as they
// ran in the trace, and leave. Whenever something is freed, all that wait are tried in the order in
// which they came; a small one may overtake a large one, but none of its own shape.
//
// The default is a steady load on all nodes, made from the list (docs/tasks/replay.md).
//
// Threads: runs share nothing but the trace, which they only read.
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

// Means over one of kTimelinePoints equal parts of the time that is looked at: while pods arrive,
// or as recorded from the first creation to the last deletion in the trace.
struct TimelinePoint {
  double seconds = 0;        // of its end, since the beginning
  double allocation = 0;     // percent of capacity
  double fragmentation = 0;  // percent of capacity
  double waiting = 0;        // GPUs that waiting pods ask for
};
inline constexpr int kTimelinePoints = 200;

// Pods that fitted nowhere when they came. Moves are looked for when nobody of the same shape
// waits.
struct Blocked {
  uint64_t waited = 0;       // all that had to wait
  uint64_t enough_idle = 0;  // of those, while enough GPU was idle in all
  uint64_t room_by_moves =
      0;               // of those, where moving a few running pods would have helped, or did
  uint64_t moved = 0;  // pods that would have been moved for them, or were
};

struct TimelineResult {
  std::string policy;
  uint64_t seed = 0;
  size_t nodes = 0;
  int64_t capacity_milli = 0;
  int64_t peak_milli = 0;  // asked for at a time, if no pod waited
  double span = 0;         // seconds that are looked at
  size_t pods = 0;         // that arrived
  double gpu_hours = 0;    // given out in that time
  double allocation = 0;   // the same in percent of capacity
  double fragmentation = 0;
  double mean_wait = 0;  // seconds, of pods that started, weighted by the GPUs that they ask for
  double last_end = 0;   // seconds since the beginning
  uint64_t never = 0;    // pods that fit on none of the nodes, even when it is empty
  Blocked blocked;
  std::array<std::vector<int64_t>, kSizes> waits;  // seconds, ascending, of pods that started
  std::vector<TimelinePoint> points;
};

struct TimelineOptions {
  std::vector<std::string> policies;
  std::vector<uint64_t> seeds;
  int load = 100;            // what pods ask for at a time in the mean, in percent of all GPUs
  bool as_recorded = false;  // each pod of the list once at its time, and no notice of `load`
  bool moves = false;        // do what helps; else only count it
  int jobs = 1;
  Progress progress;
};

// Runs by policy, then seed. FAILED_PRECONDITION for a list without times; INVALID_ARGUMENT for a
// policy that does not exist, nodes without GPUs, pods that ask for none.
Result<std::vector<TimelineResult>> RunTimelines(const std::vector<TraceNode>& nodes,
                                                 const PodList& list,
                                                 const TimelineOptions& options);

}  // namespace tessera::replay
