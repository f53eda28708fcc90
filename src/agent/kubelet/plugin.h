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
#include "src/agent/kubelet/kubelet_client.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/agent/kubelet/plugin_server.h"
#include "src/agent/kubelet/registrar.h"
#include "src/base/dir_watcher.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

struct PluginOptions {
  std::string resource;
  std::string kubelet_socket;  // the plugin's socket is in the same directory
  std::function<void()> on_registered_change;
};

class Plugin {
 public:
  // The arguments must outlive the object. Removes sockets that killed plugins left behind. The
  // destructor closes the kubelet's streams: the resource becomes unavailable at once.
  Plugin(TaskRunner* runner, PluginOptions options, const PluginResponder* responder,
         const DeviceSetHolder* devices, KubeletMetrics* metrics);
  Plugin(const Plugin&) = delete;
  Plugin& operator=(const Plugin&) = delete;

  // Sends the offers to the kubelet; registers at the first call. REQUIRES: the offers belong to
  // the set that `devices` holds.
  void Publish(const std::vector<DeviceSet::Offer>& offers);
  // Whether the kubelet reads the stream of ListAndWatch.
  bool registered() const { return registrar_.registered(); }

 private:
  void OnAppeared(const std::string& name);
  void OnVanished(const std::string& name);

  const std::string dir_;
  const std::string kubelet_socket_name_;
  const std::string plugin_socket_name_;
  // Keep the order: members are destroyed from the last to the first, so events stop before their
  // targets are gone.
  const std::unique_ptr<PluginServer> server_;
  GrpcKubeletRegistry kubelet_;
  Registrar registrar_;
  DirWatcher watcher_;
  bool started_ = false;
};

}  // namespace tessera::agent
