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
  ShareOf share_of = ShareOf::kCompute;
  bool fragmentation = true;
  bool keep_latencies = false;
  int jobs = 1;  // threads
  Progress progress;
};

// Durations of decisions over all runs; percentiles are known only if latencies were kept.
struct Speed {
  Duration p50{}, p99{}, most{};
  // Means of all runs: the time of deciding, and of learning from arrivals.
  Duration decisions{}, learning{};
};

struct PolicyMean {
  std::string policy;
  Speed speed;
  std::vector<Point> points;  // up to the lowest load that any run reached
};

struct Study {
  std::vector<RunResult> runs;  // by policy, then by seed, in the order of the options
  std::vector<PolicyMean> means;
};

// Returns the error of the first failed run, in the order of Study::runs.
Result<Study> RunStudy(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                       const StudyOptions& options, const Clock& clock);

}  // namespace tessera::replay
