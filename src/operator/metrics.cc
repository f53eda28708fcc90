// SPDX-License-Identifier: Apache-2.0
#include "src/operator/metrics.h"

#include "src/base/version.h"

namespace tessera::operators {
namespace {

void WriteResource(const StatusInput& status, MetricsText* text) {
  constexpr std::string_view kReady = "tessera_operator_component_ready";
  text->AddFamily(kReady, "gauge", "1 if all objects of the component are applied and ready.");
  for (const ComponentReport& component : status.components) {
    text->AddSample(kReady, MetricLabel("component", component.name),
                    uint64_t{component.state == ComponentState::kReady ? 1u : 0u});
  }
  WriteGauge("tessera_operator_spec_valid", "1 if the spec of the resource is valid.",
             status.spec_status.ok() ? 1 : 0, text);
  WriteGauge("tessera_operator_nodes", "Nodes of the cluster.", status.nodes.total, text);
  WriteGauge("tessera_operator_nodes_ready", "Nodes with GPUs that pods can use.",
             status.nodes.ready, text);
  WriteGauge("tessera_operator_nodes_with_problems", "Nodes whose agent or driver does not work.",
             status.nodes.problem_count, text);
  WriteGauge("tessera_operator_nodes_managed_by_nvidia", "Nodes that NVIDIA's operator manages.",
             status.nodes.managed_by_nvidia, text);
}

void WriteDrivers(const FleetReport& drivers, MetricsText* text) {
  constexpr std::string_view kNodes = "tessera_operator_driver_nodes";
  text->AddFamily(
      kNodes, "gauge",
      "Nodes with a managed driver, by pool and state of their upgrade: total, pending, "
      "in_progress, done, failed, unavailable; on_host have a driver of the host.");
  for (const DriverPoolReport& pool : drivers.pools) {
    const driver::UpgradeCounts& counts = pool.counts;
    for (const auto& [state, value] : {std::pair{"total", counts.total},
                                       {"pending", counts.pending},
                                       {"in_progress", counts.in_progress},
                                       {"done", counts.done},
                                       {"failed", counts.failed},
                                       {"unavailable", counts.unavailable},
                                       {"on_host", pool.on_host}}) {
      text->AddSample(
          kNodes, fmt::format("{},{}", MetricLabel("pool", pool.name), MetricLabel("state", state)),
          static_cast<uint64_t>(value));
    }
  }
}

}  // namespace

std::string MetricsPage(const OperatorMetrics& metrics, const OperatorState& state) {
  MetricsText text;
  text.AddFamily("tessera_build_info", "gauge", "The program's version.");
  text.AddSample("tessera_build_info", MetricLabel("version", kTesseraVersion), uint64_t{1});
  WriteGauge("tessera_operator_leading", "1 if this replica leads.", state.leading ? 1 : 0, &text);
  WriteGauge("tessera_operator_synced", "1 if the leader has read the cluster.",
             state.synced ? 1 : 0, &text);
  WriteLabeled("tessera_operator_applies_total",
               "Objects applied, by result: created, changed, unchanged or failed.", "result",
               metrics.applies, &text);
  WriteLabeled("tessera_operator_repairs_total",
               "Objects restored because another client edited or deleted them.", "component",
               metrics.repairs, &text);
  WriteCounter("tessera_operator_deletions_total",
               "Objects deleted because the spec no longer has them.", metrics.deletions, &text);
  WriteCounter("tessera_operator_status_writes_total", "Writes of the resource's status.",
               metrics.status_writes, &text);
  WriteLabeled("tessera_operator_watch_errors_total", "Errors of watches, by collection.",
               "collection", metrics.watch_errors, &text);
  constexpr std::string_view kReconcile = "tessera_operator_reconcile_seconds";
  text.AddFamily(kReconcile, "histogram",
                 "Time to compare the wanted with the actual state, without requests.");
  WriteHistogram(kReconcile, "", metrics.reconcile, &text);
  WriteLabeled(
      "tessera_operator_driver_upgrades_total",
      "Driver upgrades of nodes, by result: done or failed; rolled_back are those that went back "
      "to an earlier driver.",
      "result", metrics.driver_upgrades, &text);
  WriteLabeled(
      "tessera_operator_driver_evictions_total",
      "Evictions of pods for driver upgrades, by result: accepted, rejected (by a disruption "
      "budget or a throttling API server) or failed.",
      "result", metrics.driver_evictions, &text);
  if (state.status) WriteResource(*state.status, &text);
  if (state.status && state.status->drivers) WriteDrivers(*state.status->drivers, &text);
  return text.Take();
}

}  // namespace tessera::operators
