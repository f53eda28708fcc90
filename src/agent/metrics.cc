// SPDX-License-Identifier: Apache-2.0
#include "src/agent/metrics.h"

#include <fmt/format.h>

#include <iterator>

namespace tessera::agent {
namespace {

std::string Seconds(Duration duration) {
  return fmt::format("{}", std::chrono::duration<double>(duration).count());
}

void WriteHistogram(std::string_view name, std::string_view help, std::string_view resource,
                    const LatencyHistogram& histogram, MetricsText* text) {
  text->Family(name, "histogram", help);
  const std::string label = MetricLabel("resource", resource);
  uint64_t count = 0;
  for (size_t i = 0; i < LatencyHistogram::kBounds.size(); ++i) {
    count += histogram.bucket(i);
    text->Sample(fmt::format("{}_bucket", name),
                 label + "," + MetricLabel("le", Seconds(LatencyHistogram::kBounds[i])), count);
  }
  count += histogram.bucket(LatencyHistogram::kBounds.size());
  text->Sample(fmt::format("{}_bucket", name), label + "," + MetricLabel("le", "+Inf"), count);
  text->Sample(fmt::format("{}_sum", name), label,
               std::chrono::duration<double>(histogram.sum()).count());
  text->Sample(fmt::format("{}_count", name), label, count);
}

void WriteCounter(std::string_view name, std::string_view help, const Counter& counter,
                  MetricsText* text) {
  text->Family(name, "counter", help);
  text->Sample(name, "", counter.value());
}

void WriteLabelled(std::string_view name, std::string_view help, std::string_view label,
                   const LabelledCounter& counter, MetricsText* text) {
  text->Family(name, "counter", help);
  for (const auto& [value, count] : counter.values()) {
    text->Sample(name, MetricLabel(label, value), count);
  }
}

}  // namespace

void LabelledCounter::Add(std::string_view label_value, uint64_t n) {
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(label_value);
  if (found != values_.end()) {
    found->second += n;
  } else {
    values_.emplace(label_value, n);
  }
}

std::map<std::string, uint64_t> LabelledCounter::values() const {
  const std::lock_guard lock(mutex_);
  return {values_.begin(), values_.end()};
}

void LatencyHistogram::Observe(Duration took) {
  size_t i = 0;
  while (i < kBounds.size() && took > kBounds[i]) ++i;
  buckets_[i].Add();
  sum_nanos_.Add(static_cast<uint64_t>(took.count()));
}

void MetricsText::Family(std::string_view name, std::string_view type, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::Sample(std::string_view name, std::string_view labels, uint64_t value) {
  text_.append(name);
  if (!labels.empty()) text_.append("{").append(labels).append("}");
  fmt::format_to(std::back_inserter(text_), " {}\n", value);
}

void MetricsText::Sample(std::string_view name, std::string_view labels, double value) {
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

void WriteMetrics(const AgentMetrics& metrics, std::string_view resource, MetricsText* text) {
  WriteHistogram("tessera_allocate_duration_seconds", "Time of Allocate calls of the kubelet.",
                 resource, metrics.allocate, text);
  WriteHistogram("tessera_preferred_allocation_duration_seconds",
                 "Time of GetPreferredAllocation calls of the kubelet.", resource,
                 metrics.preferred, text);
  WriteHistogram("tessera_grant_duration_seconds",
                 "Time from a whole request on the grant socket to its answer.", resource,
                 metrics.grant, text);
  WriteLabelled("tessera_kubelet_calls_refused_total",
                "Calls of the kubelet that were answered with an error.", "method",
                metrics.calls_refused, text);
  WriteLabelled("tessera_grants_total", "Answers on the grant socket.", "code", metrics.grants,
                text);
  WriteLabelled("tessera_registrations_total", "Registrations with the kubelet.", "code",
                metrics.registrations, text);
  WriteCounter("tessera_kubelet_restarts_total", "Times that the kubelet made its socket anew.",
               metrics.kubelet_restarts, text);
  WriteCounter("tessera_plugin_socket_repairs_total",
               "Times that the plugin's socket was removed by somebody and made again.",
               metrics.socket_repairs, text);
  WriteCounter("tessera_list_and_watch_messages_total", "Device lists sent to the kubelet.",
               metrics.list_and_watch_messages, text);
  WriteLabelled("tessera_node_writes_total", "Writes of node labels and annotations.", "code",
                metrics.node_writes, text);
  WriteCounter("tessera_journal_repairs_total",
               "Times that the grant journal was found torn or damaged.", metrics.journal_repairs,
               text);
}

}  // namespace tessera::agent
