// SPDX-License-Identifier: Apache-2.0
#include "src/agent/metrics.h"

#include <string>

namespace tessera::agent {
namespace {

void WriteLatency(std::string_view name, std::string_view help, std::string_view resource,
                  const LatencyHistogram& histogram, MetricsText* text) {
  text->AddFamily(name, "histogram", help);
  WriteHistogram(name, MetricLabel("resource", resource), histogram, text);
}

}  // namespace

void WriteMetrics(const AgentMetrics& metrics, std::string_view resource, MetricsText* text) {
  WriteLatency("tessera_allocate_duration_seconds", "Time of Allocate calls of the kubelet.",
               resource, metrics.kubelet.allocate, text);
  WriteLatency("tessera_allocate_own_duration_seconds",
               "With --binding=allocate: time of Allocate calls without waiting for the kubelet's "
               "list of pods.",
               resource, metrics.grants.allocate_own, text);
  WriteLatency("tessera_preferred_allocation_duration_seconds",
               "Time of GetPreferredAllocation calls of the kubelet.", resource,
               metrics.kubelet.preferred_allocation, text);
  WriteLatency("tessera_grant_duration_seconds",
               "Time from the last byte of a request on the grant socket to its response.",
               resource, metrics.grants.grant, text);
  WriteLabeled("tessera_kubelet_calls_refused_total",
               "Calls of the kubelet that were answered with an error.", "method",
               metrics.kubelet.calls_refused, text);
  WriteLabeled("tessera_grants_total", "Answers on the grant socket.", "code",
               metrics.grants.grants, text);
  WriteLabeled("tessera_registrations_total", "Registrations with the kubelet.", "code",
               metrics.kubelet.registrations, text);
  WriteCounter("tessera_kubelet_restarts_total",
               "Kubelet restarts, detected when its socket is created again.",
               metrics.kubelet.kubelet_restarts, text);
  WriteCounter("tessera_plugin_socket_repairs_total",
               "Times that the plugin's socket was deleted and created again.",
               metrics.kubelet.socket_repairs, text);
  WriteCounter("tessera_list_and_watch_messages_total", "Device lists sent to the kubelet.",
               metrics.kubelet.list_and_watch_messages, text);
  WriteLabeled("tessera_node_writes_total",
               "Updates of the Node object (labels and annotations, conditions), by result code.",
               "code", metrics.node.node_writes, text);
  WriteCounter("tessera_journal_repairs_total",
               "Times that the grant journal was found torn or damaged.",
               metrics.grants.journal_repairs, text);
  WriteCounter("tessera_grants_named_other_gpus_total",
               "Grants of whole GPUs in which the kubelet's device IDs differ from the assignment.",
               metrics.grants.named_other_gpus, text);
  WriteCounter("tessera_starts_refused_total",
               "With --binding=allocate: PreStartContainer calls that were rejected, because the "
               "container's GPUs are unknown or differ from its assignment.",
               metrics.grants.starts_refused, text);
  text->AddFamily("tessera_leaving_containers", "gauge",
                  "Containers of deleted pods that still have processes on their GPUs.");
  text->AddSample("tessera_leaving_containers", "", metrics.grants.leaving_containers.load());
  WriteCounter("tessera_release_timeouts_total",
               "Containers whose GPUs were withheld, because processes of the pod had not ended "
               "within --release-timeout.",
               metrics.grants.release_timeouts, text);
  text->AddFamily(
      "tessera_unredeemed_tokens", "gauge",
      "Containers that run with a token and without their GPUs, because tessera-runtime has "
      "not requested their grants.");
  text->AddSample("tessera_unredeemed_tokens", "", metrics.grants.unredeemed_tokens.load());
  WriteLabeled(
      "tessera_engine_checks_total",
      "Checks of the container engine's configuration, by result: configured, changed or failed.",
      "result", metrics.node.engine_checks, text);
  WriteLabeled("tessera_engine_repairs_total",
               "With --repair-engine: times that the container engine was configured again.",
               "result", metrics.node.engine_repairs, text);
  trace::WriteMetrics(metrics.trace, text);
}

}  // namespace tessera::agent
