// SPDX-License-Identifier: Apache-2.0
#include "src/replay/study.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

namespace tessera::replay {
namespace {

Duration Quantile(const std::vector<uint32_t>& ascending, double fraction) {
  if (ascending.empty()) return {};
  const auto last = static_cast<double>(ascending.size() - 1);
  return Duration(ascending[static_cast<size_t>(std::lround(fraction * last))]);
}

DecisionTimes DecisionTimesOf(std::span<const RunResult> runs) {
  DecisionTimes decision_times;
  std::vector<uint32_t> decisions;
  for (const RunResult& run : runs) {
    decisions.insert(decisions.end(), run.decision_ns.begin(), run.decision_ns.end());
    decision_times.decision_time += run.decision_time / static_cast<int64_t>(runs.size());
    decision_times.learning_time += run.learning_time / static_cast<int64_t>(runs.size());
  }
  std::sort(decisions.begin(), decisions.end());
  decision_times.p50 = Quantile(decisions, 0.5);
  decision_times.p99 = Quantile(decisions, 0.99);
  decision_times.max = Quantile(decisions, 1);
  return decision_times;
}

PolicyMean MeanOf(std::span<const RunResult> runs) {
  PolicyMean mean{.policy = runs.front().policy, .decision_times = DecisionTimesOf(runs)};
  size_t points = SIZE_MAX;
  for (const RunResult& run : runs) points = std::min(points, run.points.size());
  mean.points.resize(points);
  const double share = 1.0 / static_cast<double>(runs.size());
  for (size_t i = 0; i < points; ++i) {
    LoadPoint& point = mean.points[i];
    point.load = runs.front().points[i].load;
    for (const RunResult& run : runs) {
      point.allocation += share * run.points[i].allocation;
      point.fragmentation += share * run.points[i].fragmentation;
      point.idle_fragmented += share * run.points[i].idle_fragmented;
      for (size_t n = 0; n < kPodSizes; ++n) point.refused[n] += share * run.points[i].refused[n];
    }
  }
  return mean;
}

}  // namespace

Result<Study> RunStudy(const std::vector<TraceNode>& nodes, const std::vector<TracePod>& pods,
                       const StudyOptions& options, const Clock& clock) {
  const size_t seed_count = options.seeds.size();
  const size_t run_count = options.policies.size() * seed_count;
  std::vector<std::optional<Result<RunResult>>> results(run_count);
  const auto run = [&](size_t i) {
    results[i] = Run(nodes, pods,
                     {.policy = options.policies[i / seed_count],
                      .seed = options.seeds[i % seed_count],
                      .load = options.load,
                      .share_resource = options.share_resource,
                      .fragmentation = options.fragmentation,
                      .keep_latencies = options.keep_latencies},
                     clock);
  };
  RunJobs(run_count, options.threads, run, options.progress);
  Study study;
  for (auto& result : results) {
    ASSIGN_OR_RETURN(RunResult run, std::move(*result));
    study.runs.push_back(std::move(run));
  }
  for (size_t i = 0; i < run_count; i += seed_count) {
    study.means.push_back(MeanOf(std::span(study.runs).subspan(i, seed_count)));
  }
  return study;
}

}  // namespace tessera::replay
