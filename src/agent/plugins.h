// SPDX-License-Identifier: Apache-2.0
// A device plugin for each resource. Its offers follow the GPUs and their use.
// Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/grants/offers.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/agent/kubelet/plugin.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/base/task_runner.h"
#include "src/grant/token.h"

namespace tessera::agent {

struct PluginsOptions {
  std::string resource;                       // resource name of whole GPUs
  std::vector<std::string> shared_resources;  // in addition to `resource`
  AdmissionOrder* admission_order = nullptr;  // may be null
  KubeletGrants* grants = nullptr;            // null: late binding
  DeviceSpecOptions device_specs;             // with `grants`
  std::string kubelet_socket;
  // Called when registered() changes.
  std::function<void(bool registered)> on_registered_change;
};

class Plugins {
 public:
  // The arguments must outlive the object. The destructor closes the kubelet's streams.
  Plugins(TaskRunner* runner, const PluginsOptions& options, const grant::TokenSigner* signer,
          const DeviceSetHolder* devices, KubeletMetrics* metrics);

  // REQUIRES: `devices` holds `set`.
  void SetDevices(std::shared_ptr<const DeviceSet> set);
  void SetUse(std::shared_ptr<const NodeUse> use);
  // Whether the kubelet reads the lists of all plugins.
  bool registered() const;

 private:
  struct Resource {
    std::string name;
    std::unique_ptr<const PluginResponder> responder;
    std::unique_ptr<Plugin> plugin;
  };
  void Publish();
  void OnRegisteredChange();

  const std::function<void(bool registered)> on_registered_change_;
  bool was_registered_ = false;
  std::vector<Resource> resources_;
  std::shared_ptr<const DeviceSet> set_;
  std::shared_ptr<const NodeUse> use_ = std::make_shared<const NodeUse>();
};

}  // namespace tessera::agent
