// SPDX-License-Identifier: Apache-2.0
#include "src/components/objects.h"

#include <utility>

#include "api/names.h"
#include "src/components/deploy_text.h"
#include "src/components/edit.h"
#include "src/components/schema.h"

namespace tessera::components {
namespace {

void Append(std::vector<Json>* objects, std::vector<Json> more) {
  for (Json& object : more) objects->push_back(std::move(object));
}

// The policies come first, so that they apply before the pods that they limit run.
Component Policies(const Settings& settings) {
  Component out{"policies", ChartObjects("agent-policies")};
  Json& taints = ItemNamed(MemberAt(out.objects.front(), {"spec", "variables"}), "startupTaints");
  taints.Set("expression", Json::String(Json::Strings(settings.startup_taints).Serialize()));
  std::vector<Json> assignments = ChartObjects("assignments-policy");
  Json& writers = ItemNamed(MemberAt(assignments.front(), {"spec", "variables"}), "writers");
  std::string list = writers.Find("expression")->string_value();
  for (const std::string& writer : settings.extra_assignment_writers) {
    list.insert(list.rfind(" ]"), fmt::format(", '{}'", writer));
  }
  writers.Set("expression", Json::String(list));
  Append(&out.objects, std::move(assignments));
  if (settings.privileged_policy_enabled) {
    Append(&out.objects, ChartObjects("privileged-policy"));
  }
  return out;
}

// Whether any node has tessera-runtime, so that pods need the RuntimeClass.
bool HasRuntime(const Settings& settings) {
  if (settings.agent.runtime_enabled) return true;
  for (const PoolSettings& pool : settings.pools) {
    if (pool.agent.runtime_enabled) return true;
  }
  return false;
}

Component Agent(const Settings& settings) {
  Component out{"agent", ChartObjects("agent-rbac")};
  if (HasRuntime(settings)) {
    Json runtime_class = ChartObject("runtimeclass");
    runtime_class.Find("metadata")->Set("name", Json::String(settings.runtime_class));
    out.objects.push_back(std::move(runtime_class));
  }
  Append(&out.objects, RenderAgents(settings));
  if (settings.gpu_manager_metric_enabled) {
    out.objects.push_back(ChartObject("gpu-manager-metric"));
  }
  return out;
}

Json Deployment(const Settings& settings) {
  const SchedulerSettings& scheduler = settings.scheduler;
  Json deployment = ChartObject("scheduler-deployment");
  Json& spec = *deployment.Find("spec");
  spec.Set("replicas", Json::Int(scheduler.replicas));
  Json& pod = MemberAt(spec, {"template", "spec"});
  SetPullSecrets(pod, settings.image.pull_secrets);
  AddMissingTexts(*pod.Find("nodeSelector"), scheduler.node_selector);
  AppendItems(*pod.Find("tolerations"), scheduler.tolerations);
  Json& container = ItemNamed(*pod.Find("containers"), "scheduler");
  SetImage(container, settings.image, "scheduler");
  Json args =
      Json::Strings({"--policy=" + scheduler.policy, "--memory-unit=" + settings.memory_unit,
                     settings.webhook_enabled ? "--webhook-address=:9443" : "--webhook-address="});
  AppendStrings(args, scheduler.extra_args);
  container.Set("args", std::move(args));
  container.Set("resources", scheduler.resources);
  return deployment;
}

Component Scheduler(const Settings& settings) {
  Component out{"scheduler", {}};
  if (!settings.scheduler.enabled) return out;
  out.objects = ChartObjects("scheduler");
  if (!settings.scheduler.cluster_ip.empty()) {
    Json& service = out.objects.back();
    service.Find("spec")->Set("clusterIP", Json::String(settings.scheduler.cluster_ip));
  }
  if (settings.network_policy_enabled) {
    out.objects.push_back(ChartObject("network-policy"));
  }
  out.objects.push_back(Deployment(settings));
  return out;
}

// Accounts and rights of the driver's pods. The operator adds the DaemonSets, which depend on the
// nodes.
Component Driver(const Settings& settings) {
  Component out{std::string(kDriverComponent), {}};
  if (InstallsDrivers(settings)) out.objects = ParsedDocuments("objects/driver-rbac.yaml");
  return out;
}

Component Webhook(const Settings& settings) {
  if (!settings.webhook_enabled) return {"webhook", {}};
  return {"webhook", ChartObjects("webhook")};
}

std::vector<std::string> LoginArguments(const ConsoleLoginSettings& oidc) {
  if (oidc.issuer_url.empty()) return {};
  std::vector<std::string> args{
      "--oidc-issuer-url=" + oidc.issuer_url, "--oidc-client-id=" + oidc.client_id,
      "--oidc-scopes=" + oidc.scopes, "--oidc-redirect-url=" + oidc.redirect_url};
  if (!oidc.client_secret.empty()) {
    args.emplace_back("--oidc-client-secret-file=/oidc-client-secret/client-secret");
  }
  if (!oidc.ca_config_map.empty()) args.emplace_back("--oidc-ca-file=/oidc-ca/ca.crt");
  return args;
}

std::vector<std::string> PrometheusArguments(const ConsoleSettings& console) {
  std::vector<std::string> args;
  if (!console.prometheus_url.empty()) {
    args.push_back("--prometheus-url=" + console.prometheus_url);
  }
  const PrometheusAccess& access = console.prometheus;
  if (!access.ca_config_map.empty()) {
    args.emplace_back("--prometheus-ca-file=/prometheus-ca/ca.crt");
  }
  if (!access.token_secret.empty()) {
    args.emplace_back("--prometheus-token-file=/prometheus-token/token");
  }
  if (!access.basic_auth_secret.empty()) {
    args.emplace_back("--prometheus-basic-auth-dir=/prometheus-basic-auth");
  }
  return args;
}

Json ConsoleArguments(const ConsoleSettings& console) {
  Json args = Json::Strings({"--listen=127.0.0.1:8090"});
  if (!console.tls_secret.empty()) {
    args = Json::Strings(
        {"--listen=:8090", "--tls-cert-file=/tls/tls.crt", "--tls-private-key-file=/tls/tls.key"});
  } else if (console.behind_https_proxy) {
    args = Json::Strings({"--listen=:8090", "--behind-https"});
  }
  args.Append(Json::String("--metrics-address=:9413"));
  args.Append(Json::String("--other-tenants=" + console.other_tenants_view));
  AppendStrings(args, PrometheusArguments(console));
  AppendStrings(args, LoginArguments(console.oidc));
  AppendStrings(args, console.extra_args);
  return args;
}

// Sets the source of volume `name` to the Secret or ConfigMap `object`; removes the volume if
// `object` is "".
void SetConsoleVolume(Json& pod, Json& container, std::string_view name,
                      std::pair<std::string_view, std::string_view> field,
                      const std::string& object) {
  if (object.empty()) {
    EraseItemNamed(*pod.Find("volumes"), name);
    EraseItemNamed(*container.Find("volumeMounts"), name);
    return;
  }
  MemberAt(ItemNamed(*pod.Find("volumes"), name), {field.first})
      .Set(field.second, Json::String(object));
}

void SetConsolePod(const Settings& settings, Json& pod) {
  const ConsoleSettings& console = settings.console;
  SetPullSecrets(pod, settings.image.pull_secrets);
  AddMissingTexts(*pod.Find("nodeSelector"), console.node_selector);
  AppendItems(*pod.Find("tolerations"), console.tolerations);
  Json& container = ItemNamed(*pod.Find("containers"), "console");
  SetImage(container, settings.image, "console");
  container.Set("args", ConsoleArguments(console));
  container.Set("resources", console.resources);
  SetConsoleVolume(pod, container, "tls", {"secret", "secretName"}, console.tls_secret);
  SetConsoleVolume(pod, container, "oidc-client-secret", {"secret", "secretName"},
                   console.oidc.client_secret);
  SetConsoleVolume(pod, container, "oidc-ca", {"configMap", "name"}, console.oidc.ca_config_map);
  const PrometheusAccess& access = console.prometheus;
  SetConsoleVolume(pod, container, "prometheus-ca", {"configMap", "name"}, access.ca_config_map);
  SetConsoleVolume(pod, container, "prometheus-token", {"secret", "secretName"},
                   access.token_secret);
  SetConsoleVolume(pod, container, "prometheus-basic-auth", {"secret", "secretName"},
                   access.basic_auth_secret);
  if (pod.Find("volumes")->items().empty()) {
    container.Erase("volumeMounts");
    pod.Erase("volumes");
  }
}

Component Console(const Settings& settings) {
  Component out{"console", {}};
  if (!settings.console.enabled) return out;
  for (Json& object : ChartObjects("console")) {
    const std::string kind = object.StringAt("kind").value();
    if (kind == "Service" && !settings.console.reachable()) continue;
    if (kind == "NetworkPolicy" && !settings.network_policy_enabled) continue;
    if (kind == "Deployment")
      SetConsolePod(settings, MemberAt(object, {"spec", "template", "spec"}));
    out.objects.push_back(std::move(object));
  }
  return out;
}

// The programs that serve metrics, and their ports.
constexpr std::pair<std::string_view, int> kMetricsPorts[] = {{names::kAgent, 9400},
                                                              {names::kScheduler, 9411},
                                                              {names::kOperator, 9412},
                                                              {"tessera-console", 9413}};
constexpr std::string_view kNameLabel = "app.kubernetes.io/name";

// A PodMonitor or ServiceMonitor of a program.
void SetMonitor(const MonitorSettings& settings, std::string_view program,
                std::string_view endpoints, Json* monitor) {
  const Json name = Json::String(program);
  Json& metadata = *monitor->Find("metadata");
  metadata.Set("name", name);
  metadata.Find("labels")->Set(kNameLabel, name);
  AddMissingTexts(*metadata.Find("labels"), settings.labels);
  MemberAt(*monitor, {"spec", "selector", "matchLabels"}).Set(kNameLabel, name);
  for (Json& endpoint : MemberAt(*monitor, {"spec", endpoints}).items()) {
    endpoint.Set("interval", Json::String(settings.interval));
  }
}

void AddPodMonitors(const MonitorSettings& settings, std::vector<Json>* objects) {
  for (const auto& [program, port] : kMetricsPorts) {
    Json monitor = ChartObject("podmonitor");
    SetMonitor(settings, program, "podMetricsEndpoints", &monitor);
    objects->push_back(std::move(monitor));
  }
}

void AddServiceMonitors(const MonitorSettings& settings, std::vector<Json>* objects) {
  for (const auto& [program, port] : kMetricsPorts) {
    std::vector<Json> pair = ChartObjects("servicemonitor");
    Json& service = pair.front();
    const Json name = Json::String(program);
    MemberAt(service, {"metadata"}).Set("name", Json::String(fmt::format("{}-metrics", program)));
    MemberAt(service, {"metadata", "labels"}).Set(kNameLabel, name);
    MemberAt(service, {"spec", "selector"}).Set(kNameLabel, name);
    MemberAt(service, {"spec"})
        .Set("ports",
             Json::MakeArray({Json::MakeObject({{"name", Json::String("metrics")},
                                                {"port", Json::Int(port)},
                                                {"targetPort", Json::String("metrics")}})}));
    SetMonitor(settings, program, "endpoints", &pair.back());
    Append(objects, std::move(pair));
  }
}

void AddDashboards(const MonitoringSettings& monitoring, std::vector<Json>* objects) {
  constexpr std::string_view kDirectory = "chart/files/dashboards/";
  for (const std::string_view path : DeployPaths(kDirectory)) {
    const std::string_view file = path.substr(kDirectory.size());
    const std::string_view name = file.substr(0, file.rfind('.'));
    Json dashboard = ChartObject("dashboards");
    Json& metadata = *dashboard.Find("metadata");
    metadata.Set("name", Json::String(fmt::format("tessera-dashboard-{}", name)));
    AddMissingTexts(*metadata.Find("labels"), monitoring.dashboard_labels);
    MemberAt(dashboard, {"data"})
        .Set(fmt::format("tessera-{}", file), Json::String(DeployText(path)));
    objects->push_back(std::move(dashboard));
  }
}

Component Monitoring(const Settings& settings) {
  const MonitoringSettings& monitoring = settings.monitoring;
  Component out{"monitoring", {}};
  if (monitoring.pod_monitor.enabled) AddPodMonitors(monitoring.pod_monitor, &out.objects);
  if (monitoring.service_monitor.enabled) {
    AddServiceMonitors(monitoring.service_monitor, &out.objects);
  }
  if (monitoring.prometheus_rule_enabled) {
    Json rule = ChartObject("prometheusrule");
    AddMissingTexts(MemberAt(rule, {"metadata", "labels"}), monitoring.prometheus_rule_labels);
    rule.Set("spec", ParsedYaml("chart/files/alerts.yaml"));
    out.objects.push_back(std::move(rule));
  }
  if (monitoring.dashboards_enabled) AddDashboards(monitoring, &out.objects);
  return out;
}

}  // namespace

std::vector<Component> RenderComponents(const Settings& settings) {
  std::vector<Component> components = {Policies(settings),  Driver(settings),
                                       Agent(settings),     Webhook(settings),
                                       Scheduler(settings), Monitoring(settings)};
  components.push_back({"access", ChartObjects("view")});
  components.push_back(Console(settings));
  std::erase_if(components, [](const Component& component) { return component.objects.empty(); });
  return components;
}

std::vector<Json> RenderObjects(const Settings& settings) {
  std::vector<Json> objects;
  for (Component& component : RenderComponents(settings)) {
    Append(&objects, std::move(component.objects));
  }
  return objects;
}

std::vector<Json> RenderOperator(const Settings& settings) {
  std::vector<Json> objects = ParsedDocuments("operator/operator.yaml");
  objects.front() = SystemNamespace();
  if (InstallsDrivers(settings)) {
    const std::vector<Json> rights = ParsedDocuments("operator/drivers.yaml");
    objects.insert(objects.begin() + 1, rights.begin(), rights.end());
  }
  for (Json& object : objects) {
    if (object.StringAt("kind").value() != "Deployment") continue;
    Json& pod = MemberAt(object, {"spec", "template", "spec"});
    SetPullSecrets(pod, settings.image.pull_secrets);
    SetImage(ItemNamed(*pod.Find("containers"), "operator"), settings.image, "operator");
    AppendItems(*pod.Find("tolerations"), settings.operator_tolerations);
  }
  return objects;
}

Json SystemNamespace() { return ParsedYaml("objects/namespace.yaml"); }

std::vector<Json> ObjectsOfEveryKind() {
  Settings settings = ParseSettings(Json::MakeObject()).value();
  MonitoringSettings& monitoring = settings.monitoring;
  monitoring.pod_monitor.enabled = monitoring.service_monitor.enabled = true;
  monitoring.prometheus_rule_enabled = monitoring.dashboards_enabled = true;
  std::vector<Json> objects;
  for (const Json& object : RenderObjects(settings)) {
    Json& reference = objects.emplace_back(Json::MakeObject());
    for (const char* field : {"apiVersion", "kind", "metadata"}) {
      reference.Set(field, *object.Find(field));
    }
  }
  return objects;
}

Json TesseraDefinition() {
  Json definition = ParsedYaml("objects/definition.yaml");
  Json& version = definition.Find("spec")->Find("versions")->items().front();
  MemberAt(version, {"schema", "openAPIV3Schema", "properties"})
      .Set("spec", StructuralSchema(SpecSchema()));
  return definition;
}

}  // namespace tessera::components
