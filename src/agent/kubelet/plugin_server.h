// SPDX-License-Identifier: Apache-2.0
// The device plugin's side of v1beta1 for one resource: a gRPC server on a unix socket with all
// five calls. Registration is in registrar.h, the content of answers in plugin_answers.h.
//
// The server listens on the socket itself and passes connections to gRPC. So it can create a
// deleted socket again under its name while the kubelet's connection and device stream stay open.
//
// Threads: lives on `runner`. The kubelet's calls come on gRPC's threads and are answered there
// from the immutable DeviceSet, or later on the thread of the answer. No thread waits for the
// runner, NVML or the API server, because one slow answer stops the admission of every pod.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/agent/kubelet/plugin_answers.h"
#include "src/base/file.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

class PluginServer {
 public:
  // Called on the runner. A stream is one ListAndWatch call.
  struct Events {
    std::function<void()> stream_opened;
    std::function<void()> stream_closed;
  };

  // The arguments must outlive the server.
  PluginServer(TaskRunner* runner, const PluginResponder* responder, const DeviceSetHolder* devices,
               KubeletMetrics* metrics, Events events);
  // Ends all streams and calls, and removes the socket's file if it still belongs to this server.
  ~PluginServer();
  PluginServer(const PluginServer&) = delete;
  PluginServer& operator=(const PluginServer&) = delete;

  // Serves new connections on `path` instead of the earlier socket. Replaces a file at `path`.
  Status Listen(const std::string& path);
  // Whether the file at the path of Listen is still this server's socket.
  bool SocketPresent() const;

  // Sends the list to every stream if it has changed; a new stream begins with it.
  void Publish(const std::vector<DeviceSet::Offer>& offers);
  // Ends all streams; a peer that still reads gets status OK.
  void CloseStreams();
  // The number of open streams, according to the events that the runner has received.
  int open_streams() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::agent
