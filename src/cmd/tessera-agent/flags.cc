// SPDX-License-Identifier: Apache-2.0
#include "src/cmd/tessera-agent/flags.h"

#include <cstdlib>

#include "api/names.h"
#include "src/base/file.h"
#include "src/base/log.h"

namespace tessera {
namespace {

std::string EnvOr(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

void AddText(CLI::App* app, const char* flag, std::string* to, const char* env, const char* help) {
  app->add_option(flag, *to, help)->envname(env)->capture_default_str();
  // CLI11 treats an empty variable as unset.
  const char* value = std::getenv(env);
  if (value != nullptr && *value == '\0') to->clear();
}

void AddRoots(CLI::App* app, agent::AgentOptions* o) {
  AddText(app, "--driver-root,--nvidia-driver-root", &o->driver_root, "NVIDIA_DRIVER_ROOT",
          "where the driver is installed, as the host names it");
  AddText(app, "--driver-root-ctr-path,--container-driver-root", &o->driver_root_ctr_path,
          "DRIVER_ROOT_CTR_PATH",
          "the same folder as this process sees it (default: --driver-root)");
  AddText(app, "--dev-root,--nvidia-dev-root", &o->dev_root, "NVIDIA_DEV_ROOT",
          "the folder that has dev/nvidia*, as the host names it (default: --driver-root, or / "
          "where that has no dev)");
  AddText(app, "--dev-root-ctr-path", &o->dev_root_ctr_path, "DEV_ROOT_CTR_PATH",
          "the same folder as this process sees it");
}

void AddSockets(CLI::App* app, agent::AgentOptions* o) {
  o->kubelet_socket = JoinPath(names::kDevicePluginDir, "kubelet.sock");
  o->pod_resources_socket = names::kPodResourcesSocket;
  o->state_dir = names::kStateDir;
  o->grant_socket = names::kGrantSocket;
  o->limits_dir = names::kLimitsDir;
  o->metrics_address = ":9400";
  o->manager_address = ":5678";
  o->manager_checkpoint = names::kGpuManagerCheckpoint;
  AddText(app, "--kubelet-socket", &o->kubelet_socket, "KUBELET_SOCKET",
          "where the kubelet registers device plugins; \"\" does not register");
  AddText(app, "--pod-resources-socket", &o->pod_resources_socket, "POD_RESOURCES_SOCKET",
          "where the kubelet tells which pod has which device");
  AddText(app, "--state-dir", &o->state_dir, "STATE_DIR",
          "keeps the journal of grants and the token key");
  AddText(app, "--grant-socket", &o->grant_socket, "GRANT_SOCKET", "where tessera-runtime asks");
  AddText(app, "--limits-dir", &o->limits_dir, "LIMITS_DIR",
          "the host's folder for what containers may use of their GPUs, at the same path here; "
          "\"\" limits none");
  app->add_option("--limits-fail-open", o->limits_fail_open,
                  "namespaces whose containers may use their GPUs without a limit where they "
                  "cannot be limited, or * for all; elsewhere they do not get them")
      ->delimiter(',')
      ->envname("LIMITS_FAIL_OPEN");
  app->add_option("--limits-stop-bypass", o->limits_stop_bypass,
                  "namespaces, or * for all, in which the agent kills processes that use a GPU "
                  "past the limiter of their container; elsewhere it reports them")
      ->delimiter(',')
      ->envname("LIMITS_STOP_BYPASS");
  AddText(app, "--metrics-address", &o->metrics_address, "METRICS_ADDRESS",
          "serves /metrics, /healthz and /readyz; \"\" does not");
  AddText(app, "--gpu-manager-address", &o->manager_address, "GPU_MANAGER_ADDRESS",
          "serves /metric, /usage and /graph as TKEStack's gpu-manager did; \"\" does not");
  AddText(app, "--gpu-manager-checkpoint", &o->manager_checkpoint, "GPU_MANAGER_CHECKPOINT",
          "what gpu-manager wrote down of the containers that it gave GPUs, to take them over");
}

}  // namespace

void AddAgentFlags(CLI::App* app, AgentFlags* flags) {
  agent::AgentOptions* o = &flags->options;
  o->resource = names::kResourceGpu;
  app->add_option(
         "--binding", flags->binding,
         "late: tessera-runtime asks for the grant; allocate: Allocate names the GPUs, and "
         "PreStartContainer checks whose they are, for engines with NVIDIA's runtime")
      ->envname("BINDING")
      ->check(CLI::IsMember({"late", "allocate"}))
      ->capture_default_str();
  app->add_option("--shared-resources", flags->shared_resources,
                  "by what pods may share GPUs beside asking for whole ones; gpu-mem,vcuda or none")
      ->delimiter(',')
      ->envname("SHARED_RESOURCES")
      ->check(CLI::IsMember({"gpu-mem", "vcuda", "none"}))
      ->capture_default_str();
  app->add_option("--memory-unit", flags->memory_unit, "what 1 of aliyun.com/gpu-mem is")
      ->envname("MEMORY_UNIT")
      ->check(CLI::IsMember({"GiB", "MiB"}))
      ->capture_default_str();
  AddRoots(app, o);
  app->add_flag("--pass-device-specs", o->pass_device_specs,
                "with --binding=allocate: list device nodes in the answer")
      ->envname("PASS_DEVICE_SPECS");
  app->add_flag("--create-device-nodes", o->create_device_nodes, "make missing /dev/nvidia* nodes")
      ->envname("CREATE_DEVICE_NODES");
  app->add_flag("--supervise", flags->supervise,
                "run in a child process and start it again at once when it is killed")
      ->envname("SUPERVISE");
  app->add_option(
         "--release-timeout", flags->release_timeout_s,
         "seconds that the GPUs of a pod that is gone wait for its processes to end; "
         "after that they are withheld, with the process as the reason, until it has ended")
      ->envname("RELEASE_TIMEOUT")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  app->add_option("--engine", o->engine,
                  "the container engine whose configuration is watched: whether it still starts "
                  "containers through tessera-runtime; default: none is")
      ->envname("ENGINE")
      ->check(CLI::IsMember({"containerd", "docker", "crio"}));
  AddText(app, "--engine-host-root", &o->engine_host_root, "ENGINE_HOST_ROOT",
          "where the host's root, or its folders of the engine, are mounted");
  app->add_flag(
         "--repair-engine", o->repair_engine,
         "configure the engine again where its configuration was changed, which restarts it; "
         "at most every ten minutes")
      ->envname("REPAIR_ENGINE");
  AddSockets(app, o);
  AddText(app, "--node-name", &o->node_name, "NODE_NAME",
          "the Node to label; \"\" writes no labels and no annotation");
  AddText(app, "--kubeconfig", &o->kubeconfig, "KUBECONFIG", "default: the pod's service account");
  app->add_option("--log-format", flags->log_format, "text or json")
      ->envname("LOG_FORMAT")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

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
      flags.binding == "late" ? agent::BindingMode::kLate : agent::BindingMode::kAllocate;
  options.release_timeout = std::chrono::seconds(flags.release_timeout_s);
  options.xids = gpu::XidPolicy::Parse(EnvOr("DP_DISABLE_HEALTHCHECKS", ""),
                                       EnvOr("DP_ENABLE_HEALTHCHECKS", ""));
  for (const std::string& word : options.xids.warnings()) {
    Log(Severity::kWarning, "DP_*_HEALTHCHECKS: not understood", {{"word", word}});
  }
  return options;
}

}  // namespace tessera
