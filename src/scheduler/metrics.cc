// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/metrics.h"

#include <set>

#include "src/admission/server.h"
#include "src/base/version.h"
#include "src/scheduler/cluster_metrics.h"

namespace tessera::scheduler {
namespace {

void WriteLedger(const ledger::ClusterLedger& ledger, MetricsText* text) {
  uint64_t gpu_nodes = 0;
  for (const auto& [name, node] : ledger.nodes()) gpu_nodes += node.id != placement::kNoNode;
  uint64_t assumed = 0, guessed = 0, problems = 0;
  for (const auto& [uid, pod] : ledger.pods()) {
    assumed += pod.binding_state == ledger::BindingState::kAssumed;
    guessed += pod.guessed();
    problems += !pod.problem().empty();
  }
  WriteGauge("tessera_scheduler_gpu_nodes", "Nodes with known GPUs.", gpu_nodes, text);
  WriteGauge("tessera_scheduler_assumed_pods",
             "Pods with assumed GPUs that the API server has not shown bound yet.", assumed, text);
  WriteGauge("tessera_scheduler_guessed_pods",
             "Bound pods with guessed GPUs: they bypassed the scheduler, and their agent has not "
             "published their GPUs.",
             guessed, text);
  std::set<std::string> overassigned;
  for (const auto& overassignment : ledger.FindOverassignments())
    overassigned.insert(overassignment.gpu);
  WriteGauge("tessera_scheduler_overassigned_gpus",
             "GPUs that bound pods hold beyond their capacity.", overassigned.size(), text);
  WriteGauge("tessera_scheduler_problem_pods",
             "Pods with an invalid request or invalid annotations, whose GPUs cannot be counted.",
             problems, text);
  text->AddFamily("tessera_scheduler_gpus", "gauge",
                  "Compute of healthy GPUs in number of GPUs: total and free.");
  const placement::Cluster& cluster = ledger.cluster();
  text->AddSample("tessera_scheduler_gpus", MetricLabel("state", "all"),
                  static_cast<double>(cluster.total_milli()) / kWholeGpu.count());
  text->AddSample("tessera_scheduler_gpus", MetricLabel("state", "free"),
                  static_cast<double>(cluster.free_milli()) / kWholeGpu.count());
}

void WriteAdmission(const admission::AdmissionCounts& counts, MetricsText* text) {
  constexpr std::string_view kName = "tessera_scheduler_admissions_total";
  text->AddFamily(
      kName, "counter",
      "Admission reviews by result; the result changed counts allowed reviews with a patch.");
  const std::pair<std::string_view, int64_t> samples[] = {{"allowed", counts.allowed},
                                                          {"changed", counts.changed},
                                                          {"refused", counts.rejected},
                                                          {"unreadable", counts.unreadable}};
  for (const auto& [result, count] : samples) {
    text->AddSample(kName, MetricLabel("result", result), static_cast<uint64_t>(count));
  }
}

}  // namespace

std::string MetricsPage(const SchedulerMetrics& metrics, const SchedulerState& state) {
  MetricsText text;
  text.AddFamily("tessera_build_info", "gauge", "The program's version.");
  text.AddSample("tessera_build_info", MetricLabel("version", kTesseraVersion), uint64_t{1});
  WriteGauge("tessera_scheduler_leading", "1 if this replica leads, else 0.", state.leading, &text);
  WriteGauge("tessera_scheduler_synced",
             "1 if the state of the whole cluster has been received, else 0.", state.synced, &text);
  constexpr std::string_view kLatency = "tessera_scheduler_request_duration_seconds";
  text.AddFamily(
      kLatency, "histogram",
      "Time from a complete request to its response; bind includes the API server's time.");
  for (size_t i = 0; i < kVerbNames.size(); ++i) {
    WriteHistogram(kLatency, MetricLabel("verb", kVerbNames[i]), metrics.latency[i], &text);
  }
  WriteLabeled("tessera_scheduler_refused_total", "Pods for which filter named no node, by reason.",
               "reason", metrics.rejected_pods, &text);
  WriteLabeled("tessera_scheduler_bindings_total", "Responses to bind, by code.", "code",
               metrics.bindings, &text);
  WriteLabeled("tessera_scheduler_bad_requests_total", "Invalid requests, by verb.", "verb",
               metrics.bad_requests, &text);
  WriteCounter("tessera_scheduler_expired_total",
               "Holds that ended because the pod was not bound in time.", metrics.expired_holds,
               &text);
  WriteLabeled(
      "tessera_scheduler_feed_troubles_total",
      "Errors of watching nodes, pods, disruption budgets and the quota, invalid objects included.",
      "what", metrics.feed_errors, &text);
  WriteLabeled("tessera_scheduler_repairs_total",
               "Evictions of pods that were assigned a GPU of an older pod, by result.", "result",
               metrics.overassignment_evictions, &text);
  constexpr std::string_view kWait = "tessera_scheduler_pod_wait_seconds";
  text.AddFamily(kWait, "histogram", "Time from the creation of a pod to its binding.");
  WriteHistogram(kWait, "", metrics.pod_wait, &text);
  trace::WriteMetrics(metrics.trace, &text);
  WriteGauge("tessera_scheduler_bindings_under_way",
             "Requested bindings that the watch has not shown yet.", state.bindings_under_way,
             &text);
  if (state.caller_certificate_ends) {
    WriteGauge("tessera_scheduler_client_certificate_expiration_timestamp_seconds",
               "Unix time when kube-scheduler's last client certificate expires.",
               static_cast<uint64_t>(std::chrono::floor<std::chrono::seconds>(
                                         state.caller_certificate_ends->time_since_epoch())
                                         .count()),
               &text);
  }
  if (state.admission != nullptr) WriteAdmission(*state.admission, &text);
  if (state.ledger == nullptr) return text.Take();
  WriteLedger(*state.ledger, &text);
  WriteAllocation(*state.ledger, &text);
  WriteFragmentation(*state.ledger, &text);
  WriteQuota(state.ledger->quota(), &text);
  if (state.wait_reasons != nullptr) {
    WriteWaitingPods(*state.ledger, *state.wait_reasons, state.now, &text);
  }
  return text.Take();
}

}  // namespace tessera::scheduler
