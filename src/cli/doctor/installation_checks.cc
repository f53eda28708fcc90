// SPDX-License-Identifier: Apache-2.0
// Checks of the installation: its components, and other systems beside it.
#include <algorithm>
#include <map>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/cli/doctor/checks.h"
#include "src/cli/gpu_pods.h"
#include "src/cli/other_plugins.h"
#include "src/components/cluster_policy.h"
#include "src/formats/json.h"
#include "src/formats/metric_line.h"
#include "src/ledger/pod_request.h"
#include "src/placement/quota.h"

namespace tessera::cli {
namespace {

constexpr int64_t kManyRestarts = 5;

void CheckComponents(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const StatusLine& line : StatusOf(facts.installation).components) {
    if (!line.works && line.name != "GPUs") {
      findings->Add(line.name, line.detail, "the component does not work", line.fix);
    }
  }
}

void CheckAgentPods(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const StatusLine& line : StatusOf(facts.installation).nodes) {
    if (!line.agent_fails) continue;  // other checks report the condition GPUReady
    findings->Add("node " + line.name, line.detail, "the agent's pod does not become ready",
                  line.fix);
  }
}

void CheckRestarts(const ClusterFacts& facts, DoctorFindings* findings) {
  for (const Json& pod : *facts.pods) {
    if (TextAt(pod, {"metadata", "namespace"}) != names::kSystemNamespace) continue;
    for (const Json& container : ItemsAt(pod, {"status", "containerStatuses"})) {
      const std::string reason = TextAt(container, {"lastState", "terminated", "reason"});
      const int64_t restarts = container.IntAt("restartCount").value_or(0);
      if (reason != "OOMKilled" && restarts < kManyRestarts) continue;
      const std::string name = TextAt(pod, {"metadata", "name"});
      findings->Add(
          fmt::format("pod {}, container {}", name, container.StringAt("name").value_or("")),
          fmt::format("{} restarts{}", restarts, reason.empty() ? "" : ", the last: " + reason),
          reason == "OOMKilled" ? "its memory limit is too low for this node"
                                : "the container ends by itself: its log has the reason",
          reason == "OOMKilled"
              ? "raise agent.resources or scheduler.resources"
              : fmt::format("kubectl -n {} logs {} --previous", names::kSystemNamespace, name));
    }
  }
}

void CheckVersions(const ClusterFacts& facts, DoctorFindings* findings) {
  std::map<std::string, std::string> component_of_version;
  for (const auto& [node, page] : facts.agent_metrics) {
    if (!page.ok()) continue;
    for (const MetricLine& sample : SamplesOf(*page, "tessera_build_info")) {
      component_of_version.emplace(LabelIn(sample.labels, "version"), "agent of node " + node);
    }
  }
  if (facts.installation.leader_metrics.ok()) {
    for (const MetricLine& sample :
         SamplesOf(*facts.installation.leader_metrics, "tessera_build_info")) {
      component_of_version.emplace(LabelIn(sample.labels, "version"), "scheduler");
    }
  }
  if (component_of_version.size() < 2) return;
  std::string text;
  for (const auto& [version, component] : component_of_version) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", version, component);
  }
  findings->AddNote("cluster", "components have different versions: " + text,
                    "an upgrade under way, or one that stopped",
                    "kubectl -n tessera-system rollout status daemonset/tessera-agent");
}

// Whether NVIDIA's operator and Tessera manage the same node. In one cluster they may manage
// different nodes.
bool ManageSameNode(const ClusterFacts& facts) {
  return std::ranges::any_of(*facts.nodes, [&](const Json& node) {
    return components::IsManagedByNvidia(node) &&
           facts.inventories.contains(TextAt(node, {"metadata", "name"}));
  });
}

