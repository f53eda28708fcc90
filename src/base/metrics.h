// SPDX-License-Identifier: Apache-2.0
// Counters and histograms, and their Prometheus text. Not a metrics library: a product has a struct
// with them as members, and writes their names and help where it makes its page.
//
// Threads: any. Counting costs one atomic addition, with labels one short lock.
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

// Counters by the value of one label.
class LabelledCounter {
 public:
  void Add(std::string_view label_value, uint64_t n = 1);
  std::map<std::string, uint64_t> values() const;

 private:
  // Calls come from several threads, a few a second.
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t, std::less<>> values_;
};

// How long calls took.
class LatencyHistogram {
 public:
  static constexpr std::array<Duration, 9> kBounds = {
      std::chrono::microseconds(50),  std::chrono::microseconds(100),
      std::chrono::microseconds(250), std::chrono::microseconds(500),
      std::chrono::milliseconds(1),   std::chrono::microseconds(2500),
      std::chrono::milliseconds(10),  std::chrono::milliseconds(100),
      std::chrono::seconds(1)};

  void Observe(Duration took);
  // Not cumulative; the last one is beyond all bounds.
  uint64_t bucket(size_t i) const { return buckets_[i].value(); }
  Duration sum() const { return Duration(static_cast<int64_t>(sum_nanos_.value())); }

 private:
  std::array<Counter, kBounds.size() + 1> buckets_;
  Counter sum_nanos_;
};

// Appends families in the text format of Prometheus.
class MetricsText {
 public:
  void Family(std::string_view name, std::string_view type, std::string_view help);
  // `labels` as they stand between braces, "" for none.
  void Sample(std::string_view name, std::string_view labels, uint64_t value);
  void Sample(std::string_view name, std::string_view labels, double value);
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

// `name="value"`, with what the format wants escaped.
std::string MetricLabel(std::string_view name, std::string_view value);

// One family each.
void WriteCounter(std::string_view name, std::string_view help, const Counter& counter,
                  MetricsText* text);
void WriteLabelled(std::string_view name, std::string_view help, std::string_view label,
                   const LabelledCounter& counter, MetricsText* text);
// The samples of one family, which the caller has begun.
void WriteHistogram(std::string_view name, std::string_view labels,
                    const LatencyHistogram& histogram, MetricsText* text);

}  // namespace tessera
