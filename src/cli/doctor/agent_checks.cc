// SPDX-License-Identifier: Apache-2.0
// Checks of the agents' pages: metrics, and the use of limited containers.
#include "api/names.h"
#include "src/cli/doctor/checks.h"
#include "src/cli/output/text.h"
#include "src/formats/metric_line.h"

namespace tessera::cli {
namespace {

constexpr double kOldSampleSeconds = 30;  // the agents sample every second

void CheckAgentPages(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const auto& [node, page] : facts.agent_metrics) {
    if (page.ok()) continue;
    if (page.status().code() == Code::kPermissionDenied) {
      findings->AddNote("agents", "you have no right to read their metrics",
                        "it takes the right get on pods/proxy in namespace tessera-system",
                        "ask an administrator to bind you to Role tessera-view-usage there");
      return;  // one RBAC right covers all agents
    }
    findings->Add("node " + node, "the agent's metrics cannot be read",
                  std::string(page.status().message()),
                  "look at the log of the agent's pod on this node: kubectl -n tessera-system logs "
                  "POD");
  }
}

// DoctorFindings::Add or AddNote.
using AddFinding = void (DoctorFindings::*)(std::string, std::string, std::string, std::string);

// Reports each node where the sum of a metric is not 0.
void ReportSum(const ClusterFacts& facts, std::string_view metric, const char* problem,
               const char* cause, const char* fix, AddFinding add, DoctorFindings* findings) {
  for (const auto& [node, page] : facts.agent_metrics) {
    const double sum = page.ok() ? SumOf(*page, metric) : 0;
    if (sum <= 0) continue;
    (findings->*add)("node " + node, fmt::format("{}: {:g}", problem, sum), cause, fix);
  }
}

void CheckDriverHangs(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportSum(facts, "tessera_nvml_stuck_calls", "calls into the driver that hang now",
            "a GPU does not answer its driver (process state D)",
            "look at dmesg for XIDs; reset the GPU or reboot the node. Other GPUs keep working",
            &DoctorFindings::Add, findings);
}

void CheckStaleMetrics(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const auto& [node, page] : facts.agent_metrics) {
    if (!page.ok()) continue;
    for (const MetricLine& sample : SamplesOf(*page, "tessera_exporter_sample_age_seconds")) {
      if (sample.value < kOldSampleSeconds) continue;
      findings->Add(fmt::format("node {}, GPU {}", node, LabelIn(sample.labels, "uuid")),
                    fmt::format("its metrics are {:.0f} s old", sample.value),
                    "the GPU answers late or not at all",
                    "look at dmesg for XIDs; metrics of the other GPUs are current");
    }
  }
}

void CheckReportedXids(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const auto& [node, page] : facts.agent_metrics) {
    if (!page.ok()) continue;
    for (const MetricLine& sample : SamplesOf(*page, "tessera_xids_total")) {
      if (sample.value < 1) continue;
      findings->AddNote(
          fmt::format("node {}, GPU {}", node, LabelIn(sample.labels, "uuid")),
          fmt::format("the driver has reported XID {} since the agent started, count: {:g}",
                      LabelIn(sample.labels, "xid"), sample.value),
          "an error report of the driver",
          fmt::format("tessera gpus {} shows whether the GPU is healthy, and what to do", node));
    }
  }
}

void CheckUnredeemedTokens(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportSum(facts, "tessera_unredeemed_tokens", "containers that run without their GPUs",
            "the engine started them without tessera-runtime",
            "save the log of the node's agent, which names these pods; delete the agent's pod, "
            "whose successor configures the engine again; then delete the pods that the log names",
            &DoctorFindings::Add, findings);
}

void CheckLeavingPods(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportSum(facts, "tessera_leaving_containers", "deleted pods whose processes still use GPUs",
            "processes that do not end, mostly in state D",
            "tessera gpus NODE names GPU and pod; end the processes, or reboot the node",
            &DoctorFindings::AddNote, findings);
}

void CheckGrantsOfOtherGpus(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportSum(facts, "tessera_grants_named_other_gpus_total",
            "grants whose GPUs differ from the kubelet's",
            "pods of one size started together, and the kubelet gave them other device IDs than "
            "the agent preferred",
            "containers have the assigned GPUs; only tools that read PodResources show others",
            &DoctorFindings::AddNote, findings);
}

