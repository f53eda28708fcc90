// SPDX-License-Identifier: Apache-2.0
// Metrics of the console, and the page /metrics. Names and help are defined in metrics.cc.
// Threads: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "src/base/clock.h"
#include "src/base/metrics.h"

namespace tessera::console {

struct ConsoleMetrics {
  LabeledCounter responses;  // by HTTP status
  LatencyHistogram latency;  // from a complete request to its response, or to the start of a stream
  Counter streams;           // event streams that began
  Counter snapshots;         // snapshots that were begun for viewers
  Counter slow_viewers;      // times that a viewer's queue was full
  LabeledCounter watch_errors;  // by watched collection
};

// Current state for gauges.
struct ConsoleState {
  size_t sessions = 0;
  size_t viewers = 0;
  size_t nodes = 0;
  size_t pods = 0;
  bool synced = false;
  std::optional<Duration> outage;  // how long the API server has not answered
};

std::string MetricsPage(const ConsoleMetrics& metrics, const ConsoleState& state);

}  // namespace tessera::console
