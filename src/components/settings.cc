// SPDX-License-Identifier: Apache-2.0
#include "src/components/settings.h"

#include <algorithm>
#include <set>

#include "src/components/console_check.h"
#include "src/components/deploy_text.h"
#include "src/components/nvidia_values.h"
#include "src/components/schema.h"

namespace tessera::components {
namespace {

constexpr std::string_view kBindingAllocate = "--binding=allocate";
// Maximum number of alternatives in the node affinity of the general DaemonSet (agent_objects.cc).
constexpr size_t kMaxAlternatives = 256;

// Reads members of an object that the schema has accepted.
class Section {
 public:
  Section(const Json& spec, std::string_view name) : json_(*spec.Find(name)) {}

  std::string Text(std::string_view key) const { return json_.Find(key)->string_value(); }
  bool Flag(std::string_view key) const { return json_.Find(key)->bool_value(); }
  int64_t Number(std::string_view key) const { return json_.Find(key)->ToInt().value(); }
  Json Value(std::string_view key) const { return *json_.Find(key); }
  std::vector<std::string> Texts(std::string_view key) const {
    std::vector<std::string> texts;
    for (const Json& item : json_.Find(key)->items()) texts.push_back(item.string_value());
    return texts;
  }
  StringMap Map(std::string_view key) const { return MapOf(*json_.Find(key)); }

  static StringMap MapOf(const Json& object) {
    StringMap map;
    for (const auto& [name, value] : object.members()) {
      if (value.is_string()) map.emplace(name, value.string_value());
    }
    return map;
  }

