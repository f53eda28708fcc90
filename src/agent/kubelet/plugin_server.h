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
#include "src/agent/kubelet/registrar.h"
#include "src/base/task_runner.h"

namespace tessera::agent {

class PluginServer : public PluginEndpoint {
 public:
  // Called on the runner. A stream is one ListAndWatch call.
  struct Events {
    std::function<void()> stream_opened;
    std::function<void()> stream_closed;
  };

  // Sends the list to every stream if it has changed; a new stream begins with it.
  virtual void Publish(const std::vector<DeviceSet::Offer>& offers) = 0;
};

// The arguments must outlive the server, which listens on `path` from its first Listen. The
// destructor ends all streams and calls, and removes the socket's file if it still belongs to the
// server.
std::unique_ptr<PluginServer> MakePluginServer(TaskRunner* runner, const PluginResponder* responder,
                                               const DeviceSetHolder* devices,
                                               KubeletMetrics* metrics, std::string path,
                                               PluginServer::Events events);

}  // namespace tessera::agent
