// SPDX-License-Identifier: Apache-2.0
#include "src/cli/status_lines.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "api/names.h"
#include "src/base/strings.h"
#include "src/cli/gpu_pods.h"
#include "src/cli/object_fields.h"
#include "src/cli/output/text.h"
#include "src/components/objects.h"

namespace tessera::cli {
namespace {

constexpr size_t kMaxListedObjects = 10;  // in one line
constexpr std::string_view kUpgradeFailed = "upgrade-failed";

std::string Kubectl(std::string_view rest, std::string_view ns = names::kSystemNamespace) {
  return fmt::format("kubectl -n {} {}", ns, rest);
}

std::string LogsOfScheduler() {
  return Kubectl(fmt::format("logs deployment/{}", names::kScheduler));
}

// The API server throttles requests by priority level. A flow schema assigns the level.
constexpr std::string_view kFixOfThrottling =
    "give its flow schema a larger priority level: kubectl get "
    "flowschemas,prioritylevelconfigurations";

// What to do about an object that could not be read.
std::string FixOfError(const Status& status) {
  if (status.code() == Code::kResourceExhausted) {
    return fmt::format(
        "the API server throttles your requests: run tessera status again in a minute; if this "
        "continues, {}",
        kFixOfThrottling);
  }
  if (status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded) {
    return "check the API server: kubectl get --raw /readyz";
  }
  return "ask for the right to read it: ClusterRole tessera-view";
}

// Why a pod is not ready, from its containers or its scheduling; "" if it is ready.
std::string ProblemOfPod(const Json& pod, const StringMap& warnings) {
  if (IsTrue(ConditionOf(pod, "Ready"))) return "";
  for (const char* list : {"initContainerStatuses", "containerStatuses"}) {
    for (const Json& container : ItemsAt(pod, {"status", list})) {
      const std::string name = container.StringAt("name").value_or("");
      if (const Json* waiting = FindPath(container, {"state", "waiting"})) {
        const std::string reason = waiting->StringAt("reason").value_or("");
        if (reason == "PodInitializing" || reason == "ContainerCreating" || reason.empty())
          continue;
        return fmt::format("container {}: {}: {}", name, reason,
                           waiting->StringAt("message").value_or(""));
      }
      const Json* ended = FindPath(container, {"state", "terminated"});
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
  const auto warning = warnings.find(TextAt(pod, {"metadata", "name"}));
  return warning != warnings.end() ? warning->second : "not ready yet";
}

std::string FixOfPod(const Json& pod, const std::string& problem) {
  const std::string name = TextAt(pod, {"metadata", "name"});
  const std::string ns = TextAt(pod, {"metadata", "namespace"});
  if (problem.find("Image") != std::string::npos) {
    if (TextAt(pod, {"metadata", "labels", "app.kubernetes.io/component"}) == "nvidia-driver") {
      return "give the node the image, or set driver.repository and driver.version: kubectl edit "
             "tessera tessera";
    }
    return "give the node the image, or set image.registry and image.tag: tessera upgrade --set "
           "image.tag=TAG, helm upgrade, or kubectl edit tessera tessera";
  }
  if (problem.find("container ") == 0) {
    const std::string container = problem.substr(10, problem.find_first_of(": ", 10) - 10);
    return Kubectl(fmt::format("logs {} -c {} --previous", name, container), ns);
  }
  return Kubectl(fmt::format("describe pod {}", name), ns);
}

// Adds the problem of the first pod of a Deployment that has a problem. Ignores pods that are being
// deleted, because their replacements count.
void AddProblemOfPod(const InstallationObjects& objects, std::string_view program,
                     StatusLine* line) {
  for (const Json& pod : objects.pods) {
    if (TextAt(pod, {"metadata", "labels", kNameLabel}) != program) continue;
    if (IsBeingDeleted(pod)) continue;
    const std::string problem = ProblemOfPod(pod, objects.warnings);
    if (problem.empty()) continue;
    line->detail += fmt::format("; {}: {}", TextAt(pod, {"metadata", "name"}), problem);
    line->fix = FixOfPod(pod, problem);
    return;
  }
}

// The line of a DaemonSet: on how many nodes its pods are ready. `name` is shown to users.
StatusLine DaemonSetLine(std::string name, const Json& set) {
  const int64_t wanted = NumberAt(set, {"status", "desiredNumberScheduled"});
  const int64_t ready = NumberAt(set, {"status", "numberReady"});
  StatusLine line{std::move(name), ready == wanted,
                  fmt::format("{} of {} nodes ready", ready, wanted), ""};
  if (!line.works) line.fix = "see the nodes below";
  return line;
}

// The line of an optional component whose object could not be read.
StatusLine UnknownLine(std::string name, const Status& status) {
  return {.name = std::move(name),
          .works = true,
          .detail = std::string(status.message()),
          .fix = FixOfError(status),
          .is_unknown = true};
}

StatusLine DeploymentLine(std::string name, std::string_view program, const Json& deployment,
                          const InstallationObjects& objects) {
  const int64_t wanted = NumberAt(deployment, {"spec", "replicas"}, 1);
  const int64_t ready = NumberAt(deployment, {"status", "readyReplicas"});
  StatusLine line{std::move(name), ready == wanted && wanted > 0,
                  fmt::format("{} of {} replicas ready", ready, wanted), ""};
  if (line.works) return line;
  line.fix = wanted == 0 ? Kubectl(fmt::format("scale deployment/{} --replicas=2", program))
                         : Kubectl(fmt::format("logs deployment/{}", program));
  AddProblemOfPod(objects, program, &line);
  return line;
}

std::string TextOfCondition(const Json& condition) {
  const std::string message = condition.StringAt("message").value_or("");
  const std::string reason = condition.StringAt("reason").value_or("");
  return message.empty() ? reason : fmt::format("{}: {}", reason, message);
}

// What to do about a resource that is not ready, by the reason of its condition
// (docs/tasks/operator.md).
std::string FixOfResource(std::string_view reason) {
  if (reason == "InvalidSpec") return "kubectl edit tessera tessera";
  if (reason == "Forbidden") return std::string(components::kRestoreOperator);
  if (reason == "ObjectContested") {
    return "stop the other client, or change the resource: kubectl edit tessera tessera";
  }
  if (reason == "NotFound") {
    return "install what defines the type, such as the Prometheus operator, or turn its setting "
           "off: kubectl edit tessera tessera";
  }
  if (reason == "APIServerThrottles") {
    return fmt::format("the operator retries; if this continues, {}", kFixOfThrottling);
  }
  if (reason == "APIServerUnreachable") {
    return "the operator retries; check the API server: kubectl get --raw /readyz";
  }
  return "kubectl describe tessera tessera";
}

// Why the operator does not restore missing objects, and what to do; empty if nothing shows why.
struct RestoreProblem {
  std::string why;
  std::string fix;
};
RestoreProblem ProblemOfOperator(const InstallationObjects& objects) {
  const Result<Json>& deployment = objects.operator_deployment;
  if (deployment.status().code() == Code::kNotFound) {
    return {"the operator is missing", std::string(components::kRestoreOperator)};
  }
  if (deployment.ok() && NumberAt(*deployment, {"status", "readyReplicas"}) == 0) {
    return {"no replica of the operator is ready",
            Kubectl(fmt::format("describe deployment {}", names::kOperator))};
  }
  const Json* degraded =
      objects.tessera_resource.ok() ? ConditionOf(*objects.tessera_resource, "Degraded") : nullptr;
  if (!IsTrue(degraded)) return {};
  return {TextOfCondition(*degraded), FixOfResource(degraded->StringAt("reason").value_or(""))};
}

// The first kMaxListedObjects of the texts, and how many follow.
std::string Listed(const std::vector<std::string>& texts) {
  std::string list = fmt::format(
      "{}", fmt::join(std::span(texts).first(std::min(texts.size(), kMaxListedObjects)), ", "));
  if (texts.size() > kMaxListedObjects)
    list += fmt::format(" and {} more", texts.size() - kMaxListedObjects);
  return list;
}

// "ClusterRole tessera-agent (rules, by kubectl-edit)"
std::string TextOfEdited(const EditedObject& object) {
  const FieldEdit& first = object.edits.front();
  const size_t more = object.edits.size() - 1;
  return fmt::format("{} ({}{}, {})", object.id.Text(), first.path,
                     more == 0 ? "" : fmt::format(" and {} more", more),
                     first.manager.empty() ? "removed" : "by " + first.manager);
}

// "missing: …; changed: …"; "" without problems.
std::string TextOfProblems(const ObjectProblems& problems) {
  std::vector<std::string> missing, edited, parts;
  for (const ObjectId& id : problems.missing) missing.push_back(id.Text());
  for (const EditedObject& object : problems.edited) edited.push_back(TextOfEdited(object));
  if (!missing.empty()) parts.push_back("missing: " + Listed(missing));
  if (!edited.empty()) parts.push_back("changed: " + Listed(edited));
  return fmt::format("{}", fmt::join(parts, "; "));
}

// The line of a component whose object could not be read. `title`: the object's kind and name.
StatusLine UnreadableLine(std::string name, const Status& status, std::string_view title,
                          const InstallationObjects& objects) {
  if (status.code() == Code::kNotFound) {
    return {std::move(name), false, fmt::format("{} is missing", title), FixOfMissing(objects)};
  }
  return {std::move(name), false, std::string(status.message()), FixOfError(status)};
}

// The state that the operator reports on its resource.
StatusLine ResourceLine(const Json& resource) {
  StatusLine line{"resource Tessera", true, "", ""};
  const Json* ready = ConditionOf(resource, "Ready");
  const Json* degraded = ConditionOf(resource, "Degraded");
  const bool is_unread = ready == nullptr || NumberAt(*ready, {"observedGeneration"}) <
                                                 NumberAt(resource, {"metadata", "generation"});
  line.works = IsTrue(ready) && !is_unread;
  const Json* shown = IsTrue(degraded) ? degraded : ready;
  if (shown != nullptr) line.detail = TextOfCondition(*shown);
  const Json* nvidia = ConditionOf(resource, "NVIDIAOperatorPresent");
  if (IsTrue(nvidia)) line.detail += "; " + nvidia->StringAt("message").value_or("");
  if (!line.works) {
    line.fix = FixOfResource(shown == nullptr ? "" : shown->StringAt("reason").value_or(""));
  }
  if (is_unread) {
    line.detail = "the operator has not read its last change yet, or cannot write the status";
    line.fix = Kubectl(fmt::format("logs deployment/{} says why; if it lacks a right: {}",
                                   names::kOperator, components::kRestoreOperator));
  }
  return line;
}

std::string FixOfCondition(std::string_view reason, const std::string& message,
                           const std::string& node) {
  if (reason == names::kReasonGpuUnhealthy) {
    return fmt::format(
        "tessera gpus {} shows each GPU; a GPU that does not recover needs nvidia-smi --gpu-reset, "
        "or a reboot of the node",
        node);
  }
  // src/agent/node/driver_release.cc
  if (reason == names::kReasonDriverNotReady && message.starts_with("the driver is closed")) {
    return "wait while the driver is upgraded; if no upgrade is running, remove the file that "
           "the condition names from the node";
  }
  if (reason == names::kReasonDriverNotReady) {
    return "install the driver, or set agent.driverRoot of the chart";
  }
  if (reason == names::kReasonDriverIncomplete) {
    return "see the log of the driver container, or install the driver's packages again";
  }
  if (reason == names::kReasonDriverConflict) {
    return "remove the driver of the host or the driver container";
  }
  if (reason == names::kReasonRuntimeNotConfigured) {
    return Kubectl(
        fmt::format("delete pod --field-selector spec.nodeName={} -l {}={}: the next agent "
                    "configures the engine again; then delete the pods that run without their GPUs",
                    node, kNameLabel, names::kAgent));
  }
  return fmt::format("kubectl describe node {}", node);
}

// What to do if kube-scheduler has this error when it calls its extender.
std::string FixOfExtender(std::string_view message, const Json& pod) {
  const auto mentions = [&](std::string_view text) { return message.find(text) != message.npos; };
  if (!MentionsExtender(message)) {
    return Kubectl(fmt::format("describe pod {}", TextAt(pod, {"metadata", "name"})),
                   TextAt(pod, {"metadata", "namespace"}));
  }
  if (mentions("x509:") || mentions("tls:")) return std::string(kConnectKubeScheduler);
  if (mentions(", code ")) return LogsOfScheduler();
  return fmt::format(
      "let kube-scheduler reach port 9410 of Service {0}/{1}: check the NetworkPolicies of {0} and "
      "the firewalls, and that the address in kube-scheduler's configuration is the Service's "
      "CLUSTER-IP",
      names::kSystemNamespace, names::kScheduler);
}

StatusLine FailedPlacementLine(const std::vector<Json>& pods) {
  const Json& first = pods.front();
  const std::string message =
      ConditionOf(first, "PodScheduled")->StringAt("message").value_or("no message");
  return {"kube-scheduler", false,
          fmt::format("cannot place {} pod{}: {}{}: {}", pods.size(), pods.size() == 1 ? "" : "s",
                      NameOfPod(first), pods.size() == 1 ? "" : ", ...", message),
          FixOfExtender(message, first)};
}

}  // namespace

std::string FixOfMissing(const InstallationObjects& objects) {
  switch (objects.audit.tool) {
    case InstallTool::kTessera:
      return "tessera upgrade, which applies all objects again with the settings of the "
             "installation";
    case InstallTool::kHelm:
      return fmt::format(
          "helm upgrade -n {} {} CHART --reuse-values, with the chart of the installed version",
          objects.audit.release.ns, objects.audit.release.name);
    case InstallTool::kOperator: {
      const RestoreProblem problem = ProblemOfOperator(objects);
      if (!problem.fix.empty()) return problem.fix;
      return fmt::format("the operator restores it within seconds; if it does not: {}",
                         Kubectl(fmt::format("logs deployment/{}", names::kOperator)));
    }
    case InstallTool::kNone:
    case InstallTool::kOther:
      break;
  }
  return "install it with the tool of the installation: tessera install, or helm upgrade --install";
}

std::vector<StatusLine> ObjectLines(const InstallationObjects& objects) {
  const InstallationAudit& audit = objects.audit;
  std::vector<StatusLine> lines;
  std::string detail = TextOfProblems(audit.problems_of_operator);
  if (!detail.empty()) {
    lines.push_back({"operator's objects", false, std::move(detail),
                     std::string(components::kRestoreOperator)});
  }
  detail = TextOfProblems(audit.problems);
  if (!detail.empty()) {
    if (audit.tool == InstallTool::kOperator) {
      const std::string why = ProblemOfOperator(objects).why;
      if (!why.empty()) detail += "; not restored: " + why;
    }
    lines.push_back({"objects", false, std::move(detail), FixOfMissing(objects)});
  }
  return lines;
}

std::vector<StatusLine> AgentLines(const InstallationObjects& objects) {
  const std::string general_set = fmt::format("DaemonSet {}", names::kAgent);
  if (!objects.agent_daemonsets.ok()) {
    return {UnreadableLine("agent", objects.agent_daemonsets.status(), general_set, objects)};
  }
  std::vector<StatusLine> lines;
  bool has_general = false;
  for (const Json& set : *objects.agent_daemonsets) {
    const std::string pool = TextAt(set, {"metadata", "labels", names::kLabelAgentPool});
    has_general = has_general || pool.empty();
    lines.push_back(DaemonSetLine(pool.empty() ? "agent" : "agent of pool " + pool, set));
  }
  if (!has_general) {
    lines.push_back(UnreadableLine("agent", Status(Code::kNotFound, ""), general_set, objects));
  }
  std::ranges::sort(lines, {}, &StatusLine::name);
  return lines;
}

StatusLine SchedulerLine(const InstallationObjects& objects) {
  if (!objects.scheduler_deployment.ok()) {
    return UnreadableLine("scheduler", objects.scheduler_deployment.status(),
                          fmt::format("Deployment {}", names::kScheduler), objects);
  }
  StatusLine line =
      DeploymentLine("scheduler", names::kScheduler, *objects.scheduler_deployment, objects);
  const std::string leader = LeaderOf(objects);
  if (line.works) {
    line.detail += leader.empty() ? ", no replica leads" : fmt::format(", {} leads", leader);
    line.works = !leader.empty();
    if (!line.works) line.fix = LogsOfScheduler();
  }
  return line;
}

StatusLine WebhookLine(const InstallationObjects& objects) {
  const auto is_missing = [&](std::string_view kind, std::string_view name) {
    return std::ranges::any_of(objects.audit.problems.missing, [&](const ObjectId& id) {
      return id.kind == kind && id.name == name;
    });
  };
  const bool service_is_missing = is_missing("Service", names::kScheduler);
  if (objects.webhook.status().code() == Code::kNotFound &&
      !is_missing("ValidatingWebhookConfiguration", names::kWebhook)) {
    return {"webhook", true, "off: invalid pods are rejected by the scheduler alone", ""};
  }
  if (!objects.webhook.ok()) {
    return UnreadableLine("webhook", objects.webhook.status(),
                          fmt::format("ValidatingWebhookConfiguration {}", names::kWebhook),
                          objects);
  }
  const Json::Array& webhooks = ItemsAt(*objects.webhook, {"webhooks"});
  const bool has_authority =
      !webhooks.empty() && std::ranges::all_of(webhooks, [](const Json& hook) {
        return !TextAt(hook, {"clientConfig", "caBundle"}).empty();
      });
  if (has_authority && service_is_missing) {
    return {"webhook", false,
            fmt::format("Service {}/{} is missing", names::kSystemNamespace, names::kScheduler),
            FixOfMissing(objects)};
  }
  if (has_authority) return {"webhook", true, "has its certificate", ""};
  return {"webhook", false, "the scheduler has not written its certificate",
          LogsOfScheduler() + " | grep webhook"};
}

StatusLine KubeSchedulerLine(const InstallationObjects& objects) {
  if (!objects.failed_placements.empty()) return FailedPlacementLine(objects.failed_placements);
  const std::optional<int64_t> requests =
      objects.leader_metrics.ok() ? FilterRequests(*objects.leader_metrics) : std::nullopt;
  if (objects.leader_metrics.status().code() == Code::kPermissionDenied) {
    return {
        .name = "kube-scheduler",
        .works = true,
        .detail = fmt::format("not shown to you: it takes the right get on pods/proxy in {} (Role "
                              "tessera-view-usage)",
                              names::kSystemNamespace),
        .fix = "",
        .is_unknown = true};
  }
  if (!requests) {
    return {.name = "kube-scheduler",
            .works = true,
            .detail = std::string(objects.leader_metrics.ok()
                                      ? "the leader has no such metric"
                                      : objects.leader_metrics.status().message()),
            .fix = "",
            .is_unknown = true};
  }
  if (*requests > 0) {
    return {"kube-scheduler", true,
            fmt::format("connected: it has asked the leader {} time{} for nodes of a pod",
                        *requests, Plural(*requests)),
            ""};
  }
  return {"kube-scheduler", true, "has not asked the leader about a pod yet",
          fmt::format("if pods with GPUs run, {}", kConnectKubeScheduler)};
}

std::vector<StatusLine> OperatorLines(const InstallationObjects& objects) {
  const Result<Json>& deployment = objects.operator_deployment;
  const Result<Json>& resource = objects.tessera_resource;
  const bool no_deployment = deployment.status().code() == Code::kNotFound;
  const bool no_resource = resource.status().code() == Code::kNotFound;
  if (no_deployment && no_resource) return {};
  std::vector<StatusLine> lines;
  if (no_deployment) {
    lines.push_back({"operator", false,
                     "missing, so changes of the resource Tessera have no effect",
                     fmt::format("{}; or tessera uninstall", components::kRestoreOperator)});
  } else if (!deployment.ok()) {
    lines.push_back(UnknownLine("operator", deployment.status()));
  } else {
    lines.push_back(DeploymentLine("operator", names::kOperator, *deployment, objects));
  }
  if (no_resource) {
    lines.push_back({"resource Tessera", false, "missing, so the operator installs nothing",
                     "tessera install --operator, with your settings"});
  } else {
    lines.push_back(resource.ok() ? ResourceLine(*resource)
                                  : UnknownLine("resource Tessera", resource.status()));
  }
  return lines;
}

std::vector<StatusLine> DriverLines(const InstallationObjects& objects) {
  if (!objects.driver_daemonsets.ok()) {
    return {UnknownLine("driver", objects.driver_daemonsets.status())};
  }
  std::vector<StatusLine> lines;
  for (const Json& set : *objects.driver_daemonsets) {
    const std::string ns = TextAt(set, {"metadata", "namespace"});
    const std::string name = TextAt(set, {"metadata", "name"});
    StatusLine line = DaemonSetLine(fmt::format("driver {}/{}", ns, name), set);
    // The operator replaces the driver's pods one node after another.
    const int64_t updated = NumberAt(set, {"status", "updatedNumberScheduled"});
    const int64_t wanted = NumberAt(set, {"status", "desiredNumberScheduled"});
    if (updated < wanted) {
      line.detail += fmt::format(", {} of {} have the newest driver", updated, wanted);
    }
    lines.push_back(std::move(line));
  }
  std::ranges::sort(lines, {}, &StatusLine::name);
  return lines;
}

std::optional<StatusLine> NodeLine(const Json& node, const Json* agent, const Json* driver,
                                   const StringMap& warnings,
                                   const std::string& fix_without_agent) {
  const std::string name = TextAt(node, {"metadata", "name"});
  const Json* gpus = ConditionOf(node, names::kConditionGpuReady);
  if (!IsTrue(ConditionOf(node, "Ready"))) {
    if (gpus == nullptr) return std::nullopt;
    return StatusLine{name, false, "the kubelet does not report the node as ready",
                      "kubectl describe node " + name};
  }
  // Without a driver the agent finds no GPU, so the driver comes first.
  for (const Json* pod : {driver, agent}) {
    const std::string problem = pod == nullptr ? "" : ProblemOfPod(*pod, warnings);
    if (problem.empty()) continue;
    return StatusLine{.name = name,
                      .works = false,
                      .detail = fmt::format("{}: {}", TextAt(*pod, {"metadata", "name"}), problem),
                      .fix = FixOfPod(*pod, problem),
                      .agent_fails = pod == agent};
  }
  if (TextAt(node, {"metadata", "labels", names::kLabelUpgradeState}) == kUpgradeFailed) {
    return StatusLine{
        name, false, "the upgrade of its driver has failed",
        fmt::format("kubectl describe node {0} has the reason; to retry: kubectl annotate node {0} "
                    "{1}=true",
                    name, names::kAnnotationUpgradeRequested)};
  }
  // The agent writes no condition for a node that never had a GPU.
  if (gpus == nullptr) return std::nullopt;
  // The condition outlives the agent.
  if (agent == nullptr) {
    return StatusLine{.name = name,
                      .works = false,
                      .detail = "it has GPUs, and no agent runs on it",
                      .fix = fix_without_agent,
                      .agent_fails = true};
  }
  if (IsTrue(gpus)) return std::nullopt;
  const std::string reason = gpus->StringAt("reason").value_or("");
  const std::string message = gpus->StringAt("message").value_or("");
  return StatusLine{name, false, fmt::format("{}: {}", reason, message),
                    FixOfCondition(reason, message, name)};
}

}  // namespace tessera::cli
