// SPDX-License-Identifier: Apache-2.0
// The DaemonSets that run on nodes with GPUs (objects.h): of the agents, and of the cleanup.
#include <filesystem>
#include <span>

#include "api/names.h"
#include "src/components/deploy_text.h"
#include "src/components/edit.h"
#include "src/components/objects.h"

namespace tessera::components {
namespace {

// Removes double slashes and a slash at the end.
std::string CleanPath(const std::string& path) {
  std::string clean = std::filesystem::path(path).lexically_normal();
  while (clean.size() > 1 && clean.ends_with('/')) clean.pop_back();
  return clean;
}

std::string SharedResources(const AgentSettings& agent) {
  std::vector<std::string> names;
  if (agent.offers_gpu_mem) names.emplace_back("gpu-mem");
  if (agent.offers_vcuda) names.emplace_back("vcuda");
  return names.empty() ? "none" : JoinWithCommas(names);
}

bool HasCountersFile(const AgentSettings& agent) {
  return agent.exporter_enabled && !agent.exporter_config_map.empty();
}

Json LimitArguments(const AgentSettings& agent) {
  Json args = Json::MakeArray();
  if (!agent.limits_enabled) args.Append(Json::String("--limits-dir="));
  const auto add = [&](std::string_view flag, const std::vector<std::string>& namespaces) {
    if (!namespaces.empty())
      args.Append(Json::String(fmt::format("{}={}", flag, JoinWithCommas(namespaces))));
  };
  add("--limits-fail-open", agent.limits_fail_open_namespaces);
  add("--limits-stop-bypass", agent.limits_stop_bypass_namespaces);
  return args;
}

Json AgentArguments(const Settings& settings, const AgentSettings& agent) {
  std::vector<std::string> args = {
      "--driver-root=" + agent.driver_root,
      "--driver-root-ctr-path=" + CleanPath("/driver-root/" + agent.driver_root),
      "--dev-root=" + agent.dev_root, "--dev-root-ctr-path=" + agent.dev_root,
      "--validations-dir=/run/nvidia/validations"};
  if (agent.create_device_nodes) args.emplace_back("--create-device-nodes");
  args.push_back("--shared-resources=" + SharedResources(agent));
  args.push_back("--memory-unit=" + settings.memory_unit);
  const std::vector<std::string>& taints = settings.startup_taints;
  args.push_back("--startup-taint=" + (taints.empty() ? "none" : JoinWithCommas(taints)));
  Json out = Json::Strings(args);
  AppendItems(out, LimitArguments(agent));
  args = {fmt::format("--gpu-manager-checkpoint=/driver-root{}", names::kGpuManagerCheckpoint),
          fmt::format("--collect-interval={}",
                      agent.exporter_enabled ? agent.exporter_interval_ms : 0)};
  if (HasCountersFile(agent)) args.emplace_back("--collectors=/etc/dcgm-exporter/dcgm-metrics.csv");
  // Restarts the agent sooner than the kubelet does: the kubelet doubles its wait after each crash
  // of a container, up to 5 minutes.
  args.emplace_back("--supervise");
  if (agent.runtime_enabled) {
    // Reports when another tool overwrites containerd's configuration.
    args.insert(args.end(), {"--engine=containerd", "--engine-host-root=/host"});
    if (agent.runtime_repair) args.emplace_back("--repair-engine");
  }
  AppendStrings(out, args);
  AppendStrings(out, agent.extra_args);
  return out;
}

void SetInstallCommand(Json& command, const AgentSettings& agent) {
  AppendStrings(command, {"--driver-root=" + agent.driver_root, "--dev-root=" + agent.dev_root});
  if (agent.runtime_only_with_gpu) command.Append(Json::String("--only-with-gpu"));
  if (agent.runtime_restart_spread_seconds > 0) {
    command.Append(Json::String(fmt::format("--spread={}", agent.runtime_restart_spread_seconds)));
  }
}

void SetRuntime(Json& pod, const Settings& settings, const AgentSettings& agent) {
  if (!agent.runtime_enabled) return pod.Erase("initContainers");
  for (Json& container : pod.Find("initContainers")->items()) {
    SetImage(container, settings.image, "agent");
  }
  Json& install = ItemNamed(*pod.Find("initContainers"), "install-runtime");
  SetInstallCommand(*install.Find("command"), agent);
  install.Set("resources", agent.runtime_resources);
}

void SetMounts(Json& pod, Json& container, const AgentSettings& agent) {
  Json& mounts = *container.Find("volumeMounts");
  const auto set_writable = [&](std::string_view name, bool writable) {
    ItemNamed(mounts, name).Set("readOnly", Json::Bool(!writable));
  };
  set_writable("driver-root", agent.driver_root_writable);
  for (const auto* name : {"opt-tessera", "etc-tessera", "etc-containerd", "run-containerd"}) {
    set_writable(name, agent.runtime_repair);
  }
  constexpr std::string_view kCounters = "exporter-counters";
  Json& volumes = *pod.Find("volumes");
  if (HasCountersFile(agent)) {
    ItemNamed(volumes, kCounters).Set("configMap", NamedObject(agent.exporter_config_map));
  } else {
    EraseItemNamed(mounts, kCounters);
    EraseItemNamed(volumes, kCounters);
  }
}

// Sets all values that differ between pools, except the nodes that the DaemonSet selects.
Json RenderAgent(const Settings& settings, const AgentSettings& agent) {
  Json daemon_set = ChartObject("agent");
  Json& metadata = *daemon_set.Find("metadata");
  AddMissingTexts(*metadata.Find("labels"), agent.labels);
  if (!agent.annotations.empty())
    AddMissingTexts(MemberAt(metadata, {"annotations"}), agent.annotations);
  Json& spec = *daemon_set.Find("spec");
  Json& strategy = MemberAt(spec, {"updateStrategy"});
  strategy.Set("type", Json::String(agent.update_strategy));
  if (agent.update_strategy == "RollingUpdate") {
    MemberAt(strategy, {"rollingUpdate"}).Set("maxUnavailable", agent.max_unavailable);
  }
  Json& pod_metadata = MemberAt(spec, {"template", "metadata"});
  AddMissingTexts(*pod_metadata.Find("labels"), agent.labels);
  AddMissingTexts(*pod_metadata.Find("annotations"), agent.annotations);
  Json& pod = MemberAt(spec, {"template", "spec"});
  SetPullSecrets(pod, settings.image.pull_secrets);
  pod.Set("priorityClassName", Json::String(agent.priority_class));
  AddMissingTexts(*pod.Find("nodeSelector"), agent.node_selector);
  for (const std::string& key : settings.startup_taints) {
    pod.Find("tolerations")
        ->Append(
            Json::MakeObject({{"key", Json::String(key)}, {"operator", Json::String("Exists")}}));
  }
  AppendItems(*pod.Find("tolerations"), agent.tolerations);
  SetRuntime(pod, settings, agent);
  Json& container = ItemNamed(*pod.Find("containers"), "agent");
  SetImage(container, settings.image, "agent");
  container.Set("args", AgentArguments(settings, agent));
  AppendItems(*container.Find("env"), agent.env);
  container.Set("resources", agent.resources);
  SetMounts(pod, container, agent);
  return daemon_set;
}

// Terms of a node affinity for the nodes outside of all these pools. A node is outside of a pool if
// it lacks one of the pool's labels. So each term negates one label of each pool, and the terms are
// all such combinations.
Json TermsOutside(std::span<const PoolSettings> pools) {
  std::vector<Json> terms = {Json::MakeArray()};
  for (const PoolSettings& pool : pools) {
    std::vector<Json> extended_terms;
    for (const Json& term : terms) {
      for (const auto& [label, value] : pool.node_selector) {
        Json rule = Json::MakeObject({{"key", Json::String(label)},
                                      {"operator", Json::String("NotIn")},
                                      {"values", Json::Strings({value})}});
        extended_terms.push_back(term);
        extended_terms.back().Append(std::move(rule));
      }
    }
    terms = std::move(extended_terms);
  }
  Json out = Json::MakeArray();
  for (Json& term : terms) {
    out.Append(Json::MakeObject({{"matchExpressions", std::move(term)}}));
  }
  return out;
}

void ExcludePoolNodes(std::span<const PoolSettings> pools, Json* daemon_set) {
  if (pools.empty()) return;
  MemberAt(*daemon_set, {"spec", "template", "spec", "affinity", "nodeAffinity",
                         "requiredDuringSchedulingIgnoredDuringExecution"})
      .Set("nodeSelectorTerms", TermsOutside(pools));
}

Json RenderPool(const Settings& settings, size_t index) {
  const PoolSettings& pool = settings.pools[index];
  Json daemon_set = RenderAgent(settings, pool.agent);
  // The selector of the general DaemonSet also matches the pods of pools. This does no harm,
  // because a DaemonSet ignores pods that another controller owns. The selector of an existing
  // DaemonSet cannot be changed.
  const Json name = Json::String(pool.name);
  daemon_set.Find("metadata")
      ->Set("name", Json::String(fmt::format("tessera-agent-{}", pool.name)));
  MemberAt(daemon_set, {"metadata", "labels"}).Set(names::kLabelAgentPool, name);
  MemberAt(daemon_set, {"spec", "selector", "matchLabels"}).Set(names::kLabelAgentPool, name);
  MemberAt(daemon_set, {"spec", "template", "metadata", "labels"})
      .Set(names::kLabelAgentPool, name);
  AddMissingTexts(MemberAt(daemon_set, {"spec", "template", "spec", "nodeSelector"}),
                  pool.node_selector);
  ExcludePoolNodes(std::span(settings.pools).first(index), &daemon_set);
  return daemon_set;
}

}  // namespace

std::vector<Json> RenderAgents(const Settings& settings) {
  std::vector<Json> sets = {RenderAgent(settings, settings.agent)};
  ExcludePoolNodes(settings.pools, &sets.front());
  for (size_t i = 0; i < settings.pools.size(); ++i) sets.push_back(RenderPool(settings, i));
  return sets;
}

std::vector<Json> RenderCleanup(const Settings& settings) {
  constexpr std::string_view kCleanup = "tessera-cleanup";
  std::vector<Json> cleanups;
  for (Json& agent : RenderAgents(settings)) {
    Json& agent_pod = MemberAt(agent, {"spec", "template", "spec"});
    if (agent_pod.Find("initContainers") == nullptr) continue;  // no tessera-runtime
    Json cleanup = ParsedYaml("objects/cleanup.yaml");
    std::string name = agent.Find("metadata")->StringAt("name").value();
    name.replace(0, names::kAgent.size(), kCleanup);
    cleanup.Find("metadata")->Set("name", Json::String(name));
    const Json app = Json::String(name);
    MemberAt(cleanup, {"spec", "selector", "matchLabels"}).Set("app.kubernetes.io/name", app);
    MemberAt(cleanup, {"spec", "template", "metadata", "labels"})
        .Set("app.kubernetes.io/name", app);
    Json& pod = MemberAt(cleanup, {"spec", "template", "spec"});
    for (const auto* key : {"nodeSelector", "tolerations", "affinity", "priorityClassName"}) {
      if (const Json* value = agent_pod.Find(key)) pod.Set(key, *value);
    }
    SetPullSecrets(pod, settings.image.pull_secrets);
    for (const auto* list : {"initContainers", "containers"}) {
      for (Json& container : pod.Find(list)->items()) SetImage(container, settings.image, "agent");
    }
    cleanups.push_back(std::move(cleanup));
  }
  return cleanups;
}

}  // namespace tessera::components
