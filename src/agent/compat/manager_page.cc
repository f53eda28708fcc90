// SPDX-License-Identifier: Apache-2.0
#include "src/agent/compat/manager_page.h"
#include "src/base/version.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tessera::agent {
namespace {

// The container to which the use of a process is added; null if the container is unknown.
const HeldContainer* ContainerOf(const Holdings& holdings, const ProcessOwner& owner) {
  const HeldContainer* only = nullptr;
  size_t count = 0;
  for (const HeldContainer& container : holdings.containers) {
    if (container.holder.pod_uid != owner.pod_uid) continue;
    if (!container.container_id.empty() && container.container_id == owner.container_id) {
      return &container;
    }
    ++count;
    only = &container;
  }
  return count == 1 && only->container_id.empty() ? only : nullptr;
}

// The limits of one container.
ManagerContainer LimitsOf(const HeldContainer& held, const device::NodeInventory& inventory) {
  ManagerContainer limits{.pod_uid = held.holder.pod_uid,
                          .ns = held.holder.pod_namespace,
                          .pod = held.holder.pod_name,
                          .container = held.holder.container};
  for (const device::DeviceShare& share : held.shares) {
    const device::Gpu* gpu = inventory.Find(share.uuid);
    limits.milli += share.compute.count();
    limits.memory += share.memory == Bytes(0) && gpu != nullptr ? gpu->memory : share.memory;
    if (gpu == nullptr) continue;
    limits.gpus.push_back(
        {.index = gpu->index, .pci_bus_id = gpu->pci_bus_id, .total = gpu->memory});
  }
  std::ranges::sort(limits.gpus, {}, &ManagerGpuUse::index);
  return limits;
}

using Positions = std::map<const HeldContainer*, size_t>;  // in ManagerState::containers

// Adds the processes on a GPU to the GPU and to the containers of the processes.
void AddProcesses(const gpu::ProcessReport::GpuProcesses& gpu_processes, const Holdings& holdings,
                  const OwnerOfPid& owner_of, const Positions& positions, ManagerGpu* node_gpu,
                  ManagerState* state) {
  for (const gpu::ProcessUse& process : gpu_processes.processes) {
    node_gpu->pids.push_back(process.pid);
    node_gpu->used += process.memory;
    const std::optional<ProcessOwner> owner = owner_of(process.pid);
    const HeldContainer* container = owner ? ContainerOf(holdings, *owner) : nullptr;
    if (container == nullptr) continue;
    for (ManagerGpuUse& container_gpu : state->containers[positions.at(container)].gpus) {
      if (container_gpu.index != node_gpu->index) continue;
      container_gpu.used += process.memory;
      container_gpu.percent += process.percent;
      container_gpu.pids.push_back(process.pid);
    }
  }
}

void MarkUnknown(int index, ManagerState* state) {
  for (ManagerContainer& container : state->containers) {
    for (ManagerGpuUse& gpu : container.gpus) gpu.is_known = gpu.is_known && gpu.index != index;
  }
}

}  // namespace

ManagerState ManagerStateOf(const std::string& node, const Holdings& holdings,
                            const device::NodeInventory& inventory,
                            const gpu::ProcessReport& report, const OwnerOfPid& owner_of) {
  ManagerState state{.node = node, .problem = report.status.message()};
  Positions positions;
  for (const HeldContainer& held : holdings.containers) {
    positions[&held] = state.containers.size();
    state.containers.push_back(LimitsOf(held, inventory));
  }
  for (const device::Gpu& gpu : inventory.gpus) {
    const GpuUse use = holdings.accounts.UseOf(gpu.uuid);
    const auto gpu_processes =
        std::ranges::find(report.gpus, gpu.uuid, &gpu::ProcessReport::GpuProcesses::uuid);
    ManagerGpu node_gpu{
        .index = gpu.index, .is_known = gpu_processes != report.gpus.end(), .total = gpu.memory};
    if (!use.whole) {
      node_gpu.free_milli = std::max<int64_t>(0, kWholeGpu.count() - use.compute.count());
      node_gpu.free = std::max(Bytes(0), gpu.memory - use.memory);
    }
    if (node_gpu.is_known) {
      AddProcesses(*gpu_processes, holdings, owner_of, positions, &node_gpu, &state);
    } else {
      MarkUnknown(gpu.index, &state);
    }
    state.gpus.push_back(std::move(node_gpu));
  }
  return state;
}

ManagerPage::ManagerPage(TaskRunner* runner, std::string node, Sources sources)
    : runner_(runner),
      node_(std::move(node)),
      sources_(std::move(sources)),
      reader_(runner, sources_.loader, sources_.caller) {}

Result<std::unique_ptr<ManagerPage>> ManagerPage::Start(net::IoThread* io, TaskRunner* runner,
                                                        const std::string& address,
                                                        std::string node, Sources sources) {
  net::HttpServer::Options options;
  ASSIGN_OR_RETURN(options.address, net::ParseAddress(address).Annotate("--gpu-manager-address"));
  options.limits.max_connections = 16;
  options.limits.max_body_bytes = 4 << 10;
  auto page =
      std::unique_ptr<ManagerPage>(new ManagerPage(runner, std::move(node), std::move(sources)));
  ManagerPage* self = page.get();
  auto server = net::HttpServer::Start(
      *io, *runner, options,
      [self](const net::Request& request, const net::HttpServer::Reply& reply) {
        self->Answer(request, reply);
      });
  if (!server.ok()) return server.status().Annotate("--gpu-manager-address");
  page->server_ = *std::move(server);
  return page;
}

void ManagerPage::Answer(const net::Request& request, const net::HttpServer::Reply& reply) {
  if (!IsGetOrHead(request)) {
    return reply(net::TextResponse(405, "this page requires GET\n"));
  }
  if (request.path() == "/metric") {
    return ReplyWith(
        [](const ManagerState& state) { return net::MetricsResponse(ManagerMetricPage(state)); },
        reply);
  }
  if (request.path() == "/usage") {
    return ReplyWith(
        [](const ManagerState& state) {
          return net::JsonResponse(200, ManagerUsage(state).Serialize());
        },
        reply);
  }
  if (request.path() == "/graph") {
    return ReplyWith(
        [](const ManagerState& state) {
          return net::JsonResponse(200, ManagerGraph(state).Serialize());
        },
        reply);
  }
  if (request.path() == "/version") {
    return reply(net::JsonResponse(
        200, Json::MakeObject({{"version", Json::String(kTesseraVersion)}}).Serialize()));
  }
  reply(
      net::TextResponse(404, "unknown page; known pages: /metric, /usage, /graph and /version\n"));
}

void ManagerPage::ReplyWith(MakeResponse make_response, const net::HttpServer::Reply& reply) {
  reader_.Read([this, make_response,
                reply](const std::shared_ptr<const gpu::ProcessReport>& report) {
    const auto answer = [this, make_response, reply, report](const Holdings& holdings) {
      const auto devices = sources_.devices->Get();
      reply(make_response(ManagerStateOf(node_, holdings,
                                         devices ? devices->inventory() : device::NodeInventory(),
                                         *report, sources_.owner_of)));
    };
    // The holdings come on another thread; the weak pointer is checked on the runner's thread.
    sources_.holdings([answer, runner = runner_, weak = weak_.Get()](Holdings holdings) {
      runner->Post([answer, weak, holdings = std::move(holdings)] {
        if (weak) answer(holdings);
      });
    });
  });
}

}  // namespace tessera::agent
