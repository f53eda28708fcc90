// SPDX-License-Identifier: Apache-2.0
// Counters and histograms, and the functions that write them in the text format of Prometheus.
// There is no registry: each component keeps its metrics in a struct, and gives them names and help
// texts when it writes its metrics page.
//
// Threads: any. Counting costs one atomic addition; with labels, one short lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "src/base/clock.h"

namespace tessera {

class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// One counter for each value of a label.
class LabeledCounter {
 public:
  void Add(std::string_view label_value, uint64_t n = 1);
  std::map<std::string, uint64_t> values() const;

 private:
  // Contention is low: Add is called a few times a second.
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t, std::less<>> values_;
};

inline constexpr std::array<Duration, 9> kLatencyBounds = {
    std::chrono::microseconds(50),  std::chrono::microseconds(100), std::chrono::microseconds(250),
    std::chrono::microseconds(500), std::chrono::milliseconds(1),   std::chrono::microseconds(2500),
    std::chrono::milliseconds(10),  std::chrono::milliseconds(100), std::chrono::seconds(1)};
inline constexpr std::array<Duration, 11> kWaitBounds = {
    std::chrono::seconds(1),  std::chrono::seconds(2),  std::chrono::seconds(5),
    std::chrono::seconds(10), std::chrono::seconds(30), std::chrono::minutes(1),
    std::chrono::minutes(5),  std::chrono::minutes(15), std::chrono::hours(1),
    std::chrono::hours(4),    std::chrono::hours(24)};

template <const auto& bounds>
class Histogram {
 public:
  static constexpr const auto& kBounds = bounds;

  void Observe(Duration took) {
    size_t i = 0;
    while (i < kBounds.size() && took > kBounds[i]) ++i;
    buckets_[i].Add();
    sum_nanos_.Add(static_cast<uint64_t>(took.count()));
  }
  // The number of values between the bounds i-1 and i, not cumulative. The last bucket has no upper
  // bound.
  uint64_t bucket(size_t i) const { return buckets_[i].value(); }
  Duration sum() const { return Duration(static_cast<int64_t>(sum_nanos_.value())); }

 private:
  std::array<Counter, bounds.size() + 1> buckets_;
  Counter sum_nanos_;
};
using LatencyHistogram = Histogram<kLatencyBounds>;  // duration of a call
using WaitHistogram = Histogram<kWaitBounds>;        // how long a pod waits

// Appends metric families in the text format of Prometheus.
class MetricsText {
 public:
  void AddFamily(std::string_view name, std::string_view type, std::string_view help);
  // `labels` without their braces, "" for none.
  void AddSample(std::string_view name, std::string_view labels, uint64_t value);
  void AddSample(std::string_view name, std::string_view labels, double value);
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// `name="value"`, escaped for the format.
std::string MetricLabel(std::string_view name, std::string_view value);

// Each of these functions writes one family.
void WriteGauge(std::string_view name, std::string_view help, uint64_t value, MetricsText* text);
void WriteCounter(std::string_view name, std::string_view help, const Counter& counter,
                  MetricsText* text);
void WriteLabeled(std::string_view name, std::string_view help, std::string_view label,
                  const LabeledCounter& counter, MetricsText* text);
// Writes the samples of a family for which the caller has called AddFamily.
void WriteHistogram(std::string_view name, std::string_view labels,
                    const LatencyHistogram& histogram, MetricsText* text);
void WriteHistogram(std::string_view name, std::string_view labels, const WaitHistogram& histogram,
                    MetricsText* text);

}  // namespace tessera