 private:
  const Json& json_;
};

// Sets missing members and null members to their defaults, except within `resources`: a pod may
// have no limit.
void FillDefaults(Json* spec, const Json& defaults, const Json& schema) {
  const Json* properties = schema.Find("properties");
  if (properties == nullptr) return;
  for (const auto& [key, property] : properties->members()) {
    const Json* value = defaults.Find(key);
    if (value == nullptr) continue;
    Json* setting = spec->Find(key);
    if (setting == nullptr || setting->is_null()) {
      spec->Set(key, *value);
    } else if (key != "resources" && setting->is_object() && value->is_object()) {
      FillDefaults(setting, *value, property);
    }
  }
}

// NVIDIA's chart has the text "1" where the API server requires a number.
Json CountOrPercentage(const Json& value) {
  if (!value.is_string()) return value;
  const Result<int64_t> count = ParseInt(value.string_value());
  return count.ok() ? Json::Int(*count) : value;
}

AgentSettings ReadAgent(const Json& spec, const std::string& pool) {
  const Section daemonsets(spec, "daemonsets"), agent(spec, "agent"), runtime(spec, "runtime");
  const Section sharing(spec, "sharing"), limits(spec, "limits"), exporter(spec, "exporter");
  AgentSettings out;
  out.labels = daemonsets.Map("labels");
  out.annotations = daemonsets.Map("annotations");
  out.tolerations = daemonsets.Value("tolerations");
  out.node_selector = daemonsets.Map("nodeSelector");
  out.priority_class = daemonsets.Text("priorityClassName");
  out.update_strategy = daemonsets.Text("updateStrategy");
  out.max_unavailable =
      CountOrPercentage(*daemonsets.Value("rollingUpdate").Find("maxUnavailable"));
  out.driver_root = agent.Text("driverRoot");
  out.dev_root = agent.Text("devRoot");
  out.create_device_nodes = agent.Flag("createDeviceNodes");
  out.driver_root_writable = agent.Flag("driverRootWritable");
  out.resources = agent.Value("resources");
  out.extra_args = agent.Texts("extraArgs");
  out.env = agent.Value("env");
  out.runtime_enabled = runtime.Flag("enabled");
  out.runtime_only_with_gpu = runtime.Flag("onlyWithGpu");
  out.runtime_repair = runtime.Flag("repair");
  out.runtime_restart_spread_seconds = runtime.Number("spreadSeconds");
  out.runtime_resources = runtime.Value("resources");
  out.offers_gpu_mem = sharing.Flag("gpuMem");
  out.offers_vcuda = sharing.Flag("vcuda");
  out.limits_enabled = limits.Flag("enabled");
  out.limits_fail_open_namespaces = limits.Texts("failOpen");
  out.limits_stop_bypass_namespaces = limits.Texts("stopBypass");
  out.exporter_enabled = exporter.Flag("enabled");
  out.exporter_interval_ms = exporter.Number("intervalMs");
  out.exporter_config_map = exporter.Text("configMap");
  out.driver = ReadDriver(spec.Find("driver"), pool);
  out.driver.spec.tolerations = out.tolerations;
  out.driver.spec.priority_class = out.priority_class;
  return out;
}

ImageSettings ReadImage(const Json& spec) {
  const Section image(spec, "image");
  return {image.Text("registry"), image.Text("tag"), image.Text("pullPolicy"),
          image.Texts("pullSecrets")};
}

SchedulerSettings ReadScheduler(const Json& spec) {
  const Section scheduler(spec, "scheduler");
  SchedulerSettings out;
  out.enabled = scheduler.Flag("enabled");
  out.replicas = scheduler.Number("replicas");
  out.policy = scheduler.Text("policy");
  out.cluster_ip = scheduler.Text("clusterIP");
  out.resources = scheduler.Value("resources");
  out.node_selector = scheduler.Map("nodeSelector");
  out.tolerations = scheduler.Value("tolerations");
  out.extra_args = scheduler.Texts("extraArgs");
  return out;
}

ConsoleLoginSettings ReadConsoleLogin(const Json& console) {
  const Section oidc(console, "oidc");
  return {.issuer_url = oidc.Text("issuerUrl"),
          .client_id = oidc.Text("clientId"),
          .client_secret = oidc.Text("clientSecret"),
          .ca_config_map = oidc.Text("caConfigMap"),
          .scopes = oidc.Text("scopes"),
          .redirect_url = oidc.Text("redirectUrl")};
}

PrometheusAccess ReadPrometheusAccess(const Json& console) {
  const Section prometheus(console, "prometheus");
  return {.ca_config_map = prometheus.Text("caConfigMap"),
          .token_secret = prometheus.Text("tokenSecret"),
          .basic_auth_secret = prometheus.Text("basicAuthSecret")};
}

ConsoleSettings ReadConsole(const Json& spec) {
  const Section console(spec, "console");
  ConsoleSettings out;
  out.enabled = console.Flag("enabled");
  out.tls_secret = console.Text("tlsSecret");
  out.behind_https_proxy = console.Flag("behindHttps");
  out.other_tenants_view = console.Text("otherTenants");
  out.prometheus_url = console.Text("prometheusUrl");
  out.prometheus = ReadPrometheusAccess(*spec.Find("console"));
  out.oidc = ReadConsoleLogin(*spec.Find("console"));
  out.resources = console.Value("resources");
  out.node_selector = console.Map("nodeSelector");
  out.tolerations = console.Value("tolerations");
  out.extra_args = console.Texts("extraArgs");
  return out;
}

MonitorSettings ReadMonitor(const Json& spec, std::string_view name) {
  const Section monitor(spec, name);
  return {monitor.Flag("enabled"), monitor.Text("interval"), monitor.Map("labels")};
}

MonitoringSettings ReadMonitoring(const Json& spec) {
  const Section rule(spec, "prometheusRule"), dashboards(spec, "dashboards");
  MonitoringSettings out;
  out.pod_monitor = ReadMonitor(spec, "podMonitor");
  out.service_monitor = ReadMonitor(spec, "serviceMonitor");
  out.prometheus_rule_enabled = rule.Flag("enabled");
  out.prometheus_rule_labels = rule.Map("labels");
  out.dashboards_enabled = dashboards.Flag("enabled");
  out.dashboard_labels = dashboards.Map("labels");
  return out;
}

// In a namespace of limits.failOpen a process may run without the limiter, so limits.stopBypass
// must not kill it there (src/agent/agent_options.cc).
Status CheckLimitNamespaces(const AgentSettings& agent) {
  const std::vector<std::string>& open = agent.limits_fail_open_namespaces;
  for (const std::string& ns : agent.limits_stop_bypass_namespaces) {
    const bool is_open = std::ranges::count(open, ns) > 0 || std::ranges::count(open, "*") > 0 ||
                         (ns == "*" && !open.empty());
    if (!is_open) continue;
    return Error(
        Code::kInvalidArgument,
        "limits.stopBypass={}: limits.failOpen lets processes of this namespace run without "
        "a limiter: name each namespace in one of the two",
        ns);
  }
  return Status::Ok();
}

// `where` is "" for the general settings, or "pools[0]".
Status CheckAgent(const AgentSettings& agent, const std::string& where) {
  const std::string prefix = where.empty() ? "" : where + ".";
  const Status namespaces = CheckLimitNamespaces(agent);
  RETURN_IF_ERROR(where.empty() ? namespaces : namespaces.Annotate(where));
  if (agent.driver.enabled) {
    const Status driver = CheckDriver(agent.driver.spec);
    RETURN_IF_ERROR(where.empty() ? driver : driver.Annotate(where));
  }
  if (agent.runtime_enabled || std::ranges::count(agent.extra_args, kBindingAllocate) > 0) {
    return Status::Ok();
  }
  return Error(Code::kInvalidArgument,
               "{0}runtime.enabled=false: without tessera-runtime no container gets its GPUs: add "
               "{1} to {0}agent.extraArgs (NVIDIA's runtime then gives them), or enable it",
               prefix, kBindingAllocate);
}

Result<PoolSettings> ReadPool(const Json& general, const Json& pool, const std::string& where) {
  PoolSettings out;
  out.name = pool.StringAt("name").value();
  out.mode = pool.StringAt("mode").value_or("");
  out.node_selector = Section::MapOf(*pool.Find("nodeSelector"));
  Json spec = MergeSpec(general, pool);
  FillDefaults(&spec, general, SpecSchema());
  out.agent = ReadAgent(spec, out.name);
  if (out.node_selector.empty()) {
    return Error(Code::kInvalidArgument,
                 "{}.nodeSelector: no label: want the labels of the pool's nodes", where);
  }
  if (out.mode == "whole") out.agent.offers_gpu_mem = out.agent.offers_vcuda = false;
  if (out.mode == "shared" && !out.agent.offers_gpu_mem && !out.agent.offers_vcuda) {
    return Error(Code::kInvalidArgument,
                 "{}.mode=shared: sharing.gpuMem and sharing.vcuda are both false: enable one",
                 where);
  }
  return out;
}

Status ReadPools(const Json& spec, Settings* settings) {
  const Json* pools = spec.Find("pools");
  if (pools == nullptr) return Status::Ok();
  std::set<std::string> names;
  size_t alternatives = 1;
  for (size_t i = 0; i < pools->items().size(); ++i) {
    const std::string where = fmt::format("pools[{}]", i);
    ASSIGN_OR_RETURN(PoolSettings pool, ReadPool(spec, pools->items()[i], where));
    RETURN_IF_ERROR(CheckAgent(pool.agent, where));
    if (!names.insert(pool.name).second) {
      return Error(Code::kInvalidArgument, "{}.name: \"{}\" occurs twice: rename one of the pools",
                   where, pool.name);
    }
    alternatives *= pool.node_selector.size();
    if (alternatives > kMaxAlternatives) {
      return Error(Code::kInvalidArgument,
                   "{}.nodeSelector: too many labels in all pools: give the nodes of each pool one "
                   "label of their own",
                   where);
    }
    settings->pools.push_back(std::move(pool));
  }
  return Status::Ok();
}

Result<Settings> ReadSettings(const Json& spec) {
  Settings out;
  out.image = ReadImage(spec);
  out.agent = ReadAgent(spec, "default");
  out.scheduler = ReadScheduler(spec);
  out.console = ReadConsole(spec);
  out.monitoring = ReadMonitoring(spec);
  out.operator_tolerations = Section(spec, "operator").Value("tolerations");
  out.startup_taints = Section(spec, "startupTaint").Texts("keys");
  out.memory_unit = Section(spec, "sharing").Text("memoryUnit");
  out.runtime_class = Section(spec, "runtime").Text("runtimeClass");
  out.webhook_enabled = Section(spec, "webhook").Flag("enabled");
  out.privileged_policy_enabled = Section(spec, "privilegedPolicy").Flag("enabled");
  out.extra_assignment_writers = Section(spec, "assignments").Texts("writers");
  out.network_policy_enabled = Section(spec, "networkPolicy").Flag("enabled");
  out.gpu_manager_metric_enabled = Section(spec, "gpuManagerMetric").Flag("enabled");
  RETURN_IF_ERROR(CheckAgent(out.agent, ""));
  RETURN_IF_ERROR(CheckConsole(out.console));
  if (out.webhook_enabled && !out.scheduler.enabled) {
    return Error(Code::kInvalidArgument,
                 "scheduler.enabled=false: the scheduler serves the webhook: set "
                 "webhook.enabled=false, too");
  }
  if (out.monitoring.pod_monitor.enabled && out.monitoring.service_monitor.enabled) {
    return Error(Code::kInvalidArgument,
                 "podMonitor.enabled=true and serviceMonitor.enabled=true: Prometheus would scrape "
                 "each pod twice: enable one of them");
  }
  RETURN_IF_ERROR(ReadPools(spec, &out));
  return out;
}

}  // namespace

Json MergeSpec(const Json& spec, const Json& changes) {
  if (!spec.is_object() || !changes.is_object()) return changes;
  Json merged = spec;
  for (const auto& [key, value] : changes.members()) {
    const Json* before = merged.Find(key);
    if (value.is_null()) {
      merged.Erase(key);
    } else if (before != nullptr && before->is_object() && value.is_object()) {
      merged.Set(key, MergeSpec(*before, value));
    } else {
      merged.Set(key, value);
    }
  }
  return merged;
}

const Json& DefaultSpec() {
  static const Json spec = [] {
    Json values = ParsedYaml("chart/values.yaml");
    values.Find("image")->Set("tag", Json::String(TESSERA_IMAGE_TAG));
    return values;
  }();
  return spec;
}

bool InstallsDrivers(const Settings& settings) {
  return settings.agent.driver.enabled ||
         std::ranges::any_of(settings.pools,
                             [](const PoolSettings& pool) { return pool.agent.driver.enabled; });
}

Status CheckWithoutOperator(const Json& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const auto enables = [](const Json& section) {
    const Json* driver = section.Find("driver");
    return driver != nullptr && driver->is_object() && driver->BoolAt("enabled").value_or(false);
  };
  const Json* pools = spec.Find("pools");
  const bool in_pool =
      pools != nullptr && pools->is_array() && std::ranges::any_of(pools->items(), enables);
  if (!in_pool && !enables(spec)) return Status::Ok();
  return Error(Code::kFailedPrecondition,
               "{}driver.enabled=true: only tessera-operator installs drivers: use \"tessera "
               "install --operator\", or install a driver on the nodes and leave the value out",
               in_pool ? "pools: " : "");
}

Status CheckSpec(const Json& spec) { return CheckAgainstSchema(SpecSchema(), spec, ""); }

Result<Settings> ParseSettings(const Json& spec) {
  RETURN_IF_ERROR(CheckSpec(spec));
  Json merged = MergeSpec(DefaultSpec(), spec.is_null() ? Json::MakeObject() : spec);
  FillDefaults(&merged, DefaultSpec(), SpecSchema());
  RETURN_IF_ERROR(TranslateNvidiaValues(&merged));
  RETURN_IF_ERROR(CheckSpec(merged));
  return ReadSettings(merged);
}

}  // namespace tessera::components
