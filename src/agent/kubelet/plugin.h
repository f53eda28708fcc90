// SPDX-License-Identifier: Apache-2.0
// One resource at the kubelet: the plugin's server, its registration, and the folder in which both
// meet. Offers nothing until it has been given devices. Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/kubelet/allocation.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

struct PluginOptions {
  std::string resource;
  std::string kubelet_socket;  // our socket lies beside it
  std::function<void()> on_registered_change;
};

class Plugin {
 public:
  // All outlive it. Removes the sockets of plugins that were killed.
  Plugin(TaskRunner* runner, PluginOptions options, const PluginAnswers* answers,
         const DeviceSetHolder* devices, KubeletMetrics* metrics);
  // Leaves the kubelet: the resource becomes unavailable at once.
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Tells the kubelet; the first time, registers with it. The offers are of the set that `devices`
  // holds.
  void Publish(const std::vector<DeviceSet::Offer>& offers);
  // The kubelet reads our list.
  bool registered() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::agent
