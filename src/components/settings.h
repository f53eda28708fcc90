// SPDX-License-Identifier: Apache-2.0
// The settings of an installation: the values of the chart (deploy/chart/values.yaml), as a file of
// `tessera install` and as `spec` of the resource Tessera. All three have the same keys and the
// same schema (deploy/chart/values.schema.json). A spec has one more key, `pools`: groups of nodes
// whose agents have settings of their own.
//
//   pools:
//   - name: shared-a10
//     nodeSelector: {nvidia.com/gpu.product: NVIDIA-A10}
//     mode: shared            # or whole: agents of these nodes offer whole GPUs only
//     agent: {driverRoot: /run/nvidia/driver}
//
// Values of NVIDIA's gpu-operator chart are accepted if Tessera has a setting with the same
// meaning, or needs none. Others are rejected with the reason.
//
// Threads: settings are values, and each thread may use its own copy; the functions are pure.
// Errors: INVALID_ARGUMENT names the setting, the value and the allowed values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/base/status.h"
#include "src/base/strings.h"
#include "src/components/driver_settings.h"
#include "src/formats/json.h"

namespace tessera::components {

struct ImageSettings {
  std::string registry;
  std::string tag;
  std::string pull_policy;
  std::vector<std::string> pull_secrets;  // names of Secrets
};

// The settings of one agent. Pools may differ in all of them.
struct AgentSettings {
  // Section daemonsets.
  StringMap labels;
  StringMap annotations;
  Json tolerations;  // array
  StringMap node_selector;
  std::string priority_class;
  std::string update_strategy;  // RollingUpdate or OnDelete
  Json max_unavailable;         // number, or text such as 10%
  // Section agent.
  std::string driver_root;
  std::string dev_root;
  bool create_device_nodes = true;
  bool driver_root_writable = false;
  Json resources;  // object
  std::vector<std::string> extra_args;
  Json env;  // array
  // Section runtime.
  bool runtime_enabled = true;
  bool runtime_only_with_gpu = true;  // configures no engine on a node without a GPU
  bool runtime_repair = false;        // restores the engine's configuration after a change
  // Restarts of containerd are spread over this time.
  int64_t runtime_restart_spread_seconds = 0;
  Json runtime_resources;  // object
  // Section sharing: the resources by which pods may share a GPU.
  bool offers_gpu_mem = true;
  bool offers_vcuda = true;
  // Section limits; "*" stands for all namespaces.
  bool limits_enabled = true;
  std::vector<std::string> limits_fail_open_namespaces;
  std::vector<std::string> limits_stop_bypass_namespaces;
  // Section exporter.
  bool exporter_enabled = true;
  int64_t exporter_interval_ms = 0;
  std::string exporter_config_map;
  DriverSettings driver;
};

// Nodes with all labels of `node_selector` that are in no earlier pool.
struct PoolSettings {
  std::string name;  // a DNS label
  std::string mode;  // whole, shared, or "": the mode of the general settings
  StringMap node_selector;
  AgentSettings agent;  // the general settings, with those of the pool merged over them
};

struct SchedulerSettings {
  bool enabled = true;
  int64_t replicas = 0;
  std::string policy;
  std::string cluster_ip;  // "": any
  Json resources;          // object
  StringMap node_selector;
  Json tolerations;  // array
  std::vector<std::string> extra_args;
};

// Login with OpenID Connect. A setting that is "" is not used.
struct ConsoleLoginSettings {
  std::string issuer_url;
  std::string client_id;
  std::string client_secret;  // name of a Secret
  std::string ca_config_map;
  std::string scopes;
  std::string redirect_url;
};

// Names of objects with which the console reaches Prometheus; "": none.
struct PrometheusAccess {
  std::string ca_config_map;
  std::string token_secret;
  std::string basic_auth_secret;
};

struct ConsoleSettings {
  bool enabled = false;
  std::string tls_secret;  // "": none
  bool behind_https_proxy = false;
  // namespaces, shares or sums: see OtherTenantsDetail in src/console
  std::string other_tenants_view;
  std::string prometheus_url;  // "": none
  PrometheusAccess prometheus;
  ConsoleLoginSettings oidc;
  Json resources;  // object
  StringMap node_selector;
  Json tolerations;  // array
  std::vector<std::string> extra_args;

  // Whether the console is reachable without kubectl port-forward.
  bool reachable() const { return !tls_secret.empty() || behind_https_proxy; }
};

// PodMonitors or ServiceMonitors.
struct MonitorSettings {
  bool enabled = false;
  std::string interval;
  StringMap labels;
};

struct MonitoringSettings {
  MonitorSettings pod_monitor;
  MonitorSettings service_monitor;
  bool prometheus_rule_enabled = false;
  StringMap prometheus_rule_labels;
  bool dashboards_enabled = false;
  StringMap dashboard_labels;
};

struct Settings {
  ImageSettings image;
  AgentSettings agent;  // of all nodes outside of pools
  std::vector<PoolSettings> pools;
  SchedulerSettings scheduler;
  Json operator_tolerations;  // array
  ConsoleSettings console;
  MonitoringSettings monitoring;
  std::vector<std::string> startup_taints;  // keys that agents tolerate and remove
  std::string memory_unit;                  // GiB or MiB, for agents and scheduler
  std::string runtime_class;                // name of the RuntimeClass
  bool webhook_enabled = true;
  bool privileged_policy_enabled = true;
  // Users, in addition to Tessera's own, who may write the annotations that assign GPUs.
  std::vector<std::string> extra_assignment_writers;
  bool network_policy_enabled = true;
  bool gpu_manager_metric_enabled = true;
};

// Reads a spec. Missing keys have their defaults; a null spec has only defaults.
Result<Settings> ParseSettings(const Json& spec);

bool InstallsDrivers(const Settings& settings);

// For installations without the operator: FAILED_PRECONDITION if the spec installs drivers, which
// only the operator can do. Call before ParseSettings, which would report missing settings of the
// driver first.
Status CheckWithoutOperator(const Json& spec);

// Checks each value of the spec by itself. ParseSettings also checks that the values agree.
Status CheckSpec(const Json& spec);

// The values of NVIDIA's chart in a spec that have no effect, each with the reason: "mig: MIG
// devices are offered as they are on the node, as with strategy mixed".
std::vector<std::string> IgnoredValues(const Json& spec);

// The defaults of the chart of the same version, as a spec with every key.
const Json& DefaultSpec();

// Merges `changes` into `spec` as Helm merges values. Objects are merged member by member, other
// values are replaced, and null removes a member.
Json MergeSpec(const Json& spec, const Json& changes);

}  // namespace tessera::components
