// SPDX-License-Identifier: Apache-2.0
// Many runs and their means: each policy on each seed, on as many threads as wanted. The same study
// gives the same results on any number of threads.
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

// How long decisions took; of latencies, which are only known where they were kept, over all runs.
struct Speed {
  Duration p50{}, p99{}, most{};
  Duration decisions{}, learning{};  // of a run: deciding, and learning from arrivals
};

struct Mean {
  std::string policy;
  Speed speed;
  std::vector<Point> points;  // up to the least load that a run reached
};

struct Study {
  std::vector<RunResult> runs;  // by policy, then by seed, in the order asked for
  std::vector<Mean> means;
};

// The first error of a run in that order.
Result<Study> RunStudy(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                       const StudyOptions& options, const Clock& clock);

}  // namespace tessera::replay
