// SPDX-License-Identifier: Apache-2.0
#include "src/console/json_of.h"

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/device/model.h"

namespace tessera::console {
namespace {

using ledger::ClusterLedger;
using ledger::NodeEntry;
using ledger::PodEntry;

int64_t Seconds(WallTime time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count();
}

// "nvidia.com/gpu" is "gpu".
std::string_view WithoutVendor(std::string_view resource) {
  return resource.substr(resource.find('/') + 1);
}

std::string TextOfContainer(const device::ContainerRequest& container, device::MemoryUnit unit) {
  const device::Share& share = container.per_gpu;
  switch (container.dialect) {
    case device::Dialect::kNone:
      return "";
    case device::Dialect::kNvidiaGpu:
      return fmt::format("{}: {}", WithoutVendor(names::kResourceGpu), container.count);
    case device::Dialect::kNvidiaMig:
      return fmt::format("{}{}: {}", WithoutVendor(names::kResourceMigPrefix),
                         container.mig_profile, container.count);
    case device::Dialect::kGpuMem:
      return fmt::format("{}: {} {}", WithoutVendor(names::kResourceGpuMem),
                         share.memory.count() / SizeOf(unit).count(), NameOf(unit));
    case device::Dialect::kVcuda:
      break;
  }
  const int64_t cores = share.compute.count() * container.count / device::kVcudaCore.count();
  std::string text = fmt::format("{}: {}", WithoutVendor(names::kResourceVcudaCore), cores);
  if (!container.exclusive) {
    text += fmt::format(", {}: {}", WithoutVendor(names::kResourceVcudaMemory),
                        share.memory.count() / device::kVcudaMemoryBlock.count());
  }
  return text;
}

// The position of a device in the inventory. `gpu` is null if the device no longer exists but is
// still held.
struct Position {
  const device::Gpu* gpu = nullptr;
  const device::MigSlice* slice = nullptr;
};

Position PositionOf(const device::NodeInventory& inventory, std::string_view uuid) {
  Position position{inventory.Find(uuid), nullptr};
  for (const device::Gpu& gpu : inventory.gpus) {
    if (!gpu.mig) continue;
    for (const device::MigSlice& slice : *gpu.mig) {
      if (slice.uuid == uuid) position = {&gpu, &slice};
    }
  }
  return position;
}

void SetHealth(const Position& position, Json* out) {
  if (position.gpu == nullptr) {
    out->Set("state", Json::String("gone"));
    out->Set("why", Json::String("no longer on the node"));
    return;
  }
  const bool of_slice = position.slice != nullptr && position.gpu->health.ok();
  const device::Health& health = of_slice ? position.slice->health : position.gpu->health;
  out->Set("state", Json::String(NameOf(health.state)));
  if (!health.reason.empty()) out->Set("why", Json::String(health.reason));
}

Json JsonOfHolders(const SharesByUuid& holders, std::string_view uuid) {
  Json list = Json::MakeArray();
  const auto found = holders.find(uuid);
  if (found == holders.end()) return list;
  for (const ShareHolder& holder : found->second) {
    list.Append(Json::MakeArray({Json::String(holder.pod->request.uid.view()),
                                 Json::Int(holder.share.compute.count()),
                                 Json::Int(holder.share.memory.count())}));
  }
  return list;
}

Json JsonOfDevice(const ClusterLedger& ledger, const NodeEntry& node, size_t index,
                  const SharesByUuid& holders) {
  const placement::GpuSpec& spec = ledger.cluster().spec(node.id).gpus[index];
  const placement::GpuState& state = ledger.cluster().node(node.id).gpus[index];
  const Position position = PositionOf(*node.node.inventory, spec.uuid);
  std::string name = position.gpu == nullptr ? "-" : fmt::format("{}", position.gpu->index);
  if (position.slice != nullptr) name += fmt::format(":{}", position.slice->gpu_instance);
  Json out = Json::MakeObject(
      {{"uuid", Json::String(spec.uuid)},
       {"name", Json::String(name)},
       {"model", Json::String(device::ShortModel(spec.model))},
       {"memory", Json::Int(spec.memory.count())},
       {"used", Json::Int(std::max<int64_t>(0, state.total_bytes - state.free_bytes))},
       {"usedMilli", Json::Int(kWholeGpu.count() - state.free_milli)}});
  if (!spec.mig_profile.empty()) out.Set("slice", Json::String(spec.mig_profile));
  SetHealth(position, &out);
  if (position.gpu != nullptr && position.gpu->numa_node) {
    out.Set("numa", Json::Int(*position.gpu->numa_node));
  }
  out.Set("held", JsonOfHolders(holders, spec.uuid));
  return out;
}

std::string ModelOf(const NodeEntry& node) {
  std::string model;
  std::string_view before;  // mostly all GPUs of a node have one model
  for (const device::Gpu& gpu : node.node.inventory->gpus) {
    if (!model.empty() && gpu.model == before) continue;
    before = gpu.model;
    const std::string one = device::ShortModel(gpu.model);
    model = model.empty() || model == one ? one : "mixed";
  }
  return model;
}

std::string_view StateOf(const PodEntry& pod) {
  if (pod.deleting) return "deleting";
  return pod.binding_state == ledger::BindingState::kWaiting ? "waiting" : "bound";
}

}  // namespace

SharesByUuid HoldersOf(const std::vector<const PodEntry*>& pods) {
  SharesByUuid holders;
  for (const PodEntry* pod : pods) {
    for (const auto& [uuid, share] : ledger::SharesOf(*pod)) holders[uuid].push_back({pod, share});
  }
  return holders;
}

bool IsGpuNode(const NodeEntry& node) {
  return node.id != placement::kNoNode || !node.problem.empty() ||
         !node.node.inventory->problem.empty();
}

Json JsonOfNode(const ClusterLedger& ledger, const NodeEntry& node, const SharesByUuid& holders) {
  const device::NodeInventory& inventory = *node.node.inventory;
  Json out = Json::MakeObject({{"name", Json::String(node.node.name)},
                               {"pool", Json::String(node.node.pool)},
                               {"model", Json::String(ModelOf(node))},
                               {"ready", Json::Bool(node.ready)},
                               {"cordoned", Json::Bool(node.unschedulable)},
                               {"driver", Json::String(inventory.driver_version)}});
  std::string problem = node.problem;
  for (const std::string& other : {inventory.problem, inventory.runtime_problem}) {
    if (problem.empty()) problem = other;
  }
  if (!problem.empty()) out.Set("problem", Json::String(problem));
  Json devices = Json::MakeArray();
  if (node.id != placement::kNoNode) {
    const size_t count = ledger.cluster().spec(node.id).gpus.size();
    for (size_t i = 0; i < count; ++i) devices.Append(JsonOfDevice(ledger, node, i, holders));
  }
  out.Set("gpus", std::move(devices));
  return out;
}

Json JsonOfLinks(const device::NodeInventory& inventory) {
  Json links = Json::MakeArray();
  for (size_t a = 1; a < inventory.links.size(); ++a) {
    for (size_t b = 0; b < a; ++b) links.Append(Json::String(NameOf(inventory.links.At(a, b))));
  }
  return links;
}

std::string RequestTextOf(const device::DeviceRequest& request, device::MemoryUnit unit) {
  std::string text;
  for (const device::ContainerRequest& container : request.containers) {
    const std::string one = TextOfContainer(container, unit);
    if (one.empty()) continue;
    if (!text.empty()) text += " + ";
    text += one;
  }
  return text;
}

Json JsonOfPod(const PodEntry& pod, device::MemoryUnit unit, std::string_view why) {
  Json out = Json::MakeObject({{"uid", Json::String(pod.request.uid.view())},
                               {"namespace", Json::String(pod.request.ns)},
                               {"name", Json::String(pod.request.name)},
                               {"state", Json::String(StateOf(pod))},
                               {"node", Json::String(pod.node)},
                               {"request", Json::String(RequestTextOf(pod.request.devices, unit))},
                               {"created", Json::Int(Seconds(pod.created))}});
  if (!pod.problem.empty()) {
    out.Set("why", Json::String(pod.problem));
  } else if (!why.empty()) {
    out.Set("why", Json::String(why));
  }
  return out;
}

}  // namespace tessera::console
