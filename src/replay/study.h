// SPDX-License-Identifier: Apache-2.0
// Runs each policy on each seed, on several threads, and computes means. The results do not depend
// on the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/replay/parallel.h"
#include "src/replay/run.h"
#include "src/replay/trace.h"

namespace tessera::replay {

struct StudyOptions {
  std::vector<std::string> policies;
  std::vector<uint64_t> seeds;
  int load = 130;
  ShareResource share_resource = ShareResource::kCompute;
  bool fragmentation = true;
  bool keep_latencies = false;
  int threads = 1;
  Progress progress;
};

// Durations over all runs.
struct DecisionTimes {
  Duration p50{}, p99{}, max{};  // of one decision; 0 unless latencies were kept
  // Mean per run: the time of all decisions, and of learning from arrivals.
  Duration decision_time{}, learning_time{};
};

struct PolicyMean {
  std::string policy;
  DecisionTimes decision_times;
  std::vector<LoadPoint> points;  // up to the lowest load that any run reached
};

struct Study {
  std::vector<RunResult> runs;  // by policy, then by seed, in the order of the options
  std::vector<PolicyMean> means;
};

// Returns the error of the first failed run, in the order of Study::runs.
Result<Study> RunStudy(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                       const StudyOptions& options, const Clock& clock);

}  // namespace tessera::replay
