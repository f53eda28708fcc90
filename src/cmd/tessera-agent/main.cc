// SPDX-License-Identifier: Apache-2.0
// tessera-agent: offers a node's GPUs to Kubernetes and answers the runtime's grant requests.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "api/names.h"
#include "src/agent/agent.h"
#include "src/agent/supervisor.h"
#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/parse_flags.h"
#include "src/base/version.h"

namespace tessera {
namespace {

// Where NVIDIA's device plugin has the same flag or variable, the name is the same. A flag
// overrides its variable.
struct AgentFlags {
  agent::AgentOptions options;
  std::string binding_mode = "late";
  std::vector<std::string> shared_resources = {"gpu-mem", "vcuda"};
  std::string memory_unit = "GiB";
  int gpu_release_timeout_s = 30;
  int64_t collect_interval_ms = 1000;
  int64_t xid_window_ms = 300000;
  bool runs_supervised = false;
};

std::string EnvOr(const char* name, const char* default_value) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : default_value;
}

void AddText(CLI::App* app, const char* flag, std::string* text, const char* env,
             const char* help) {
  app->add_option(flag, *text, help)->envname(env)->capture_default_str();
  // CLI11 treats an empty variable as unset.
  const char* value = std::getenv(env);
  if (value != nullptr && *value == '\0') text->clear();
}

void AddRootFlags(CLI::App* app, agent::AgentOptions* options) {
  AddText(app, "--driver-root,--nvidia-driver-root", &options->driver_root, "NVIDIA_DRIVER_ROOT",
          "host path of the driver's root");
  AddText(app, "--driver-root-ctr-path,--container-driver-root", &options->driver_root_ctr_path,
          "DRIVER_ROOT_CTR_PATH",
          "path of the driver's root inside the agent's container (default: --driver-root)");
  options->driver_container_root = names::kDriverContainerRoot;
  AddText(app, "--driver-container-root", &options->driver_container_root, "DRIVER_CONTAINER_ROOT",
          "host path of a driver container's driver, used while the host has no driver and "
          "--driver-root is /; \"\": driver containers are not used");
  AddText(app, "--validations-dir", &options->validations_dir, "VALIDATIONS_DIR",
          "folder of the files driver-ready, toolkit-ready and plugin-ready, for which NVIDIA's "
          "components wait; default: no files are written");
  AddText(app, "--dev-root,--nvidia-dev-root", &options->dev_root, "NVIDIA_DEV_ROOT",
          "host path of the folder that contains dev/nvidia* (default: --driver-root, or / if "
          "--driver-root has no dev)");
  AddText(app, "--dev-root-ctr-path", &options->dev_root_ctr_path, "DEV_ROOT_CTR_PATH",
          "path inside the agent's container of the folder that contains dev/nvidia*");
}

void AddSocketFlags(CLI::App* app, agent::AgentOptions* options) {
  options->kubelet_socket = JoinPath(names::kDevicePluginDir, "kubelet.sock");
  options->pod_resources_socket = names::kPodResourcesSocket;
  options->state_dir = names::kStateDir;
  options->grant_socket = names::kGrantSocket;
  options->limits_dir = names::kLimitsDir;
  options->metrics_address = ":9400";
  options->manager_address = ":5678";
  options->manager_checkpoint = names::kGpuManagerCheckpoint;
  AddText(app, "--kubelet-socket", &options->kubelet_socket, "KUBELET_SOCKET",
          "the kubelet's socket for device plugins; \"\": the agent does not register");
  AddText(app, "--pod-resources-socket", &options->pod_resources_socket, "POD_RESOURCES_SOCKET",
          "the kubelet's pod-resources socket");
  AddText(app, "--state-dir", &options->state_dir, "STATE_DIR",
          "folder of the grant journal and the token key");
  AddText(app, "--grant-socket", &options->grant_socket, "GRANT_SOCKET",
          "socket for tessera-runtime's requests");
  AddText(app, "--limits-dir", &options->limits_dir, "LIMITS_DIR",
          "host folder of the containers' limits, at the same path for this process; \"\": "
          "no container is limited");
  app->add_option(
         "--limits-fail-open", options->limits_fail_open,
         "namespaces, or * for all, whose containers get their GPUs unlimited if they cannot "
         "be limited; in other namespaces such containers get no GPU")
      ->delimiter(',')
      ->envname("LIMITS_FAIL_OPEN");
  app->add_option("--limits-stop-bypass", options->limits_stop_bypass,
                  "namespaces, or * for all, in which the agent kills processes that bypass the "
                  "limiter of their container; in others it reports them")
      ->delimiter(',')
      ->envname("LIMITS_STOP_BYPASS");
  AddText(app, "--metrics-address", &options->metrics_address, "METRICS_ADDRESS",
          "address of /metrics, /healthz and /readyz; \"\": they are not served");
  AddText(app, "--otlp-endpoint", &options->otlp_endpoint, "OTEL_EXPORTER_OTLP_ENDPOINT",
          "send the steps of containers' starts as OpenTelemetry spans to this collector, such as "
          "http://otel-collector:4318; \"\": no spans are sent");
  AddText(app, "--gpu-manager-address", &options->manager_address, "GPU_MANAGER_ADDRESS",
          "address of TKEStack gpu-manager's pages /metric, /usage and /graph; \"\": they are not "
          "served");
  AddText(app, "--gpu-manager-checkpoint", &options->manager_checkpoint, "GPU_MANAGER_CHECKPOINT",
          "gpu-manager's checkpoint, to take over the containers to which it gave GPUs");
}

std::string CheckInterval(const std::string& text) {
  const std::string problem = CLI::Range(int64_t{100}, int64_t{3600000})(text);
  return text == "0" ? "" : problem;
}

// The flags have the names that dcgm-exporter gives them.
void AddExporterFlags(CLI::App* app, AgentFlags* flags) {
  AddText(
      app, "-f,--collectors", &flags->options.collectors, "DCGM_EXPORTER_COLLECTORS",
      "CSV file with the fields of dcgm-exporter's metrics, in dcgm-exporter's format; default: "
      "the fields of its default-counters.csv");
  app->add_option("-c,--collect-interval", flags->collect_interval_ms,
                  "milliseconds between two readings of the GPUs for dcgm-exporter's metrics; 0: "
                  "the metrics are not served")
      ->envname("DCGM_EXPORTER_INTERVAL")
      ->check(CheckInterval, "100 - 3600000, or 0")
      ->capture_default_str();
  app->add_flag("-n,--no-hostname", flags->options.metric_labels.no_hostname,
                "dcgm-exporter's metrics have no label hostname")
      ->envname("DCGM_EXPORTER_NO_HOSTNAME");
  app->add_flag("-o,--use-old-namespace", flags->options.metric_labels.old_names,
                "dcgm-exporter's metrics have the labels uuid, pod_name, pod_namespace and "
                "container_name")
      ->envname("DCGM_EXPORTER_USE_OLD_NAMESPACE");
  app->add_flag("--replace-blanks-in-model-name", flags->options.metric_labels.replace_blanks,
                "label modelName of dcgm-exporter's metrics has - instead of blanks")
      ->envname("DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME");
  app->add_option("-x,--xid-count-window-size", flags->xid_window_ms,
                  "milliseconds that DCGM_EXP_XID_ERRORS_COUNT looks back")
      ->envname("DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE")
      ->check(CLI::Range(int64_t{1}, int64_t{86400000}))
      ->capture_default_str();
}

// Sets the defaults of `flags`, which must outlive `app`.
void AddAgentFlags(CLI::App* app, AgentFlags* flags) {
  agent::AgentOptions* options = &flags->options;
  options->resource = names::kResourceGpu;
  app->add_option(
         "--binding", flags->binding_mode,
         "late: tessera-runtime requests the grant; allocate: Allocate names the GPUs, and "
         "PreStartContainer checks their owner, for engines with NVIDIA's runtime")
      ->envname("BINDING")
      ->check(CLI::IsMember({"late", "allocate"}))
      ->capture_default_str();
  app->add_option(
         "--shared-resources", flags->shared_resources,
         "resources by which pods may share GPUs, beside whole GPUs: gpu-mem,vcuda or none")
      ->delimiter(',')
      ->envname("SHARED_RESOURCES")
      ->check(CLI::IsMember({"gpu-mem", "vcuda", "none"}))
      ->capture_default_str();
  app->add_option("--memory-unit", flags->memory_unit, "the unit of aliyun.com/gpu-mem")
      ->envname("MEMORY_UNIT")
      ->check(CLI::IsMember({"GiB", "MiB"}))
      ->capture_default_str();
  AddRootFlags(app, options);
  app->add_flag("--pass-device-specs", options->pass_device_specs,
                "with --binding=allocate: list device nodes in the answer")
      ->envname("PASS_DEVICE_SPECS");
  app->add_flag("--create-device-nodes", options->create_device_nodes,
                "create missing /dev/nvidia* nodes")
      ->envname("CREATE_DEVICE_NODES");
  app->add_flag("--supervise", flags->runs_supervised,
                "run in a child process and restart it at once if it is killed")
      ->envname("SUPERVISE");
  app->add_option("--release-timeout", flags->gpu_release_timeout_s,
                  "seconds to wait for the processes of a deleted pod to exit; after that its GPUs "
                  "are withheld until the processes exit, and a process is reported as the reason")
      ->envname("RELEASE_TIMEOUT")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app->add_option(
         "--engine", options->engine,
         "the container engine to watch: whether its configuration still starts containers "
         "through tessera-runtime; default: none")
      ->envname("ENGINE")
      ->check(CLI::IsMember({"containerd", "docker", "crio"}));
  AddText(app, "--engine-host-root", &options->engine_host_root, "ENGINE_HOST_ROOT",
          "folder where the host's root, or at least the engine's folders, is mounted");
  app->add_flag(
         "--repair-engine", options->repair_engine,
         "if the engine's configuration was changed, configure and restart the engine; at most "
         "once in ten minutes")
      ->envname("REPAIR_ENGINE");
  AddSocketFlags(app, options);
  AddExporterFlags(app, flags);
  AddText(app, "--node-name", &options->node_name, "NODE_NAME",
          "the Node to label; \"\": no label and no annotation is written");
  options->startup_taints = {std::string(names::kTaintNotReady),
                             std::string(names::kTaintNotReadyAutoscaler),
                             std::string(names::kTaintNotReadyOldAutoscaler)};
  app->add_option(
         "--startup-taint", options->startup_taints,
         "keys of taints to remove from the Node when its GPUs have passed the smoke test; "
         "none: no taint is removed")
      ->delimiter(',')
      ->envname("STARTUP_TAINT")
      ->capture_default_str();
  AddText(app, "--machine-type-file", &options->machine_type_file, "MACHINE_TYPE_FILE",
          "file with the machine's name, for the label nvidia.com/gpu.machine");
  AddText(app, "--kubeconfig", &options->kubeconfig, "KUBECONFIG",
          "default: the pod's service account");
  AddLogFormatFlag(app);
}

// The options from `flags` and from the environment variables that have no flag.
agent::AgentOptions ToOptions(const AgentFlags& flags) {
  agent::AgentOptions options = flags.options;
  for (const std::string& word : flags.shared_resources) {
    if (word == "gpu-mem") options.shared_resources.emplace_back(names::kResourceGpuMem);
    if (word != "vcuda") continue;
    options.shared_resources.emplace_back(names::kResourceVcudaCore);
    options.shared_resources.emplace_back(names::kResourceVcudaMemory);
  }
  options.gpu_mem_unit = *device::MemoryUnitFromName(flags.memory_unit);
  options.binding =
      flags.binding_mode == "late" ? agent::BindingMode::kLate : agent::BindingMode::kAllocate;
  options.startup_taints.erase("none");
  options.gpu_release_timeout = std::chrono::seconds(flags.gpu_release_timeout_s);
  options.collect_interval = std::chrono::milliseconds(flags.collect_interval_ms);
  options.xid_window = std::chrono::milliseconds(flags.xid_window_ms);
  options.xids = gpu::XidPolicy::Parse(EnvOr("DP_DISABLE_HEALTHCHECKS", ""),
                                       EnvOr("DP_ENABLE_HEALTHCHECKS", ""));
  for (const std::string& word : options.xids.warnings()) {
    Log(Severity::kWarning, "unknown word in DP_*_HEALTHCHECKS is ignored", {{"word", word}});
  }
  return options;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  CLI::App app{"Offers the GPUs of this node to Kubernetes, whole and shared.", "tessera-agent"};
  app.set_version_flag("--version", std::string(tessera::kTesseraVersion));
  app.footer(
      "DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS select XIDs as in NVIDIA's "
      "device plugin.\nSIGHUP rescans all GPUs at once; SIGTERM unregisters from the "
      "kubelet, running pods continue.");
  tessera::AgentFlags flags;
  tessera::AddAgentFlags(&app, &flags);
  if (const auto done = tessera::ParseFlags(&app, argc, argv)) return *done;
  const auto run = [&flags] { return tessera::agent::RunAgent(tessera::ToOptions(flags)); };
  return flags.runs_supervised ? tessera::agent::Supervise(run) : run();
}