void CheckJournalRepairs(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportSum(facts, "tessera_journal_repairs_total", "repairs of the journal of grants",
            "the node lost power, or its disk is full or damaged",
            "check the disk of /var/lib/tessera", &DoctorFindings::AddNote, findings);
}

void CheckRejectedStarts(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportSum(facts, "tessera_starts_refused_total", "starts of containers that were rejected",
            "the agent runs with --binding=allocate, and the kubelet admitted pods of one size in "
            "another order than the agent expected",
            "delete the pods in StartError: their controllers create new ones",
            &DoctorFindings::AddNote, findings);
}

void ReportUses(const ClusterFacts& facts, bool (*has_problem)(const ContainerUse&),
                const char* problem, const char* cause, const char* fix, DoctorFindings* findings) {
  for (const auto& [node, page] : facts.agent_uses) {
    if (!page.ok()) continue;
    for (const ContainerUse& use : page->uses) {
      if (!has_problem(use)) continue;
      findings->Add(fmt::format("pod {}/{}, container {}", use.ns, use.pod, use.container),
                    fmt::format("{} on GPU {} of node {}", problem, use.gpu, node), cause, fix);
    }
  }
}

void CheckLimiterBypass(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportUses(
      facts, [](const ContainerUse& use) { return use.without_limiter > 0; },
      "processes bypass the limiter",
      "the program brings its own libcuda, has mounted something over /dev/tessera, or was started "
      "without the environment of its container",
      "the Event GPULimiterBypassed names the process; the value limits.stopBypass of the "
      "installation lists namespaces where the agent ends such processes",
      findings);
}

void CheckUnenforcedShares(const ClusterFacts& facts, DoctorFindings* findings) {
  ReportUses(
      facts, [](const ContainerUse& use) { return !use.limited; }, "the share is not enforced",
      "isolation was off when the container started (cgpu.disable.isolation of the node, or the "
      "chart's value), or its limits could not be set and limits.failOpen has its namespace",
      "set limits.enabled=true, remove the node label or the namespace, then restart the pod",
      findings);
}

void CheckRejectedAllocations(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const auto& [node, page] : facts.agent_uses) {
    if (!page.ok()) continue;
    for (const ContainerUse& use : page->uses) {
      if (use.rejected_allocations == 0) continue;
      findings->AddNote(
          fmt::format("pod {}/{}, container {}", use.ns, use.pod, use.container),
          fmt::format("{} {} rejected on GPU {} of node {}", use.rejected_allocations,
                      use.rejected_allocations == 1 ? "allocation was" : "allocations were",
                      use.gpu, node),
          fmt::format("the container may use {}, and used up to {}", MemoryText(use.limit),
                      MemoryText(use.peak)),
          "raise the container's request, or let the program reserve less memory");
    }
  }
}

}  // namespace

std::span<const DoctorCheck> AgentChecks() {
  static constexpr DoctorCheck kChecks[] = {
      {"agent-silent", "scrapes time out; an exporter hangs or is out of memory", CheckAgentPages},
      {"driver-hangs", "a hung GPU blocks monitoring of the whole node", CheckDriverHangs},
      {"stale-metrics", "metrics lag behind or stay blank after an XID", CheckStaleMetrics},
      {"xids-reported", "XIDs are missed, or seen once and never again", CheckReportedXids},
      {"containers-without-gpus", "\"Failed to initialize NVML\" in pods that were given a GPU",
       CheckUnredeemedTokens},
      {"gpus-of-gone-pods", "GPUs stay busy after their pod is gone; the next pod fails",
       CheckLeavingPods},
      {"kubelet-named-other-gpus", "pods of one size swap their GPUs in monitoring",
       CheckGrantsOfOtherGpus},
      {"journal-repaired", "after a crash the agent does not know which GPUs it gave out",
       CheckJournalRepairs},
      {"starts-rejected", "pods of one size get each other's GPUs", CheckRejectedStarts},
      {"limiter-bypassed", "memory and compute limits are ignored by some programs",
       CheckLimiterBypass},
      {"share-not-enforced", "tenants of one GPU exceed their shares", CheckUnenforcedShares},
      {"memory-limit-reached", "programs fail with CUDA_ERROR_OUT_OF_MEMORY",
       CheckRejectedAllocations},
  };
  return kChecks;
}

}  // namespace tessera::cli
