// SPDX-License-Identifier: Apache-2.0
#include "src/replay/plot.h"

#include <algorithm>
#include <span>
#include <vector>

#include "src/replay/chart.h"

namespace tessera::replay {
namespace {

using PointField = double Point::*;

// Policies start to differ at this load.
constexpr int kFirstLoad = 70;

// The runs of the n-th policy, which are adjacent.
std::span<const RunResult> RunsOf(const Study& study, size_t policy) {
  const size_t seeds = study.runs.size() / study.means.size();
  return std::span(study.runs).subspan(policy * seeds, seeds);
}

ChartLine LineOf(const Study& study, size_t policy, PointField field, int first) {
  const PolicyMean& mean = study.means[policy];
  ChartLine line{.name = mean.policy};
  for (size_t i = static_cast<size_t>(first); i < mean.points.size(); ++i) {
    double least = mean.points[i].*field, most = least;
    for (const RunResult& run : RunsOf(study, policy)) {
      least = std::min(least, run.points[i].*field);
      most = std::max(most, run.points[i].*field);
    }
    line.points.push_back({.x = static_cast<double>(mean.points[i].load),
                           .y = mean.points[i].*field,
                           .least = least,
                           .most = most});
  }
  return line;
}

std::vector<ChartLine> LinesOf(const Study& study, PointField field, int first) {
  std::vector<ChartLine> lines;
  for (size_t n = 0; n < study.means.size(); ++n) {
    lines.push_back(LineOf(study, n, field, first));
  }
  return lines;
}

int LastLoad(const Study& study) {
  int last = 0;
  for (const PolicyMean& mean : study.means) last = std::max(last, mean.points.back().load);
  return last;
}

}  // namespace

std::string Plot(const Study& study) {
  const size_t seeds = study.runs.size() / study.means.size();
  const int last = LastLoad(study), first = last > kFirstLoad ? kFirstLoad : 0;
  constexpr const char* kAsked = "asked for by the pods that had arrived, % of all GPUs";
  return PlotPair(
      "How much of the GPUs each policy gives out", seeds,
      {.title = "Allocated, % of all GPUs", .x_label = kAsked, .diagonal = "all that arrived"},
      LinesOf(study, &Point::allocation, first),
      {.title = "Fragmented, % of all GPUs", .x_label = kAsked, .from_zero = true},
      LinesOf(study, &Point::fragmentation, 0));
}

}  // namespace tessera::replay
