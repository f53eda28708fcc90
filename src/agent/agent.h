// SPDX-License-Identifier: Apache-2.0
// The whole node agent: inventory, device plugins, registration, grants, device nodes, the Node
// object, metrics. It connects its parts and decides nothing itself.
//
// Threads: the runner's thread owns everything but the grants, which have a runner of their own
// ("grants") because they wait for the disk. The two exchange immutable device sets.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "src/agent/exporter/page.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/device/dialects.h"
#include "src/gpu/inventory.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

struct AgentOptions {
  std::string resource;
  std::vector<std::string> shared_resources;  // beside `resource`
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;
  BindingMode binding = BindingMode::kLate;
  bool pass_device_specs = false;
  bool create_device_nodes = false;

  std::string driver_root = "/";
  std::string driver_root_ctr_path;  // "": driver_root
  std::string dev_root;              // "": driver_root where that has a dev folder, else "/"
  std::string dev_root_ctr_path;  // "": driver_root_ctr_path where the roots are one, else dev_root

  std::string kubelet_socket;  // "": do not register
  std::string pod_resources_socket;
  std::string state_dir;
  std::string grant_socket;
  std::string limits_dir;  // for the limits of containers; "": no container is limited
  std::set<std::string> limits_fail_open;    // namespaces, or "*" (container_limits.h)
  std::set<std::string> limits_stop_bypass;  // the same (limits/container_usage.h)
  std::string metrics_address;               // "": no HTTP
  std::string collectors;  // file of dcgm-exporter's counters (exporter/counters.h); "": built in
  Duration collect_interval = std::chrono::seconds(1);  // of dcgm-exporter's metrics; 0: none
  LabelStyle metric_labels;                             // of dcgm-exporter's metrics
  Duration xid_window = std::chrono::minutes(5);        // of DCGM_EXP_XID_ERRORS_COUNT
  std::string manager_address;                          // of gpu-manager's page; "": none
  std::string manager_checkpoint;                       // file that gpu-manager left; "": none
  std::string node_name;                                // "": do not write the node
  std::string kubeconfig;                               // "": the pod's service account
  std::string machine_type_file = "/sys/class/dmi/id/product_name";  // for nvidia.com/gpu.machine

  std::string engine;                  // the container engine to watch; "": none
  std::string engine_host_root = "/";  // root of its files
  bool repair_engine = false;
  // How long the GPUs of a pod that is gone wait for its processes before they are withheld.
  Duration release_timeout = std::chrono::seconds(30);
  gpu::XidPolicy xids;
};

// Sets the options that depend on others; reads the file system. INVALID_ARGUMENT names the flag.
Status CompleteOptions(AgentOptions* options);

class Agent {
 public:
  // Options as CompleteOptions left them. Runner and io outlive the agent.
  Agent(TaskRunner* runner, net::IoThread* io, AgentOptions options);
  // Leaves the kubelet: the resource becomes unavailable at once, running pods continue.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Fails if waiting does not help: no state folder, a port that is taken. Driver, kubelet and API
  // server may come later.
  Status Start();
  // Reads all GPUs now.
  void Refresh();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Runs an agent on a runner of its own until SIGTERM or SIGINT; SIGHUP refreshes. Returns the exit
// code.
int RunAgent(AgentOptions options);

}  // namespace tessera::agent