void CheckOtherPlugins(const ClusterFacts& facts, DoctorFindings* findings) {
  if (!facts.daemon_sets.ok() || facts.inventories.empty()) return;
  for (const Json& set : *facts.daemon_sets) {
    const Json* status = set.Find("status");
    if (status != nullptr && status->IntAt("desiredNumberScheduled").value_or(0) == 0) continue;
    const std::string other(OtherPluginOf(set));
    if (other.empty() || (IsRunByNvidiaOperator(set) && !ManageSameNode(facts))) continue;
    findings->Add("DaemonSet " + NameOfPod(set), other + " runs beside Tessera",
                  "two systems offer the same GPUs, and each may give them to a pod",
                  "remove one of them: tessera migrate --dry-run says how");
  }
}

void CheckRuntimeClass(const ClusterFacts& facts, DoctorFindings* findings) {
  if (!facts.runtime_classes.ok()) return;
  for (const Json& type : *facts.runtime_classes) {
    if (TextAt(type, {"metadata", "name"}) == names::kRuntimeHandler) return;
  }
  for (const Json& pod : *facts.pods) {
    if (TextAt(pod, {"spec", "runtimeClassName"}) != names::kRuntimeHandler) continue;
    findings->Add("pod " + NameOfPod(pod), "RuntimeClass nvidia does not exist",
                  "the chart was installed without it, or another chart removed it",
                  "set runtime.enabled=true in the installation");
  }
}

void CheckExtender(const ClusterFacts& facts, DoctorFindings* findings) {
  if (!facts.installation.leader_metrics.ok()) return;
  if (FilterRequests(*facts.installation.leader_metrics).value_or(0) > 0) return;
  for (const Json& pod : *facts.pods) {
    if (!ledger::RequestsGpus(pod) || TextAt(pod, {"spec", "nodeName"}).empty()) continue;
    findings->AddNote("kube-scheduler", "pods with GPUs run, and tessera-scheduler was never asked",
                      "kube-scheduler has no extender, or the scheduler has just restarted",
                      std::string(kConnectKubeScheduler));
    return;
  }
}

void CheckQuotaConfigMap(const ClusterFacts& facts, DoctorFindings* findings) {
  if (!facts.quota.ok()) return;
  const std::string text = TextAt(*facts.quota, {"data", "gpu_quota"});
  const Status status = placement::ParseQuota(text).status();
  if (status.ok()) return;
  findings->Add("ConfigMap kube-system/gpuquota", "the quota cannot be read",
                std::string(status.message()),
                "correct the key gpu_quota: the last valid quota stays in force until the "
                "scheduler restarts");
}

void CheckUnreadObjects(const ClusterFacts& facts, DoctorFindings* findings) {
  const std::pair<const char*, Status> kinds[] = {
      {"DaemonSets", facts.daemon_sets.status()},
      {"RuntimeClasses", facts.runtime_classes.status()},
      {"ConfigMap kube-system/gpuquota", facts.quota.status()}};
  for (const auto& [kind, status] : kinds) {
    if (status.ok() || status.code() == Code::kNotFound) continue;
    findings->AddNote(kind, "not checked", std::string(status.message()),
                      "ask for get and list on it");
  }
}

}  // namespace

std::span<const DoctorCheck> InstallationChecks() {
  static constexpr DoctorCheck kChecks[] = {
      {"component-broken", "the installation never becomes ready, and no message has the reason",
       CheckComponents},
      {"agent-not-ready", "pods stuck in Init; an image that cannot be pulled", CheckAgentPods},
      {"component-restarts", "a component is out of memory, or restarts again and again",
       CheckRestarts},
      {"version-skew", "after an upgrade some nodes behave as before", CheckVersions},
      {"other-device-plugin", "two device plugins give one GPU to two pods", CheckOtherPlugins},
      {"runtime-class-missing", "no runtime for \"nvidia\" is configured", CheckRuntimeClass},
      {"extender-not-asked", "pods of shares land on GPUs that have no room", CheckExtender},
      {"quota-invalid", "a quota does not hold after its ConfigMap was edited",
       CheckQuotaConfigMap},
      {"not-checked", "a report leaves out what its reader may not see", CheckUnreadObjects},
  };
  return kChecks;
}

}  // namespace tessera::cli
