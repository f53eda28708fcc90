// SPDX-License-Identifier: Apache-2.0
#include "src/cli/doctor/facts.h"

#include <memory>

#include "api/names.h"
#include "src/cli/gpu_pods.h"
#include "src/device/node_annotation.h"
#include "src/formats/json.h"
#include "src/formats/metric_line.h"

namespace tessera::cli {
namespace {

void ReadAgents(ClusterClient& api, ClusterFacts* facts) {
  std::map<std::string, Result<std::string>> uses;
  for (const auto& [node, pod] : PodsByNode(facts->installation.pods, names::kAgent)) {
    const std::string name = TextAt(*pod, {"metadata", "name"});
    const Status none(Code::kUnavailable, "");
    api.ReadPage(name, names::kAgentMetricsPort, "/metrics",
                 &facts->agent_metrics.emplace(node, none).first->second);
    api.ReadPage(name, names::kAgentMetricsPort, names::kContainersPath,
                 &uses.emplace(node, none).first->second);
  }
  api.Wait();
  for (const auto& [node, page] : uses) {
    facts->agent_uses.emplace(node,
                              page.ok() ? DecodeUses(*page) : Result<UsagePage>(page.status()));
  }
}

}  // namespace

double SumOf(std::string_view page, std::string_view metric) {
  double sum = 0;
  for (const MetricLine& sample : SamplesOf(page, metric)) sum += sample.value;
  return sum;
}

void ClusterFacts::DeriveInventoriesAndAssignments() {
  inventories.clear();
  assignments.clear();
  for (const Json& node : *nodes) {
    const std::string text = TextAt(node, {"metadata", "annotations", names::kAnnotationDevices});
    const Result<device::NodeInventory> inventory = device::DecodeNodeInventory(text);
    if (inventory.ok()) inventories[TextAt(node, {"metadata", "name"})] = *inventory;
  }
  for (const Json& pod : *pods) {
    if (HasEnded(pod) || TextAt(pod, {"spec", "nodeName"}).empty()) continue;
    const std::string text = TextAt(pod, {"metadata", "annotations", names::kAnnotationAssignment});
    const Result<device::Assignment> assignment = device::DecodeAssignment(text);
    if (!text.empty() && assignment.ok()) assignments.emplace_back(&pod, *assignment);
  }
}

Result<std::unique_ptr<ClusterFacts>> ReadFacts(ClusterClient& api) {
  auto facts = std::make_unique<ClusterFacts>();
  ASSIGN_OR_RETURN(facts->installation, ReadInstallation(api));
  api.ReadList({.type = kube::kNodes}, &facts->nodes);
  api.ReadList({.type = kube::kPods}, &facts->pods);
  api.ReadList({.type = kube::kDaemonSets}, &facts->daemon_sets);
  api.ReadList({.type = kube::kRuntimeClasses}, &facts->runtime_classes);
  api.ReadObject({kube::kConfigMaps, "gpuquota", "kube-system", ""}, &facts->quota);
  api.Wait();
  RETURN_IF_ERROR(facts->nodes.status().Annotate("cannot list nodes"));
  RETURN_IF_ERROR(facts->pods.status().Annotate("cannot list pods of all namespaces"));
  ReadAgents(api, facts.get());
  facts->DeriveInventoriesAndAssignments();
  return facts;
}

}  // namespace tessera::cli
