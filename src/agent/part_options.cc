// SPDX-License-Identifier: Apache-2.0
#include "src/agent/part_options.h"

#include <unistd.h>

#include <string_view>
#include <vector>

#include "api/names.h"
#include "src/agent/grants/take_over.h"
#include "src/base/file.h"
#include "src/base/version.h"

namespace tessera::agent {
namespace {

// The directories of the engine's configuration, with its drop-ins.
std::vector<std::string_view> EngineDirs(std::string_view engine) {
  if (engine == "docker") return {"/etc/docker"};
  if (engine == "crio") return {"/etc/crio", "/etc/crio/crio.conf.d"};
  return {"/etc/containerd", "/etc/containerd/conf.d"};
}

DriverWatchOptions DriverWatchOptionsOf(const AgentOptions& options) {
  DriverWatchOptions driver;
  driver.roots = {{options.driver_root, options.driver_root_ctr_path}};
  if (options.driver_root != "/") return driver;
  const std::string& mount = options.driver_root_ctr_path;
  const std::string& container = options.driver_container_root;
  if (!container.empty()) driver.roots.push_back({container, JoinPath(mount, container)});
  driver.host_mount = mount;
  if (!options.validations_dir.empty()) {
    driver.driver_ready = JoinPath(options.validations_dir, "driver-ready");
  }
  return driver;
}

}  // namespace

ReadinessOptions ReadinessOptionsOf(const AgentOptions& options) {
  ReadinessOptions readiness_options;
  readiness_options.driver = DriverWatchOptionsOf(options);
  readiness_options.validations_dir = options.validations_dir;
  readiness_options.dev_root = options.dev_root;
  readiness_options.expects_kubelet = !options.kubelet_socket.empty();
  readiness_options.expects_engine = !options.engine.empty();
  return readiness_options;
}

GrantsThreadOptions GrantsThreadOptionsOf(const AgentOptions& options) {
  GrantsThreadOptions grants;
  grants.service.description.dev_root = options.dev_root;
  grants.service.description.dev_root_ctr_path = options.dev_root_ctr_path;
  grants.service.description.version = kTesseraVersion;
  grants.service.node_name = options.node_name;
  grants.service.limits_dir = options.limits_dir;
  grants.service.limits_fail_open = options.limits_fail_open;
  grants.service.gpu_mem_unit = options.gpu_mem_unit;
  grants.service.release.timeout = options.gpu_release_timeout;
  grants.kill_on_bypass_namespaces = options.limits_stop_bypass;
  grants.state_dir = options.state_dir;
  grants.socket = options.grant_socket;
  grants.pod_resources_socket = options.pod_resources_socket;
  grants.socket_client_uid = ::geteuid();
  if (!options.node_name.empty()) {
    const std::string kubelet =
        options.kubelet_socket.empty()
            ? ""
            : JoinPath(DirName(options.kubelet_socket), names::kKubeletCheckpoint);
    grants.minors_of_other_plugins = ReadCheckpoints(kubelet, options.manager_checkpoint);
  }
  return grants;
}

PluginsOptions PluginsOptionsOf(const AgentOptions& options) {
  PluginsOptions plugins;
  plugins.resource = options.resource;
  plugins.shared_resources = options.shared_resources;
  plugins.device_specs = {.pass_device_specs = options.pass_device_specs,
                          .dev_root = options.dev_root,
                          .dev_root_ctr_path = options.dev_root_ctr_path};
  plugins.kubelet_socket = options.kubelet_socket;
  return plugins;
}

EngineWatchOptions EngineWatchOptionsOf(const AgentOptions& options) {
  EngineWatchOptions watch;
  // The installer copies the program to this path.
  watch.command = {JoinPath(options.engine_host_root, names::kRuntimeBinary), "configure",
                   "--engine=" + options.engine, "--host-root=" + options.engine_host_root,
                   "--set-as-default"};
  for (const std::string_view dir : EngineDirs(options.engine)) {
    watch.dirs.push_back(JoinPath(options.engine_host_root, dir));
  }
  watch.repair = options.repair_engine;
  return watch;
}

}  // namespace tessera::agent
