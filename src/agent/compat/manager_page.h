// SPDX-License-Identifier: Apache-2.0
// Serves gpu-manager's pages on port 5678: GET /metric, /usage, /graph, /version. Each answer is
// made from the driver's processes at that moment (src/gpu/process_reader.h) and the grants.
//
// Threads: lives on `runner`. Cost without requests: a listening socket; the driver is not loaded.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/agent/compat/manager_metrics.h"
#include "src/agent/grants/holdings.h"
#include "src/agent/kubelet/device_set.h"
#include "src/agent/pods/process_owner.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/gpu/process_reader.h"
#include "src/net/http_server.h"

namespace tessera::agent {

using OwnerOfPid = std::function<std::optional<ProcessOwner>(int pid)>;

// The use of a process is added to the container of its cgroup. While the agent does not know the
// container engine's IDs of a pod's containers, the use is added to the pod's only container with
// GPUs; if several containers of the pod have GPUs, it is added to none.
ManagerState ManagerStateOf(const std::string& node, const Holdings& holdings,
                            const device::NodeInventory& inventory,
                            const gpu::ProcessReport& report, const OwnerOfPid& owner_of);

class ManagerPage {
 public:
  struct Sources {
    const DeviceSetHolder* devices = nullptr;  // must outlive the page, like `caller`
    std::shared_ptr<gpu::NvmlLoader> loader;
    gpu::BlockingCaller* caller = nullptr;
    // Passes the holdings to `then` once, on any thread.
    std::function<void(std::function<void(Holdings)> then)> holdings;
    OwnerOfPid owner_of = [](int pid) { return OwnerOf("/proc", pid); };
  };

  // INVALID_ARGUMENT or UNAVAILABLE, naming the flag and the address.
  static Result<std::unique_ptr<ManagerPage>> Start(net::IoThread* io, TaskRunner* runner,
                                                    const std::string& address, std::string node,
                                                    Sources sources);
  const net::Address& address() const { return server_->address(); }

  // Call when the driver may have been unloaded; see ProcessReader::Refresh.
  void RefreshDriver() { reader_.Refresh(); }

 private:
  using MakeResponse = net::Response (*)(const ManagerState& state);

  ManagerPage(TaskRunner* runner, std::string node, Sources sources);
  void Answer(const net::Request& request, const net::HttpServer::Reply& reply);
  void ReplyWith(MakeResponse make_response, const net::HttpServer::Reply& reply);

  TaskRunner* const runner_;
  const std::string node_;
  const Sources sources_;
  gpu::ProcessReader reader_;
  std::unique_ptr<net::HttpServer> server_;
  WeakPtrFactory<ManagerPage> weak_{this};
};

}  // namespace tessera::agent
