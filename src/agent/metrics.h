// SPDX-License-Identifier: Apache-2.0
// All counters and histograms of the agent, and their text on /metrics. Names and help texts are in
// metrics.cc. Threads: any.
#pragma once

#include <string_view>

#include "src/agent/grants/grant_metrics.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/agent/node/node_metrics.h"
#include "src/base/metrics.h"
#include "src/trace/tracer.h"

namespace tessera::agent {

struct AgentMetrics {
  KubeletMetrics kubelet;
  GrantMetrics grants;
  NodeMetrics node;
  trace::TraceMetrics trace;
};

// All families of `metrics`.
void WriteMetrics(const AgentMetrics& metrics, std::string_view resource, MetricsText* text);

}  // namespace tessera::agent
