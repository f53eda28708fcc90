// SPDX-License-Identifier: Apache-2.0
#include "src/replay/study.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

namespace tessera::replay {
namespace {

Duration Quantile(const std::vector<uint32_t>& ascending, double share) {
  if (ascending.empty()) return {};
  const auto last = static_cast<double>(ascending.size() - 1);
  return Duration(ascending[static_cast<size_t>(std::lround(share * last))]);
}

Speed SpeedOf(std::span<const RunResult> runs) {
  Speed speed;
  std::vector<uint32_t> decisions;
  for (const RunResult& run : runs) {
    decisions.insert(decisions.end(), run.decision_ns.begin(), run.decision_ns.end());
    speed.decisions += run.decisions / static_cast<int64_t>(runs.size());
    speed.learning += run.learning / static_cast<int64_t>(runs.size());
  }
  std::sort(decisions.begin(), decisions.end());
  speed.p50 = Quantile(decisions, 0.5);
  speed.p99 = Quantile(decisions, 0.99);
  speed.most = Quantile(decisions, 1);
  return speed;
}

PolicyMean MeanOf(std::span<const RunResult> runs) {
  PolicyMean mean{.policy = runs.front().policy, .speed = SpeedOf(runs)};
  size_t points = SIZE_MAX;
  for (const RunResult& run : runs) points = std::min(points, run.points.size());
  mean.points.resize(points);
  const double share = 1.0 / static_cast<double>(runs.size());
  for (size_t i = 0; i < points; ++i) {
    Point& point = mean.points[i];
    point.load = runs.front().points[i].load;
    for (const RunResult& run : runs) {
      point.allocation += share * run.points[i].allocation;
      point.fragmentation += share * run.points[i].fragmentation;
      point.idle_fragmented += share * run.points[i].idle_fragmented;
      for (size_t n = 0; n < kSizes; ++n) point.refused[n] += share * run.points[i].refused[n];
    }
  }
  return mean;
}

}  // namespace

Result<Study> RunStudy(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                       const StudyOptions& options, const Clock& clock) {
  const size_t seeds = options.seeds.size();
  const size_t all = options.policies.size() * seeds;
  std::vector<std::optional<Result<RunResult>>> results(all);
  const auto run = [&](size_t i) {
    results[i] = Run(nodes, pods,
                     {.policy = options.policies[i / seeds],
                      .seed = options.seeds[i % seeds],
                      .load = options.load,
                      .share_of = options.share_of,
                      .fragmentation = options.fragmentation,
                      .keep_latencies = options.keep_latencies},
                     clock);
  };
  RunJobs(all, options.jobs, run, options.progress);
  Study study;
  for (auto& result : results) {
    ASSIGN_OR_RETURN(RunResult run, std::move(*result));
    study.runs.push_back(std::move(run));
  }
  for (size_t i = 0; i < all; i += seeds) {
    study.means.push_back(MeanOf(std::span(study.runs).subspan(i, seeds)));
  }
  return study;
}

}  // namespace tessera::replay
