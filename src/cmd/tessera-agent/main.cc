// SPDX-License-Identifier: Apache-2.0
// tessera-agent: offers the GPUs of a node to Kubernetes and tells the container runtime who got what.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "api/names.h"
#include "src/agent/agent.h"
#include "src/agent/version.h"
#include "src/base/file.h"
#include "src/base/log.h"

namespace {

using tessera::agent::AgentOptions;
using tessera::agent::Binding;

std::string EnvOr(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

void AddFlags(CLI::App* app, AgentOptions* o, std::string* binding, std::string* log_format) {
  const auto text = [app](const char* flag, std::string* to, const char* env, const char* help) {
    app->add_option(flag, *to, help)->envname(env)->capture_default_str();
  };
  const auto yes = [app](const char* flag, bool* to, const char* env, const char* help) {
    app->add_flag(flag, *to, help)->envname(env);
  };
  app->add_option("--binding", *binding, "late: tessera-runtime asks for the grant; allocate: "
                  "Allocate names the GPUs, for engines with NVIDIA's runtime")
      ->envname("BINDING")->check(CLI::IsMember({"late", "allocate"}))->capture_default_str();
  text("--driver-root,--nvidia-driver-root", &o->driver_root, "NVIDIA_DRIVER_ROOT",
       "where the driver is installed, as the host names it");
  text("--driver-root-ctr-path,--container-driver-root", &o->driver_root_ctr_path,
       "DRIVER_ROOT_CTR_PATH", "the same folder as this process sees it (default: --driver-root)");
  text("--dev-root,--nvidia-dev-root", &o->dev_root, "NVIDIA_DEV_ROOT",
       "the folder that has dev/nvidia*, as the host names it (default: --driver-root, or / where "
       "that has no dev)");
  text("--dev-root-ctr-path", &o->dev_root_ctr_path, "DEV_ROOT_CTR_PATH",
       "the same folder as this process sees it");
  yes("--pass-device-specs", &o->pass_device_specs, "PASS_DEVICE_SPECS",
      "with --binding=allocate: list device nodes in the answer");
  yes("--create-device-nodes", &o->create_device_nodes, "CREATE_DEVICE_NODES",
      "make missing /dev/nvidia* nodes");
  text("--kubelet-socket", &o->kubelet_socket, "KUBELET_SOCKET",
       "where the kubelet registers device plugins; \"\" does not register");
  text("--pod-resources-socket", &o->pod_resources_socket, "POD_RESOURCES_SOCKET",
       "where the kubelet tells which pod has which device");
  text("--state-dir", &o->state_dir, "STATE_DIR", "keeps the journal of grants and the token key");
  text("--grant-socket", &o->grant_socket, "GRANT_SOCKET", "where tessera-runtime asks");
  text("--metrics-address", &o->metrics_address, "METRICS_ADDRESS",
       "serves /metrics, /healthz and /readyz; \"\" does not");
  text("--node-name", &o->node_name, "NODE_NAME",
       "the Node to label; \"\" writes no labels and no annotation");
  text("--kubeconfig", &o->kubeconfig, "KUBECONFIG", "default: the pod's service account");
  app->add_option("--log-format", *log_format, "text or json")
      ->envname("LOG_FORMAT")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
}

}  // namespace

int main(int argc, char** argv) {
  AgentOptions options;
  options.resource = tessera::names::kResourceGpu;
  options.kubelet_socket = tessera::JoinPath(tessera::names::kDevicePluginDir, "kubelet.sock");
  options.pod_resources_socket = tessera::names::kPodResourcesSocket;
  options.state_dir = tessera::names::kStateDir;
  options.grant_socket = tessera::names::kGrantSocket;
  options.metrics_address = ":9400";
  std::string binding = "late", log_format = "text";
  CLI::App app{"Offers the GPUs of this node to Kubernetes as nvidia.com/gpu.", "tessera-agent"};
  app.set_version_flag("--version", std::string(tessera::agent::kVersion));
  AddFlags(&app, &options, &binding, &log_format);
  CLI11_PARSE(app, argc, argv);
  const bool json = log_format == "json";
  tessera::ConfigureLog({.format = json ? tessera::LogFormat::kJson : tessera::LogFormat::kText});
  options.binding = binding == "late" ? Binding::kLate : Binding::kAllocate;
  options.xids = tessera::gpu::XidPolicy::Parse(EnvOr("DP_DISABLE_HEALTHCHECKS", ""),
                                                EnvOr("DP_ENABLE_HEALTHCHECKS", ""));
  for (const std::string& word : options.xids.warnings()) {
    tessera::Log(tessera::Severity::kWarning, "DP_*_HEALTHCHECKS: not understood", {{"word", word}});
  }
  return tessera::agent::RunAgent(std::move(options));
}
