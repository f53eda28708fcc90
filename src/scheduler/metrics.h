// SPDX-License-Identifier: Apache-2.0
// What the scheduler counts, and its page /metrics. Names and help stand once, in metrics.cc.
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

namespace tessera::admission {
struct AdmissionCounts;  // server.h
}  // namespace tessera::admission

namespace tessera::scheduler {

enum class Verb : uint8_t { kFilter, kPrioritize, kBind, kPreempt };
inline constexpr std::array<std::string_view, 4> kVerbNames = {"filter", "prioritize", "bind",
                                                               "preempt"};

struct SchedulerMetrics {
  // From a whole request to its answer, without sockets.
  std::array<LatencyHistogram, kVerbNames.size()> latency;
  LabelledCounter refused;        // filter: pods without any node, by reason
  LabelledCounter bindings;       // by code
  LabelledCounter bad_requests;   // by verb
  Counter expired;                // held for a pod, and not bound in time
  LabelledCounter feed_troubles;  // by what
  LabelledCounter repairs;        // evictions because of over-assigned GPUs, by result
  WaitHistogram pod_wait;         // from the creation of a pod to its binding

  LatencyHistogram& of(Verb verb) { return latency[static_cast<size_t>(verb)]; }
};

// What is now.
struct SchedulerState {
  bool leading = false;
  bool synced = false;
  size_t bindings_under_way = 0;
  const ledger::ClusterLedger* ledger = nullptr;          // null while it does not lead
  const admission::AdmissionCounts* admission = nullptr;  // null without a webhook
  std::optional<WallTime> caller_certificate_ends{};      // what the last caller showed
  const WaitReasons* wait_reasons = nullptr;              // null while it does not lead
  WallTime now{};
};

std::string MetricsPage(const SchedulerMetrics& metrics, const SchedulerState& state);

}  // namespace tessera::scheduler
