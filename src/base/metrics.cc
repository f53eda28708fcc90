// SPDX-License-Identifier: Apache-2.0
#include "src/base/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace tessera {
namespace {

std::string Seconds(Duration duration) {
  return fmt::format("{}", std::chrono::duration<double>(duration).count());
}

template <const auto& bounds>
void WriteBuckets(std::string_view name, std::string_view labels,
                  const Histogram<bounds>& histogram, MetricsText* text) {
  const std::string first_labels = labels.empty() ? "" : std::string(labels) + ",";
  uint64_t count = 0;
  for (size_t i = 0; i < bounds.size(); ++i) {
    count += histogram.bucket(i);
    text->AddSample(fmt::format("{}_bucket", name),
                    first_labels + MetricLabel("le", Seconds(bounds[i])), count);
  }
  count += histogram.bucket(bounds.size());
  text->AddSample(fmt::format("{}_bucket", name), first_labels + MetricLabel("le", "+Inf"), count);
  text->AddSample(fmt::format("{}_sum", name), labels,
                  std::chrono::duration<double>(histogram.sum()).count());
  text->AddSample(fmt::format("{}_count", name), labels, count);
}

}  // namespace

void LabeledCounter::Add(std::string_view label_value, uint64_t n) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(label_value);
  if (found != values_.end()) {
    found->second += n;
  } else {
    values_.emplace(label_value, n);
  }
}

std::map<std::string, uint64_t> LabeledCounter::values() const {
  const std::lock_guard lock(mutex_);
  return {values_.begin(), values_.end()};
}

void MetricsText::AddFamily(std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::AddSample(std::string_view name, std::string_view labels, uint64_t value) {
  text_.append(name);
  if (!labels.empty()) text_.append("{").append(labels).append("}");
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

void MetricsText::AddSample(std::string_view name, std::string_view labels, double value) {
  text_.append(name);
  if (!labels.empty()) text_.append("{").append(labels).append("}");
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

std::string MetricLabel(std::string_view name, std::string_view value) {
  std::string text(name);
  text += "=\"";
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') text += '\\';
    text += c;
  }
  return text += '"';
}

void WriteGauge(std::string_view name, std::string_view help, uint64_t value, MetricsText* text) {
  text->AddFamily(name, "gauge", help);
  text->AddSample(name, "", value);
}

void WriteCounter(std::string_view name, std::string_view help, const Counter& counter,
                  MetricsText* text) {
  text->AddFamily(name, "counter", help);
  text->AddSample(name, "", counter.value());
}

void WriteLabeled(std::string_view name, std::string_view help, std::string_view label,
                  const LabeledCounter& counter, MetricsText* text) {
  text->AddFamily(name, "counter", help);
  for (const auto& [value, count] : counter.values()) {
    text->AddSample(name, MetricLabel(label, value), count);
  }
}

void WriteHistogram(std::string_view name, std::string_view labels,
                    const LatencyHistogram& histogram, MetricsText* text) {
  WriteBuckets(name, labels, histogram, text);
}

void WriteHistogram(std::string_view name, std::string_view labels, const WaitHistogram& histogram,
                    MetricsText* text) {
  WriteBuckets(name, labels, histogram, text);
}

}  // namespace tessera
