// SPDX-License-Identifier: Apache-2.0
#include "src/scheduler/inspect.h"

#include <map>
#include <utility>
#include <vector>

#include "src/formats/json.h"

namespace tessera::scheduler {
namespace {

struct Use {
  const ledger::PodEntry* pod;
  Bytes memory;
};
// By UUID of the device.
using Uses = std::map<std::string, std::vector<Use>, std::less<>>;

// By node.
std::map<std::string, Uses, std::less<>> UsesOf(const ledger::ClusterLedger& ledger) {
  std::map<std::string, Uses, std::less<>> all;
  for (const auto& [uid, pod] : ledger.pods()) {
    for (const auto& [uuid, share] : ledger::SharesOf(pod)) {
      all[pod.node][std::string(uuid)].push_back({&pod, share.memory});
    }
  }
  return all;
}

Json DeviceOf(const device::Gpu& gpu, const Uses& uses, int64_t unit) {
  Json pods = Json::MakeArray();
  int64_t used = 0;
  const auto add = [&](std::string_view uuid) {
    const auto of_gpu = uses.find(uuid);
    if (of_gpu == uses.end()) return;
    for (const Use& use : of_gpu->second) {
      const int64_t units = use.memory.count() / unit;
      used += units;
      pods.Append(Json::MakeObject({{"name", Json::String(use.pod->ask.name)},
                                    {"namespace", Json::String(use.pod->ask.ns)},
                                    {"usedGPU", Json::Int(units)}}));
    }
  };
  add(gpu.uuid);
  if (gpu.mig) {
    for (const device::MigSlice& slice : *gpu.mig) add(slice.uuid);
  }
  return Json::MakeObject({{"id", Json::Int(gpu.minor.value_or(gpu.index))},
                           {"totalGPU", Json::Int(gpu.memory.count() / unit)},
                           {"usedGPU", Json::Int(used)},
                           {"pods", std::move(pods)}});
}

Json NodeOf(const ledger::NodeEntry& node, const Uses& uses, int64_t unit) {
  Json devices = Json::MakeArray();
  int64_t total = 0, used = 0;
  for (const device::Gpu& gpu : node.node.inventory->gpus) {
    Json device = DeviceOf(gpu, uses, unit);
    total += device.IntAt("totalGPU").value_or(0);
    used += device.IntAt("usedGPU").value_or(0);
    devices.Append(std::move(device));
  }
  return Json::MakeObject({{"name", Json::String(node.node.name)},
                           {"totalGPU", Json::Int(total)},
                           {"usedGPU", Json::Int(used)},
                           {"devs", std::move(devices)}});
}

}  // namespace

std::string Inspect(const ledger::ClusterLedger& ledger, std::string_view node) {
  const int64_t unit = device::SizeOf(ledger.options().gpu_mem_unit).count();
  const auto uses = UsesOf(ledger);
  Json nodes = Json::MakeArray();
  for (const auto& [name, entry] : ledger.nodes()) {
    if (node.empty() ? entry.id == placement::kNoNode : name != node) continue;
    const auto of_node = uses.find(name);
    nodes.Append(NodeOf(entry, of_node == uses.end() ? Uses() : of_node->second, unit));
  }
  const bool missing = !node.empty() && nodes.items().empty();
  Json answer = Json::MakeObject({{"nodes", std::move(nodes)}});
  if (missing) answer.Set("error", Json::String(fmt::format("there is no node \"{}\"", node)));
  return answer.Serialize();
}

}  // namespace tessera::scheduler
