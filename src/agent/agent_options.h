// SPDX-License-Identifier: Apache-2.0
// The options of the agent, one for each flag of tessera-agent.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "src/agent/exporter/page.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/device/dialects.h"
#include "src/gpu/xid.h"

namespace tessera::agent {

struct AgentOptions {
  std::string resource;
  std::vector<std::string> shared_resources;  // in addition to `resource`
  device::MemoryUnit gpu_mem_unit = device::MemoryUnit::kGiB;
  BindingMode binding = BindingMode::kLate;
  bool pass_device_specs = false;
  bool create_device_nodes = false;

  std::string driver_root = "/";
  std::string driver_root_ctr_path;  // "": driver_root
  // Root of the driver in a driver container. Used if driver_root is "/". "": no driver container.
  std::string driver_container_root;
  std::string validations_dir;  // see node/validation_files.h; "": no files
  std::string dev_root;         // "": driver_root if it has a dev directory, else "/"
  // "": driver_root_ctr_path if dev_root equals driver_root, else dev_root.
  std::string dev_root_ctr_path;

  std::string kubelet_socket;  // "": do not register
  std::string pod_resources_socket;
  std::string state_dir;
  std::string grant_socket;
  std::string limits_dir;  // directory of the containers' limits; "": no container is limited
  // Namespaces, or "*", where containers start even if they cannot be limited (container_limits.h).
  std::set<std::string> limits_fail_open;
  // Namespaces, or "*", where processes without a limiter are killed (limits/container_usage.h).
  std::set<std::string> limits_stop_bypass;
  std::string metrics_address;  // "": no HTTP
  std::string collectors;  // file of dcgm-exporter's counters (exporter/counters.h); "": built in
  // For dcgm-exporter's metrics; 0: no metrics.
  Duration collect_interval = std::chrono::seconds(1);
  LabelStyle metric_labels;                       // for dcgm-exporter's metrics
  Duration xid_window = std::chrono::minutes(5);  // for DCGM_EXP_XID_ERRORS_COUNT
  std::string manager_address;                    // address of gpu-manager's pages; "": not served
  std::string manager_checkpoint;                 // checkpoint file of gpu-manager; "": none
  std::string otlp_endpoint;             // of a collector of spans (src/trace/tracer.h); "": none
  std::string node_name;                 // "": do not write the node
  std::string kubeconfig;                // "": the pod's service account
  std::set<std::string> startup_taints;  // keys; removed after the smoke test (node/smoke_test.h)
  // Source of nvidia.com/gpu.machine.
  std::string machine_type_file = "/sys/class/dmi/id/product_name";

  std::string engine;                  // the container engine to watch; "": none
  std::string engine_host_root = "/";  // root of the engine's files
  bool repair_engine = false;
  // How long the GPUs of a deleted pod wait for its processes before they are withheld.
  Duration gpu_release_timeout = std::chrono::seconds(30);
  gpu::XidPolicy xids;
};

// Sets the options that depend on others; reads the file system. INVALID_ARGUMENT names the flag.
Status CompleteOptions(AgentOptions* options);

}  // namespace tessera::agent
