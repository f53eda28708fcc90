// SPDX-License-Identifier: Apache-2.0
// What the agent serves over HTTP: its status page (status_page.h) with dcgm-exporter's metrics
// (exporter/exporter.h), and gpu-manager's pages (compat/manager_page.h), each at an address of its
// own, if the options name one.
//
// Threads: lives on `runner`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "src/agent/agent_options.h"
#include "src/agent/compat/manager_page.h"
#include "src/agent/exporter/exporter.h"
#include "src/agent/status_page.h"
#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/gpu/blocking_caller.h"
#include "src/gpu/nvml.h"
#include "src/net/http_server.h"
#include "src/net/io_thread.h"

namespace tessera::agent {

class Pages {
 public:
  struct Sources {
    // Returns the status without the uses of containers and the exporter; Pages adds these two.
    GetStatus status;
    PostToGrants post_to_grants;
    std::function<std::shared_ptr<gpu::NvmlLoader>()> make_loader;
    // Passes the holdings to `then` once, on any thread.
    std::function<void(std::function<void(Holdings)> then)> holdings;
    const DeviceSetHolder* devices = nullptr;  // must outlive the pages, as must the caller
    gpu::BlockingCaller* caller = nullptr;
  };

  Pages(TaskRunner* runner, Sources sources) : runner_(runner), sources_(std::move(sources)) {}

  // Errors name the file of counters or the address of the status page. An error of gpu-manager's
  // pages is only logged: a gpu-manager that is still on the node keeps the port.
  Status Start(net::IoThread* io, const AgentOptions& options);
  // Begins to read the GPUs for metrics.
  void StartSampling();

  void OnXid(const std::string& uuid, uint64_t code);
  void SetContainerUses(std::shared_ptr<const ContainerUses> uses);
  // Call when the driver may have been unloaded.
  void RefreshDriver();

 private:
  Status MakeExporter(const AgentOptions& options);
  void StartManagerPage(net::IoThread* io, const AgentOptions& options);
  AgentStatus CurrentStatus() const;

  TaskRunner* const runner_;
  const Sources sources_;
  std::shared_ptr<const ContainerUses> container_uses_;
  // Null: not served.
  std::unique_ptr<Exporter> exporter_;
  std::unique_ptr<net::HttpServer> status_page_;
  std::unique_ptr<ManagerPage> manager_page_;
};

}  // namespace tessera::agent
