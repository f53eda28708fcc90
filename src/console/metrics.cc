// SPDX-License-Identifier: Apache-2.0
#include "src/console/metrics.h"

#include <malloc.h>

#include "src/base/version.h"

namespace tessera::console {
namespace {

uint64_t HeapBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

}  // namespace

std::string MetricsPage(const ConsoleMetrics& metrics, const ConsoleState& state) {
  MetricsText text;
  text.AddFamily("tessera_build_info", "gauge", "The program's version.");
  text.AddSample("tessera_build_info", MetricLabel("version", kTesseraVersion), uint64_t{1});
  WriteLabeled("tessera_console_responses_total", "Responses to browsers, by HTTP status.", "code",
               metrics.responses, &text);
  constexpr std::string_view kLatency = "tessera_console_response_seconds";
  text.AddFamily(kLatency, "histogram",
                 "Time from a complete request to its response; of streams, to their start.");
  WriteHistogram(kLatency, "", metrics.latency, &text);
  WriteGauge("tessera_console_sessions", "Sessions of people.", state.sessions, &text);
  WriteGauge("tessera_console_viewers", "Pages that follow the cluster now.", state.viewers, &text);
  WriteCounter("tessera_console_streams_total", "Event streams that have begun.", metrics.streams,
               &text);
  WriteCounter("tessera_console_snapshots_total",
               "Snapshots of the cluster that viewers were sent.", metrics.snapshots, &text);
  WriteCounter("tessera_console_slow_viewers_total",
               "Times that a viewer's queue was full, so that it gets a snapshot instead of "
               "changes.",
               metrics.slow_viewers, &text);
  WriteGauge("tessera_console_nodes", "Nodes with GPUs in the ledger.", state.nodes, &text);
  WriteGauge("tessera_console_pods", "Pods that request GPUs in the ledger.", state.pods, &text);
  WriteGauge("tessera_console_heap_bytes",
             "Memory in use by the program, most of it by the ledger.", HeapBytes(), &text);
  WriteGauge("tessera_console_synced", "1 if the console has read the cluster.",
             state.synced ? 1 : 0, &text);
  constexpr std::string_view kOutage = "tessera_console_outage_seconds";
  text.AddFamily(kOutage, "gauge",
                 "For how long the API server has not answered; 0 if it answers.");
  text.AddSample(kOutage, "",
                 state.outage ? std::chrono::duration<double>(*state.outage).count() : 0.0);
  WriteLabeled("tessera_console_watch_errors_total", "Errors of watches, by collection.",
               "collection", metrics.watch_errors, &text);
  return text.Take();
}

}  // namespace tessera::console
