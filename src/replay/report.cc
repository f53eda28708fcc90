// SPDX-License-Identifier: Apache-2.0
#include "src/replay/report.h"

#include <algorithm>
#include <span>
#include <vector>

#include "src/formats/json.h"
#include "src/replay/chart.h"
#include "src/replay/text_table.h"

namespace tessera::replay {
namespace {

Json Percent(double value) { return Json::NumberText(fmt::format("{:.4f}", value)); }

Json PointsToJson(const std::vector<LoadPoint>& points) {
  Json::Array items;
  for (const LoadPoint& point : points) {
    items.push_back(Json::MakeObject({{"load", Json::Int(point.load)},
                                      {"allocation", Percent(point.allocation)},
                                      {"fragmentation", Percent(point.fragmentation)},
                                      {"idle_fragmented", Percent(point.idle_fragmented)}}));
  }
  return Json::MakeArray(std::move(items));
}

Json RefusedToJson(const std::vector<LoadPoint>& points) {
  Json refused = Json::MakeObject();
  for (size_t n = 0; n < kPodSizes; ++n) {
    refused.Set(NameOf(static_cast<PodSize>(n)),
                Json::NumberText(fmt::format("{:.3f}", points.back().refused[n])));
  }
  return refused;
}

void AppendCsv(std::string_view policy, const std::string& seed,
               const std::vector<LoadPoint>& points, std::string* out) {
  for (const LoadPoint& point : points) {
    fmt::format_to(std::back_inserter(*out), "{},{},{},{:.4f},{:.4f},{:.4f}\n", policy, seed,
                   point.load, point.allocation, point.fragmentation, point.idle_fragmented);
  }
}

int LastLoad(const Study& study) {
  int last = 0;
  for (const PolicyMean& mean : study.means) last = std::max(last, mean.points.back().load);
  return last;
}

std::vector<int> LoadsOf(const Study& study) {
  const int last = LastLoad(study);
  std::vector<int> loads;
  for (const int load : {80, 90, 100}) {
    if (load < last) loads.push_back(load);
  }
  loads.push_back(last);
  return loads;
}

const LoadPoint* PointAt(const PolicyMean& mean, int load) {
  const auto index = static_cast<size_t>(load);
  return index < mean.points.size() ? &mean.points[index] : nullptr;
}

// A table with one row for each policy.
template <typename CellOf>
void AddTable(const Study& study, std::string_view title, const std::vector<std::string>& columns,
              CellOf&& cell_of, std::string* out) {
  std::vector<TextRow> rows;
  for (const PolicyMean& mean : study.means) {
    rows.push_back({.name = mean.policy});
    for (size_t n = 0; n < columns.size(); ++n) rows.back().cells.push_back(cell_of(mean, n));
  }
  AppendTable(title, columns, rows, out);
}

std::string Microseconds(Duration duration) {
  return fmt::format("{:.1f}", static_cast<double>(duration.count()) / 1000);
}

std::string DecisionTimeCell(const DecisionTimes& decision_times, size_t column) {
  switch (column) {
    case 0:
      return Microseconds(decision_times.p50);
    case 1:
      return Microseconds(decision_times.p99);
    case 2:
      return Microseconds(decision_times.max);
    case 3:
      return fmt::format("{:.3f}",
                         std::chrono::duration<double>(decision_times.decision_time).count());
    default:
      return fmt::format("{:.3f}",
                         std::chrono::duration<double>(decision_times.learning_time).count());
  }
}

using PointField = double LoadPoint::*;

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
    double min = mean.points[i].*field, max = min;
    for (const RunResult& run : RunsOf(study, policy)) {
      min = std::min(min, run.points[i].*field);
      max = std::max(max, run.points[i].*field);
    }
    line.points.push_back({.x = static_cast<double>(mean.points[i].load),
                           .y = mean.points[i].*field,
                           .min = min,
                           .max = max});
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

}  // namespace

std::string ToJson(const Study& study) {
  Json::Array runs, means;
  for (const RunResult& run : study.runs) {
    runs.push_back(Json::MakeObject({{"policy", Json::String(run.policy)},
                                     {"seed", Json::NumberText(std::to_string(run.seed))},
                                     {"points", PointsToJson(run.points)},
                                     {"refused", RefusedToJson(run.points)}}));
  }
  for (const PolicyMean& mean : study.means) {
    means.push_back(Json::MakeObject({{"policy", Json::String(mean.policy)},
                                      {"points", PointsToJson(mean.points)},
                                      {"refused", RefusedToJson(mean.points)}}));
  }
  const Json all = Json::MakeObject(
      {{"runs", Json::MakeArray(std::move(runs))}, {"means", Json::MakeArray(std::move(means))}});
  return all.Serialize() + "\n";
}

std::string ToCsv(const Study& study) {
  std::string out = "policy,seed,load,allocation,fragmentation,idle_fragmented\n";
  for (const RunResult& run : study.runs) {
    AppendCsv(run.policy, std::to_string(run.seed), run.points, &out);
  }
  for (const PolicyMean& mean : study.means) AppendCsv(mean.policy, "mean", mean.points, &out);
  return out;
}

std::string ToTable(const Study& study) {
  std::string out;
  const std::vector<int> loads = LoadsOf(study);
  std::vector<std::string> load_columns, sizes;
  for (const int load : loads) load_columns.push_back(fmt::format("{} %", load));
  const auto add_percents = [&](std::string_view title, double LoadPoint::*field) {
    const auto cell = [&](const PolicyMean& mean, size_t n) {
      const LoadPoint* point = PointAt(mean, loads[n]);
      return point != nullptr ? fmt::format("{:.2f}", point->*field) : std::string("-");
    };
    AddTable(study, title, load_columns, cell, &out);
  };
  add_percents("Allocated, % of all GPUs, by load: GPUs that the arrived pods request, % of all",
               &LoadPoint::allocation);
  add_percents("Fragmented, % of all GPUs: idle, and useless to typical pods",
               &LoadPoint::fragmentation);
  add_percents("Fragmented, % of the idle GPUs", &LoadPoint::idle_fragmented);
  for (size_t n = 0; n < kPodSizes; ++n) {
    sizes.emplace_back(NameOf(static_cast<PodSize>(n)));
  }
  const int max_load = std::min(100, loads.back());
  const auto refused = [&](const PolicyMean& mean, size_t n) {
    const LoadPoint* point = PointAt(mean, max_load);
    return point != nullptr ? fmt::format("{:.1f}", point->refused[n]) : std::string("-");
  };
  AddTable(
      study,
      fmt::format("Refused up to a load of {} %, by requested GPUs; in GPUs, column none in pods",
                  max_load),
      sizes, refused, &out);
  AddTable(
      study, "Time of a decision in microseconds, and of a run in seconds",
      {"p50", "p99", "max", "deciding", "learning"},
      [](const PolicyMean& mean, size_t n) { return DecisionTimeCell(mean.decision_times, n); },
      &out);
  return out;
}

std::string ToSvg(const Study& study) {
  const size_t seeds = study.runs.size() / study.means.size();
  const int last = LastLoad(study), first = last > kFirstLoad ? kFirstLoad : 0;
  constexpr const char* kRequested = "requested by arrived pods, % of all GPUs";
  return PlotPair(
      "Allocation by policy", seeds,
      {.title = "Allocated, % of all GPUs", .x_label = kRequested, .diagonal = "all requests"},
      LinesOf(study, &LoadPoint::allocation, first),
      {.title = "Fragmented, % of all GPUs", .x_label = kRequested, .from_zero = true},
      LinesOf(study, &LoadPoint::fragmentation, 0));
}

}  // namespace tessera::replay
