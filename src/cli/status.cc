// SPDX-License-Identifier: Apache-2.0
#include "src/cli/status.h"

#include <algorithm>
#include <map>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/cli/object_fields.h"
#include "src/cli/output/table.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kNameLabel = "app.kubernetes.io/name";

int64_t CountAt(const Json& json, std::string_view key) {
  const Json* status = json.Find("status");
  return status == nullptr ? 0 : status->IntAt(key).value_or(0);
}

std::string Kubectl(std::string_view rest) {
  return fmt::format("kubectl -n {} {}", names::kSystemNamespace, rest);
}

// A component of which an object could not be read.
StatusLine Unreadable(std::string name, const Status& status, std::string_view what) {
  if (status.code() == Code::kNotFound) {
    return {std::move(name), false, fmt::format("{} is missing", what),
            "install the chart: docs/tasks/install.md"};
  }
  return {std::move(name), false, std::string(status.message()),
          "ask for the right to read it: ClusterRole tessera-view"};
}

// Why a pod is not ready, from its containers or its scheduling; "" if it is ready.
std::string ProblemOfPod(const Json& pod) {
  if (IsTrue(ConditionOf(pod, "Ready"))) return "";
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : ItemsAt(pod, {"status", list})) {
      const std::string name = container.StringAt("name").value_or("");
      if (const Json* waiting = At(container, {"state", "waiting"})) {
        const std::string reason = waiting->StringAt("reason").value_or("");
        if (reason == "PodInitializing" || reason.empty()) continue;
        return fmt::format("container {}: {}: {}", name, reason,
                           waiting->StringAt("message").value_or(""));
      }
      const Json* ended = At(container, {"state", "terminated"});
      if (ended != nullptr && ended->IntAt("exitCode").value_or(0) != 0) {
        return fmt::format("container {} ended with exit code {}", name,
                           ended->IntAt("exitCode").value_or(0));
      }
    }
  }
  const Json* scheduled = ConditionOf(pod, "PodScheduled");
  if (scheduled != nullptr && !IsTrue(scheduled)) {
    return scheduled->StringAt("message").value_or("not scheduled");
  }
  return "not ready yet";
}

std::string FixOfPod(const std::string& pod, const std::string& problem) {
  if (problem.find("Image") != std::string::npos) {
    return "give the node the image, or set image.registry and image.tag of the chart";
  }
  if (problem.find("container ") == 0) {
    const std::string container = problem.substr(10, problem.find_first_of(": ", 10) - 10);
    return Kubectl(fmt::format("logs {} -c {} --previous", pod, container));
  }
  return Kubectl(fmt::format("describe pod {}", pod));
}

StatusLine AgentLine(const InstallationObjects& objects) {
  if (!objects.agent_daemonset.ok()) {
    return Unreadable("agent", objects.agent_daemonset.status(), "DaemonSet tessera-agent");
  }
  const int64_t wanted = CountAt(*objects.agent_daemonset, "desiredNumberScheduled");
  const int64_t ready = CountAt(*objects.agent_daemonset, "numberReady");
  StatusLine line{"agent", ready == wanted, fmt::format("{} of {} nodes ready", ready, wanted), ""};
  if (!line.works) line.fix = "see the nodes below";
  return line;
}

StatusLine SchedulerLine(const InstallationObjects& objects) {
  if (!objects.scheduler_deployment.ok()) {
    return Unreadable("scheduler", objects.scheduler_deployment.status(),
                      "Deployment tessera-scheduler");
  }
  const Json* spec = objects.scheduler_deployment->Find("spec");
  const int64_t wanted = spec == nullptr ? 1 : spec->IntAt("replicas").value_or(1);
  const int64_t ready = CountAt(*objects.scheduler_deployment, "readyReplicas");
  const std::string leader = LeaderOf(objects);
  StatusLine line{"scheduler", ready == wanted && !leader.empty(),
                  fmt::format("{} of {} replicas ready, {}", ready, wanted,
                              leader.empty() ? "no replica leads" : leader + " leads"),
                  ""};
  if (line.works) return line;
  line.fix = Kubectl("logs deployment/tessera-scheduler");
  for (const Json& pod : objects.pods) {
    if (TextAt(pod, {"metadata", "labels", kNameLabel}) != names::kScheduler) continue;
    const std::string problem = ProblemOfPod(pod);
    if (problem.empty()) continue;
    const std::string name = TextAt(pod, {"metadata", "name"});
    line.detail += fmt::format("; {}: {}", name, problem);
    line.fix = FixOfPod(name, problem);
    break;
  }
  return line;
}

