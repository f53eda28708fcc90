// SPDX-License-Identifier: Apache-2.0
// What the agent says of itself over HTTP: /metrics (Prometheus), /containers (JSON: what limited
// containers use of their GPUs, for `tessera top`), /healthz (are both threads alive), /readyz (are
// the GPUs known, and is the kubelet reading our list). Threads: lives on
// `runner`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/agent/kubelet/device_set.h"
#include "src/agent/limits/container_usage.h"
#include "src/agent/metrics.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/gpu/inventory.h"
#include "src/net/http_server.h"

namespace tessera::agent {

struct AgentStatus {
  std::string resource;
  const AgentMetrics* metrics = nullptr;
  std::shared_ptr<const DeviceSet> devices;  // null until the first inventory
  const gpu::InventoryStats* inventory = nullptr;
  bool registers = false;  // false: told not to
  bool registered = false;
  std::string node;
  std::shared_ptr<const ContainerUses> container_uses;  // null: not known
};

// The text of /metrics.
std::string MetricsPage(const AgentStatus& status);
// Empty when ready, else why not.
std::string NotReadyReason(const AgentStatus& status);

class StatusPage {
 public:
  using GetStatus = std::function<AgentStatus()>;
  // Runs a task on the other thread that must be alive.
  using PostElsewhere = std::function<void(TaskRunner::Task)>;

  // INVALID_ARGUMENT or UNAVAILABLE, naming the address.
  static Result<std::unique_ptr<StatusPage>> Start(net::IoThread* io, TaskRunner* runner,
                                                   const std::string& address, GetStatus get_status,
                                                   PostElsewhere post_elsewhere);
  const net::Address& address() const { return server_->address(); }

 private:
  StatusPage() = default;
  std::unique_ptr<net::HttpServer> server_;
};

}  // namespace tessera::agent
