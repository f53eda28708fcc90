// SPDX-License-Identifier: Apache-2.0
// Metrics of the operator, and the page /metrics. Names and help are defined in metrics.cc.
// Threads: any.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "src/base/metrics.h"
#include "src/operator/resource_status.h"

namespace tessera::operators {

struct OperatorMetrics {
  LabeledCounter applies;           // by result: created, changed, unchanged, failed
  LabeledCounter repairs;           // of edited or deleted objects, by component
  Counter deletions;                // of objects that are no longer rendered
  Counter status_writes;            // of the resource
  LabeledCounter watch_errors;      // by collection
  LabeledCounter driver_upgrades;   // of nodes, by result: done, failed, rolled_back
  LabeledCounter driver_evictions;  // by result: accepted, rejected, failed
  LatencyHistogram reconcile;  // time to compare the wanted with the actual state, without requests
};

// Current state for gauges.
struct OperatorState {
  bool leading = false;
  bool synced = false;
  std::optional<StatusInput> status;  // nullopt: the resource does not exist
};

std::string MetricsPage(const OperatorMetrics& metrics, const OperatorState& state);

}  // namespace tessera::operators