StatusLine WebhookLine(const InstallationObjects& objects) {
  if (objects.webhook.status().code() == Code::kNotFound) {
    return {"webhook", true, "off: invalid pods are rejected by the scheduler alone", ""};
  }
  if (!objects.webhook.ok()) return Unreadable("webhook", objects.webhook.status(), "");
  const Json::Array& webhooks = ItemsAt(*objects.webhook, {"webhooks"});
  const bool has_authority =
      !webhooks.empty() && std::ranges::all_of(webhooks, [](const Json& hook) {
        return !TextAt(hook, {"clientConfig", "caBundle"}).empty();
      });
  if (has_authority) return {"webhook", true, "has its certificate", ""};
  return {"webhook", false, "the scheduler has not written its certificate",
          Kubectl("logs deployment/tessera-scheduler | grep webhook")};
}

// Requests for the verb "filter" that the leader has answered.
std::optional<int64_t> FilterRequests(std::string_view metrics) {
  constexpr std::string_view kSeries =
      "tessera_scheduler_request_duration_seconds_count{verb=\"filter\"} ";
  const size_t at = metrics.find(kSeries);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = metrics.substr(at + kSeries.size());
  const Result<int64_t> count = ParseInt(rest.substr(0, rest.find('\n')));
  return count.ok() ? std::optional(*count) : std::nullopt;
}

StatusLine KubeSchedulerLine(const InstallationObjects& objects) {
  const std::optional<int64_t> requests =
      objects.leader_metrics.ok() ? FilterRequests(*objects.leader_metrics) : std::nullopt;
  if (!requests) {
    return {"kube-scheduler", true,
            "unknown: " + std::string(objects.leader_metrics.ok()
                                          ? "the leader has no such metric"
                                          : objects.leader_metrics.status().message()),
            ""};
  }
  if (*requests > 0) {
    return {"kube-scheduler", true,
            fmt::format("connected: it has asked the leader about {} pod{}", *requests,
                        *requests == 1 ? "" : "s"),
            ""};
  }
  return {"kube-scheduler", true, "has not asked the leader about a pod yet",
          "if pods with GPUs run: docs/tasks/connect-kube-scheduler.md"};
}

std::string_view FixOfCondition(std::string_view reason) {
  if (reason == names::kReasonGpuUnhealthy) return "docs/concepts/health.md; tessera gpus NODE";
  if (reason == names::kReasonDriverNotReady) {
    return "install the driver, or set agent.driverRoot of the chart";
  }
  if (reason == names::kReasonRuntimeNotConfigured) {
    return "docs/tasks/troubleshoot.md, pods start without their GPUs";
  }
  return "docs/tasks/troubleshoot.md";
}

// A node with GPUs, or whose agent does not run, has a line if something is wrong.
std::optional<StatusLine> NodeLine(const Json& node, const Json* agent) {
  const std::string name = TextAt(node, {"metadata", "name"});
  const Json* gpus = ConditionOf(node, names::kConditionGpuReady);
  if (!IsTrue(ConditionOf(node, "Ready"))) {
    if (gpus == nullptr) return std::nullopt;
    return StatusLine{name, false, "the kubelet does not report the node as ready",
                      "kubectl describe node " + name};
  }
  if (agent != nullptr) {
    const std::string problem = ProblemOfPod(*agent);
    const std::string pod = TextAt(*agent, {"metadata", "name"});
    if (!problem.empty()) {
      return StatusLine{name, false, fmt::format("{}: {}", pod, problem), FixOfPod(pod, problem)};
    }
  }
  // The agent writes no condition for a node that never had a GPU.
  if (gpus == nullptr || IsTrue(gpus)) return std::nullopt;
  if (agent == nullptr) {
    return StatusLine{name, false, "no agent runs on it, and it had GPUs",
                      "check daemonsets.nodeSelector and tolerations of the chart"};
  }
  const std::string reason = gpus->StringAt("reason").value_or("");
  return StatusLine{name, false,
                    fmt::format("{}: {}", reason, gpus->StringAt("message").value_or("")),
                    std::string(FixOfCondition(reason))};
}

