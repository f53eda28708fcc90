// SPDX-License-Identifier: Apache-2.0
#include "src/replay/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "src/replay/workload.h"

namespace tessera::replay {
namespace {

constexpr double kLifetimeJitter = 0.1;

// Uniform between -1/2 and 1/2.
double UniformAroundZero(Random& random) {
  return static_cast<double>(random.Next() >> 11) * 0x1p-53 - 0.5;
}

int64_t CutLifetime(const TracePod& pod) {
  return std::min(pod.deleted - pod.created, kMaxLifetimeSeconds);
}

double GpuTimeOf(const TracePod& pod) {
  return static_cast<double>(pod.milli()) * static_cast<double>(CutLifetime(pod));
}

// For each pod, the fraction of all GPU time that earlier pods and half of this pod take.
std::vector<double> ArrivalPositions(const std::vector<TracePod>& pods) {
  std::vector<uint32_t> order(pods.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::tie(pods[a].created, pods[a].name, a) < std::tie(pods[b].created, pods[b].name, b);
  });
  std::vector<double> positions(pods.size());
  double done = 0;
  for (const uint32_t i : order) {
    positions[i] = done + GpuTimeOf(pods[i]) / 2;
    done += GpuTimeOf(pods[i]);
  }
  for (double& position : positions) position /= done;
  return positions;
}

void SortByTime(const std::vector<TracePod>& pods, std::vector<Arrival>* arrivals) {
  std::stable_sort(arrivals->begin(), arrivals->end(), [&](const Arrival& a, const Arrival& b) {
    return std::tie(a.created, pods[a.pod].name, a.pod) <
           std::tie(b.created, pods[b.pod].name, b.pod);
  });
}

}  // namespace

Sample AsRecorded(const std::vector<TracePod>& pods) {
  Sample sample{.begin = INT64_MAX};
  for (uint32_t i = 0; i < pods.size(); ++i) {
    const TracePod& pod = pods[i];
    sample.arrivals.push_back({i, pod.created, pod.deleted - pod.created});
    sample.begin = std::min(sample.begin, pod.created);
    sample.end = std::max(sample.end, pod.deleted);
  }
  SortByTime(pods, &sample.arrivals);
  return sample;
}

Sample SteadyLoad(const std::vector<TracePod>& pods, int64_t capacity, int load, Random& random) {
  const std::vector<double> positions = ArrivalPositions(pods);
  Sample sample;
  std::vector<double> fractions;  // of the observed time, at which pods arrive
  double gpu_time = 0;
  for (const uint32_t i : Arrivals(pods, capacity, 100 * kRequestedMultiple, random)) {
    const double lifetime = static_cast<double>(CutLifetime(pods[i])) *
                            (1 + kLifetimeJitter * UniformAroundZero(random));
    double fraction = std::abs(positions[i] + kArrivalJitter * UniformAroundZero(random));
    if (fraction > 1) fraction = 2 - fraction;
    fractions.push_back(fraction);
    sample.arrivals.push_back({.pod = i, .lifetime = std::lround(lifetime)});
    gpu_time += lifetime * static_cast<double>(pods[i].milli());
  }
  const double span = gpu_time / (static_cast<double>(capacity) * load / 100);
  sample.end = std::max<int64_t>(std::lround(span), 1);
  for (size_t i = 0; i < fractions.size(); ++i) {
    sample.arrivals[i].created =
        static_cast<int64_t>(fractions[i] * static_cast<double>(sample.end));
  }
  SortByTime(pods, &sample.arrivals);
  return sample;
}

int64_t PeakMilli(const std::vector<TracePod>& pods, const std::vector<Arrival>& arrivals) {
  std::vector<std::pair<int64_t, int64_t>> changes;  // by time; ends before starts
  for (const Arrival& arrival : arrivals) {
    const int64_t milli = pods[arrival.pod].milli();
    changes.emplace_back(arrival.created, milli);
    changes.emplace_back(arrival.created + arrival.lifetime, -milli);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0, peak = 0;
  for (const auto& [time, milli] : changes) {
    now += milli;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace tessera::replay
