// SPDX-License-Identifier: Apache-2.0
// Reads the objects that `tessera status` judges.
#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/cli/object_fields.h"
#include "src/cli/status.h"
#include "src/ledger/pod_request.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kSchedulerMetricsPort = "9411";
constexpr size_t kMaxWarnings = 10;  // pods whose Events are read
// The label of driver containers, which NVIDIA's operator sets, too.
constexpr const char* kDriverSelector = "app.kubernetes.io/component=nvidia-driver";

// Keeps only the fields of a node or pod that StatusOf reads, because a node's image list alone is
// longer than all these fields.
Json Reduced(const Json& object) {
  Json reduced = Json::MakeObject();
  for (const std::string_view part : {"metadata", "status", "spec"}) {
    const Json* value = object.Find(part);
    if (value == nullptr) continue;
    Json fields = Json::MakeObject();
    for (const std::string_view key :
         {"name", "namespace", "labels", "deletionTimestamp", "conditions", "podIP",
          "initContainerStatuses", "containerStatuses", "nodeName"}) {
      if (const Json* member = value->Find(key)) fields.Set(key, *member);
    }
    reduced.Set(part, std::move(fields));
  }
  return reduced;
}

// Keeps a pod that kube-scheduler cannot place because of an error; null for any other pod, which
// may wait for a free GPU.
Json FailedPlacement(const Json& pod) {
  const Json* scheduled = ConditionOf(pod, "PodScheduled");
  if (scheduled == nullptr || IsTrue(scheduled)) return {};
  const bool mentions_extender = MentionsExtender(scheduled->StringAt("message").value_or(""));
  const bool failed = scheduled->StringAt("reason").value_or("") == "SchedulerError";
  if (!mentions_extender && !(failed && ledger::RequestsGpus(pod))) return {};
  return Reduced(pod);
}

Result<std::string> ReadLeaderMetrics(ClusterClient& api, const std::string& leader) {
  if (leader.empty()) return Status(Code::kNotFound, "no replica of the scheduler leads");
  Result<std::string> page = std::string();
  api.ReadPage(leader, kSchedulerMetricsPort, "/metrics", &page);
  api.Wait();
  return page;
}

// A reason such as a missing ConfigMap is only in an Event. A user who may not list Events sees the
// pods without it.
StringMap WarningsOf(ClusterClient& api, const std::vector<Json>& pods) {
  std::vector<std::string> names;
  for (const Json& pod : pods) {
    if (names.size() < kMaxWarnings && !IsTrue(ConditionOf(pod, "Ready")))
      names.push_back(TextAt(pod, {"metadata", "name"}));
  }
  std::vector<Result<std::vector<Json>>> lists(names.size(), std::vector<Json>());
  for (size_t i = 0; i < names.size(); ++i) {
    api.ReadList({.type = kube::kEvents,
                  .ns = std::string(names::kSystemNamespace),
                  .field_selector = "type=Warning,involvedObject.name=" + names[i]},
                 &lists[i]);
  }
  api.Wait();
  StringMap warnings;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!lists[i].ok() || lists[i]->empty()) continue;
    const Json& last = *std::ranges::max_element(*lists[i], {}, [](const Json& event) {
      return event.StringAt("lastTimestamp").value_or("");
    });
    warnings[names[i]] = fmt::format("{}: {}", last.StringAt("reason").value_or(""),
                                     last.StringAt("message").value_or(""));
  }
  return warnings;
}

}  // namespace

Result<InstallationObjects> ReadInstallation(ClusterClient& api, const std::string& node_selector) {
  const std::string ns(names::kSystemNamespace);
  const std::string scheduler(names::kScheduler), webhook(names::kWebhook);
  InstallationObjects objects;
  Result<std::vector<Json>> pods = std::vector<Json>(), nodes = std::vector<Json>();
  Result<std::vector<Json>> driver_pods = std::vector<Json>(), unplaced = std::vector<Json>();
  api.ReadList({.type = kube::kPods, .ns = ns}, &pods, Reduced);
  api.ReadList({.type = kube::kNodes, .label_selector = node_selector}, &nodes, Reduced);
  api.ReadList({.type = kube::kDaemonSets,
                .ns = ns,
                .label_selector = fmt::format("app.kubernetes.io/name={}", names::kAgent)},
               &objects.agent_daemonsets);
  api.ReadList({.type = kube::kDaemonSets, .label_selector = kDriverSelector},
               &objects.driver_daemonsets);
  api.ReadList({.type = kube::kPods, .label_selector = kDriverSelector}, &driver_pods, Reduced);
  api.ReadList({.type = kube::kPods, .field_selector = "spec.nodeName=,status.phase=Pending"},
               &unplaced, FailedPlacement);
  api.ReadObject({kube::kDeployments, std::string(names::kOperator), ns, ""},
                 &objects.operator_deployment);
  api.ReadObject({kube::kTesseras, std::string(names::kCustomResourceName), "", ""},
                 &objects.tessera_resource);
  api.ReadObject({kube::kDeployments, scheduler, ns, ""}, &objects.scheduler_deployment);
  api.ReadObject({kube::kEndpointSlices, scheduler, ns, ""}, &objects.scheduler_endpoints);
  api.ReadObject({kube::kValidatingWebhooks, webhook, "", ""}, &objects.webhook);
  api.Wait();
  RETURN_IF_ERROR(pods.status().Annotate("pods"));
  RETURN_IF_ERROR(nodes.status().Annotate("nodes"));
  objects.pods = *std::move(pods);
  objects.nodes = *std::move(nodes);
  objects.warnings = WarningsOf(api, objects.pods);
  // Without the driver's pods, the node's condition still shows that its driver does not work.
  if (driver_pods.ok()) objects.driver_pods = *std::move(driver_pods);
  if (unplaced.ok()) objects.failed_placements = *std::move(unplaced);
  std::erase_if(objects.failed_placements, [](const Json& pod) { return pod.is_null(); });
  objects.leader_metrics = ReadLeaderMetrics(api, LeaderOf(objects));
  objects.audit = AuditInstallation(api, objects.tessera_resource);
  return objects;
}

}  // namespace tessera::cli
