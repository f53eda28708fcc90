// SPDX-License-Identifier: Apache-2.0
// Metrics of the scheduler, and the page /metrics. Names and help are defined in metrics.cc.
// Threads: any.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "src/base/clock.h"
#include "src/base/metrics.h"
#include "src/ledger/ledger.h"
#include "src/scheduler/wait_reasons.h"
#include "src/trace/tracer.h"

namespace tessera::admission {
struct AdmissionCounts;  // server.h
}  // namespace tessera::admission

namespace tessera::scheduler {

enum class ExtenderVerb : uint8_t { kFilter, kPrioritize, kBind, kPreempt };
inline constexpr std::array<std::string_view, 4> kVerbNames = {"filter", "prioritize", "bind",
                                                               "preempt"};

struct SchedulerMetrics {
  // From a complete request to its response, without network time.
  std::array<LatencyHistogram, kVerbNames.size()> latency;
  LabeledCounter rejected_pods;  // pods for which filter named no node, by reason
  LabeledCounter bindings;       // responses to bind, by code
  LabeledCounter bad_requests;   // by verb
  Counter expired_holds;         // holds that ended because the pod was not bound in time
  LabeledCounter feed_errors;    // by watched collection
  LabeledCounter overassignment_evictions;  // evictions because of over-assigned GPUs, by result
  WaitHistogram pod_wait;                   // from the creation of a pod to its binding
  trace::TraceMetrics trace;

  LatencyHistogram& latency_of(ExtenderVerb verb) { return latency[static_cast<size_t>(verb)]; }
};

// Current state for gauges.
struct SchedulerState {
  bool leading = false;
  bool synced = false;
  size_t bindings_under_way = 0;
  const ledger::ClusterLedger* ledger = nullptr;          // null while this replica does not lead
  const admission::AdmissionCounts* admission = nullptr;  // null without a webhook
  std::optional<WallTime> caller_certificate_ends{};      // client certificate of the last caller
  const WaitReasons* wait_reasons = nullptr;              // null while this replica does not lead
  WallTime now{};
};

std::string MetricsPage(const SchedulerMetrics& metrics, const SchedulerState& state);

}  // namespace tessera::scheduler
