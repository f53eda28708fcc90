// SPDX-License-Identifier: Apache-2.0
// The device plugin's side of v1beta1 for one resource: a gRPC server on a unix socket with all
// five calls. Knows nothing of registration (registrar.h) nor of how answers come about
// (allocation.h).
//
// The socket is listened on here and not by gRPC: so it can be made again, under the same name,
// when somebody has removed it, while the kubelet's connection and its device stream live on.
//
// Threads: lives on `runner`. The kubelet's calls come on gRPC's threads and are answered there,
// from the immutable DeviceSet, or later by whoever the answers ask; no thread waits, and nobody
// for the runner, NVML or the API server, because one slow answer stops the admission of every pod.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/agent/kubelet/allocation.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/kubelet/kubelet_metrics.h"
#include "src/base/file.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

class PluginServer {
 public:
  // On the runner. A stream is one ListAndWatch call.
  struct Events {
    std::function<void()> stream_opened;
    std::function<void()> stream_closed;
  };

  // All outlive the server.
  PluginServer(TaskRunner* runner, const PluginAnswers* answers, const DeviceSetHolder* devices,
               KubeletMetrics* metrics, Events events);
  // Ends all streams and calls; the socket's file goes if it is still ours.
  ~PluginServer();
  PluginServer(const PluginServer&) = delete;
  PluginServer& operator=(const PluginServer&) = delete;

  // Serves connections on `path` from now on, in place of the socket that was listened on before.
  // A file that is there is replaced.
  Status Listen(const std::string& path);
  // Whether the file at the path of Listen is still our socket.
  bool SocketPresent() const;

  // Sends the list to every stream if it is another one than before; streams that open later get it
  // first thing.
  void Publish(const std::vector<DeviceSet::Offer>& offers);
  // Ends all streams, politely where the peer still reads.
  void CloseStreams();
  // Streams that are open, as the runner has been told.
  int open_streams() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::agent