void AddItems(const std::vector<StatusLine>& lines, std::string_view kind, Listing* list) {
  for (const StatusLine& line : lines) {
    Json item = Json::MakeObject({{"kind", Json::String(kind)},
                                  {"metadata", MetadataOf("", line.name)},
                                  {"works", Json::Bool(line.works)},
                                  {"detail", Json::String(line.detail)}});
    if (!line.fix.empty()) item.Set("fix", Json::String(line.fix));
    list->rows.push_back({std::move(item), {}});
  }
}

void AddLines(const std::vector<StatusLine>& lines, std::string_view header, TextOutput* output) {
  TextTable table({std::string(header), "STATUS", "DETAIL"});
  for (const StatusLine& line : lines) {
    table.Add({line.name,
               {line.works ? "ok" : "problem", line.works ? Tone::kGood : Tone::kBad},
               line.detail});
    if (!line.fix.empty()) table.Add({"", "", {"fix: " + line.fix, Tone::kQuiet}});
  }
  output->Add(table);
}

}  // namespace

bool InstallationStatus::works() const {
  return nodes.empty() && std::ranges::all_of(components, &StatusLine::works);
}

std::string LeaderOf(const InstallationObjects& objects) {
  if (!objects.scheduler_endpoints.ok()) return "";
  const Json::Array& endpoints = ItemsAt(*objects.scheduler_endpoints, {"endpoints"});
  if (endpoints.empty()) return "";
  const Json::Array& addresses = ItemsAt(endpoints[0], {"addresses"});
  if (addresses.empty()) return "";
  for (const Json& pod : objects.pods) {
    if (TextAt(pod, {"status", "podIP"}) == addresses[0].string_value() &&
        TextAt(pod, {"metadata", "labels", kNameLabel}) == names::kScheduler) {
      return TextAt(pod, {"metadata", "name"});
    }
  }
  return "";
}

InstallationStatus StatusOf(const InstallationObjects& objects) {
  InstallationStatus status;
  status.components = {AgentLine(objects), SchedulerLine(objects), WebhookLine(objects),
                       KubeSchedulerLine(objects)};
  std::map<std::string, const Json*> agents;  // by node
  for (const Json& pod : objects.pods) {
    if (TextAt(pod, {"metadata", "labels", kNameLabel}) != names::kAgent) continue;
    // A DaemonSet's pod names its node in spec.nodeName only once it is bound.
    const std::string node = TextAt(pod, {"spec", "nodeName"});
    if (!node.empty()) agents[node] = &pod;
  }
  int64_t with_gpus = 0, ready = 0;
  for (const Json& node : objects.nodes) {
    const Json* condition = ConditionOf(node, names::kConditionGpuReady);
    with_gpus += condition != nullptr ? 1 : 0;
    ready += IsTrue(condition) ? 1 : 0;
    const auto agent = agents.find(TextAt(node, {"metadata", "name"}));
    if (auto line = NodeLine(node, agent == agents.end() ? nullptr : agent->second)) {
      status.nodes.push_back(*std::move(line));
    }
  }
  std::ranges::sort(status.nodes, {}, &StatusLine::name);
  status.components.push_back(
      {"GPUs", ready == with_gpus,
       fmt::format("{} of {} nodes with GPUs have all of them healthy", ready, with_gpus),
       ready == with_gpus ? "" : "see the nodes below"});
  return status;
}

Result<std::string> ShowStatus(const InstallationStatus& status, const Style& style) {
  if (style.shows_cells()) {
    TextOutput output(style.color);
    AddLines(status.components, "COMPONENT", &output);
    if (!status.nodes.empty()) {
      output.Space();
      AddLines(status.nodes, "NODE", &output);
    }
    return output.Take();
  }
  Listing list{.kind = "Status", .members = {{"works", Json::Bool(status.works())}}};
  AddItems(status.components, "Component", &list);
  AddItems(status.nodes, "Node", &list);
  return Print(std::move(list), style);
}

}  // namespace tessera::cli
