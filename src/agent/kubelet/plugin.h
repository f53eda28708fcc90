// SPDX-License-Identifier: Apache-2.0
// The device plugin of one resource: its server, its registration, and the watch of the directory
// that has the plugin's and the kubelet's socket. Offers nothing before the first Publish. Threads:
// lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

struct PluginOptions {
  std::string resource;
  std::string kubelet_socket;  // the plugin's socket is in the same directory
  std::function<void()> on_registered_change;
};

class Plugin {
 public:
  // The arguments must outlive the object. Removes sockets that killed plugins left behind.
  Plugin(TaskRunner* runner, PluginOptions options, const PluginResponder* responder,
         const DeviceSetHolder* devices, KubeletMetrics* metrics);
  // Closes the kubelet's streams: the resource becomes unavailable at once.
  ~Plugin();
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Sends the offers to the kubelet; registers at the first call. REQUIRES: the offers belong to
  // the set that `devices` holds.
  void Publish(const std::vector<DeviceSet::Offer>& offers);
  // Whether the kubelet reads the stream of ListAndWatch.
  bool registered() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::agent
