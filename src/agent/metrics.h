// SPDX-License-Identifier: Apache-2.0
// Counters and histograms of the agent. Their names and help stand once, in metrics.cc.
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "src/base/metrics.h"

namespace tessera::agent {

struct AgentMetrics {
  LatencyHistogram allocate;
  LatencyHistogram allocate_own;
  LatencyHistogram preferred;
  LatencyHistogram grant;
  LabelledCounter calls_refused;  // by method
  LabelledCounter grants;         // by code
  LabelledCounter registrations;  // by code
  Counter kubelet_restarts;
  Counter socket_repairs;
  Counter list_and_watch_messages;
  LabelledCounter node_writes;  // by code
  Counter journal_repairs;
  Counter named_other_gpus;
  Counter starts_refused;
  std::atomic<uint64_t> leaving_containers{0};  // gauge
  Counter release_bounds_exceeded;
  std::atomic<uint64_t> unredeemed_tokens{0};  // gauge: containers
  LabelledCounter engine_checks;               // by result
  LabelledCounter engine_repairs;              // by result
};

// All families of `metrics`.
void WriteMetrics(const AgentMetrics& metrics, std::string_view resource, MetricsText* text);

}  // namespace tessera::agent
