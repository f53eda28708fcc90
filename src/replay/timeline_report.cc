// SPDX-License-Identifier: Apache-2.0
#include "src/replay/timeline_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "src/formats/json.h"
#include "src/replay/chart.h"
#include "src/replay/text_table.h"

namespace tessera::replay {
namespace {

constexpr double kHour = 3600;

using Results = std::span<const TimelineResult>;

std::vector<Results> ByPolicy(const std::vector<TimelineResult>& results) {
  std::vector<Results> groups;
  for (size_t begin = 0; begin < results.size();) {
    size_t end = begin + 1;
    while (end < results.size() && results[end].policy == results[begin].policy) ++end;
    groups.push_back(std::span(results).subspan(begin, end - begin));
    begin = end;
  }
  return groups;
}

struct WaitStats {
  size_t pods = 0;
  double mean = 0, p50 = 0, p99 = 0, max = 0;  // seconds
};

// REQUIRES: ascending.
WaitStats StatsOf(const std::vector<int64_t>& waits) {
  if (waits.empty()) return {};
  const auto quantile = [&](double share) {
    const auto last = static_cast<double>(waits.size() - 1);
    return static_cast<double>(waits[static_cast<size_t>(std::lround(share * last))]);
  };
  const double sum = std::accumulate(waits.begin(), waits.end(), 0.0);
  return {.pods = waits.size(),
          .mean = sum / static_cast<double>(waits.size()),
          .p50 = quantile(0.5),
          .p99 = quantile(0.99),
          .max = quantile(1)};
}

template <typename Get>
double MeanOf(Results results, Get&& get) {
  double sum = 0;
  for (const TimelineResult& result : results) sum += static_cast<double>(get(result));
  return sum / static_cast<double>(results.size());
}

Json Number(double value, int decimals) {
  return Json::NumberText(fmt::format("{:.{}f}", value, decimals));
}
Json Count(uint64_t value) { return Json::NumberText(std::to_string(value)); }

Json WaitsToJson(const TimelineResult& result) {
  Json waiting = Json::MakeObject();
  for (size_t n = 0; n < kPodSizes; ++n) {
    const WaitStats stats = StatsOf(result.waits[n]);
    waiting.Set(NameOf(static_cast<PodSize>(n)), Json::MakeObject({{"pods", Count(stats.pods)},
                                                                   {"mean", Number(stats.mean, 1)},
                                                                   {"p50", Number(stats.p50, 0)},
                                                                   {"p99", Number(stats.p99, 0)},
                                                                   {"max", Number(stats.max, 0)}}));
  }
  return waiting;
}

Json BlockedToJson(const BlockedPods& blocked) {
  return Json::MakeObject({{"waited", Count(blocked.waited)},
                           {"enough_idle", Count(blocked.enough_idle)},
                           {"room_by_moves", Count(blocked.room_by_moves)},
                           {"moved", Count(blocked.moved)}});
}

Json ToJson(const TimelineResult& result) {
  Json::Array points;
  for (const TimelinePoint& point : result.points) {
    points.push_back(Json::MakeObject({{"seconds", Number(point.seconds, 0)},
                                       {"allocation", Number(point.allocation, 4)},
                                       {"fragmentation", Number(point.fragmentation, 4)},
                                       {"waiting_gpus", Number(point.waiting, 3)}}));
  }
  return Json::MakeObject({{"policy", Json::String(result.policy)},
                           {"seed", Count(result.seed)},
                           {"nodes", Count(result.nodes)},
                           {"gpus", Number(static_cast<double>(result.capacity_milli) / 1000, 0)},
                           {"peak_gpus", Number(static_cast<double>(result.peak_milli) / 1000, 3)},
                           {"pods", Count(result.pods)},
                           {"seconds", Number(result.observed_seconds, 0)},
                           {"gpu_hours", Number(result.gpu_hours, 3)},
                           {"allocation", Number(result.allocation, 4)},
                           {"fragmentation", Number(result.fragmentation, 4)},
                           {"mean_wait", Number(result.mean_wait, 1)},
                           {"last_end", Number(result.last_pod_end, 0)},
                           {"never", Count(result.never_scheduled)},
                           {"blocked", BlockedToJson(result.blocked)},
                           {"waiting", WaitsToJson(result)},
                           {"points", Json::MakeArray(std::move(points))}});
}

void AddWork(const std::vector<Results>& groups, std::string* out) {
  std::vector<TextRow> rows;
  for (const Results& group : groups) {
    const auto cell = [&](auto&& get) { return fmt::format("{:.2f}", MeanOf(group, get)); };
    rows.push_back({.name = group[0].policy,
                    .cells = {cell([](auto& r) { return r.gpu_hours; }),
                              cell([](auto& r) { return r.allocation; }),
                              cell([](auto& r) { return r.fragmentation; }),
                              cell([](auto& r) { return r.mean_wait / kHour; }),
                              cell([](auto& r) { return r.last_pod_end / kHour; })}});
  }
  AppendTable(
      "Work in the observed time: GPU-hours allocated, also in % of all; GPUs that are idle\n"
      "and useless to typical pods, in % of all; the mean wait in hours, weighted by the GPUs of\n"
      "the pods; and the hour in which the last pod ended",
      {"GPU-hours", "allocated", "fragmented", "wait", "last hour"}, rows, out);
}

void AddWaits(const std::vector<Results>& groups, std::string_view title, double WaitStats::*field,
              std::string* out) {
  std::vector<std::string> columns;
  for (size_t n = 0; n < kPodSizes; ++n) columns.emplace_back(NameOf(static_cast<PodSize>(n)));
  std::vector<TextRow> rows;
  for (const Results& group : groups) {
    rows.push_back({.name = group[0].policy});
    for (size_t n = 0; n < kPodSizes; ++n) {
      std::vector<int64_t> waits;
      for (const TimelineResult& result : group) {
        waits.insert(waits.end(), result.waits[n].begin(), result.waits[n].end());
      }
      std::sort(waits.begin(), waits.end());
      rows.back().cells.push_back(
          waits.empty() ? "-" : fmt::format("{:.2f}", StatsOf(waits).*field / kHour));
    }
  }
  AppendTable(title, columns, rows, out);
}

void AddBlocked(const std::vector<Results>& groups, std::string* out) {
  std::vector<TextRow> rows;
  for (const Results& group : groups) {
    const auto cell = [&](uint64_t BlockedPods::*field) {
      return fmt::format("{:.1f}", MeanOf(group, [&](auto& r) { return r.blocked.*field; }));
    };
    rows.push_back({.name = group[0].policy,
                    .cells = {cell(&BlockedPods::waited), cell(&BlockedPods::enough_idle),
                              cell(&BlockedPods::room_by_moves), cell(&BlockedPods::moved)}});
  }
  AppendTable(
      "Pods of a run that waited; that waited while enough GPU was idle in total; that fit after\n"
      "moving a few running pods, without eviction; and the number of pods moved for them",
      {"waited", "enough idle", "room by moves", "moved"}, rows, out);
}

std::vector<ChartLine> LinesOf(const std::vector<Results>& groups, double TimelinePoint::*field) {
  std::vector<ChartLine> lines;
  for (const Results& group : groups) {
    ChartLine line{.name = group[0].policy};
    for (size_t i = 0; i < group[0].points.size(); ++i) {
      LinePoint point{.x = group[0].points[i].seconds / kHour};
      point.y = MeanOf(group, [&](auto& r) { return r.points[i].*field; });
      const auto [least, most] = std::minmax_element(
          group.begin(), group.end(),
          [&](auto& a, auto& b) { return a.points[i].*field < b.points[i].*field; });
      point.min = least->points[i].*field;
      point.max = most->points[i].*field;
      line.points.push_back(point);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace

std::string ToJson(const std::vector<TimelineResult>& results) {
  Json::Array timelines;
  for (const TimelineResult& result : results) timelines.push_back(ToJson(result));
  return Json::MakeObject({{"timelines", Json::MakeArray(std::move(timelines))}}).Serialize() +
         "\n";
}

std::string ToCsv(const std::vector<TimelineResult>& results) {
  std::string out = "policy,seed,seconds,allocation,fragmentation,waiting_gpus\n";
  for (const TimelineResult& result : results) {
    for (const TimelinePoint& point : result.points) {
      fmt::format_to(std::back_inserter(out), "{},{},{:.0f},{:.4f},{:.4f},{:.3f}\n", result.policy,
                     result.seed, point.seconds, point.allocation, point.fragmentation,
                     point.waiting);
    }
  }
  return out;
}

std::string ToTable(const std::vector<TimelineResult>& results) {
  const std::vector<Results> groups = ByPolicy(results);
  const double gpus = MeanOf(groups[0], [](auto& r) { return r.capacity_milli; }) / 1000;
  const auto mean = [&](auto&& get) { return MeanOf(groups[0], get); };
  const double peak = mean([](auto& r) { return r.peak_milli; }) / 1000;
  std::string out = fmt::format(
      "{} nodes with {:.0f} GPUs; {:.0f} pods in {:.2f} hours request up to {:.1f} GPUs at a time "
      "({:.0f} %).\n{:.1f} pods fit on none of these nodes and are left out.\n",
      results[0].nodes, gpus, mean([](auto& r) { return r.pods; }),
      mean([](auto& r) { return r.observed_seconds / kHour; }), peak, 100 * peak / gpus,
      mean([](auto& r) { return r.never_scheduled; }));
  AddWork(groups, &out);
  AddWaits(groups, "Waiting, hours, mean, by requested GPUs", &WaitStats::mean, &out);
  AddWaits(groups, "Waiting, hours, median", &WaitStats::p50, &out);
  AddWaits(groups, "Waiting, hours, 99th percentile", &WaitStats::p99, &out);
  AddBlocked(groups, &out);
  return out;
}

std::string ToSvg(const std::vector<TimelineResult>& results) {
  const std::vector<Results> groups = ByPolicy(results);
  const std::vector<ChartLine> allocation = LinesOf(groups, &TimelinePoint::allocation);
  return PlotPair("How the GPUs were used over time", groups[0].size(),
                  {.title = "Allocated, % of all GPUs", .x_label = "hours", .from_zero = true},
                  allocation,
                  {.title = "Fragmented, % of all GPUs", .x_label = "hours", .from_zero = true},
                  LinesOf(groups, &TimelinePoint::fragmentation));
}

}  // namespace tessera::replay
