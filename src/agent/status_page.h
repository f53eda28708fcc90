// SPDX-License-Identifier: Apache-2.0
// The agent's pages over HTTP:
//
//   /metrics     Prometheus: the agent's metrics, then the metrics of dcgm-exporter
//   /containers  JSON: the use of limited containers, for `tessera top`
//   /healthz     OK if the main thread and the grants' thread run
//   /readyz      OK if the GPUs are known and the kubelet reads the lists
//   /health      dcgm-exporter's answer
//
// Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/agent/exporter/exporter.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/limits/container_usage.h"
#include "src/agent/metrics.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/gpu/inventory.h"
#include "src/net/http_server.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

struct AgentStatus {
  std::string resource;
  const AgentMetrics* metrics = nullptr;
  std::shared_ptr<const DeviceSet> devices;  // null until the first inventory
  const gpu::InventoryStats* inventory = nullptr;
  bool registers = false;  // --kubelet-socket is set
  bool registered = false;
  std::string node;
  std::shared_ptr<const ContainerUses> container_uses;  // null: unknown
  const Exporter* exporter = nullptr;                   // null: off
};

// The text of /metrics.
std::string MetricsPage(const AgentStatus& status);
// The reason why the agent is not ready; "" if it is ready.
std::string NotReadyReason(const AgentStatus& status);

using GetStatus = std::function<AgentStatus()>;
// Posts a task to the grants' thread. /healthz answers when that thread runs the task.
using PostToGrants = std::function<void(TaskRunner::Task)>;

// Serves the pages as long as the server exists. INVALID_ARGUMENT or UNAVAILABLE, naming the
// address.
Result<std::unique_ptr<net::HttpServer>> StartStatusPage(net::IoThread* io, TaskRunner* runner,
                                                         const std::string& address,
                                                         GetStatus get_status,
                                                         PostToGrants post_to_grants);

}  // namespace tessera::agent
