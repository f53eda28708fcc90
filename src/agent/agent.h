// SPDX-License-Identifier: Apache-2.0
// The whole node agent: inventory, device plugins, registration, grants, device nodes, the Node
// object, metrics. It connects its parts and decides nothing itself.
//
// Threads: the runner's thread owns everything except the grants. The grants have their own thread
// and runner ("grants"), because they wait for the disk. The two threads exchange immutable device
// sets.
#pragma once

#include <memory>

#include "src/agent/agent_options.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

class Agent {
 public:
  // `options` are from CompleteOptions. `runner` and `io` must outlive the agent.
  Agent(TaskRunner* runner, net::IoThread* io, AgentOptions options);
  // Closes the kubelet's streams: the resource becomes unavailable at once, and running pods
  // continue.
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Fails if a retry would not help: the state directory is unusable, or a port is in use. Driver,
  // kubelet and API server may appear later.
  Status Start();
  // Polls all GPUs now.
  void Refresh();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Runs an agent until SIGTERM, SIGINT or SIGQUIT; SIGHUP calls Refresh. Returns the exit code.
int RunAgent(AgentOptions options);

}  // namespace tessera::agent
