// SPDX-License-Identifier: Apache-2.0
#include "src/cli/commands.h"
#include "src/cli/json_of.h"
#include "src/cli/output/table.h"
#include "src/cli/output/text.h"
#include "src/device/model.h"

namespace tessera::cli {
namespace {

// Maximum number of holders in a row; -o wide shows all holders.
constexpr size_t kMaxShownHolders = 3;

// "ml/train (whole)", "default/nginx (0.3, 5 GiB)", "web/a (8 GiB)".
std::string HolderText(const PodShare& pod_share) {
  std::string share = pod_share.is_whole() ? "whole" : "";
  if (!pod_share.is_whole() && pod_share.share.compute > MilliGpu(0)) {
    share = GpuCountText(pod_share.share.compute.count());
  }
  if (!pod_share.is_whole() && pod_share.share.memory > Bytes(0)) {
    if (!share.empty()) share += ", ";
    share += MemoryText(pod_share.share.memory);
  }
  return fmt::format("{} ({}{})", pod_share.pod->request.Text(), share,
                     pod_share.pod->guessed() ? ", not confirmed" : "");
}

std::string HoldersText(const DeviceView& device, bool all) {
  std::string text;
  for (size_t i = 0; i < device.holders.size(); ++i) {
    if (!text.empty()) text += ", ";
    if (!all && i == kMaxShownHolders && device.holders.size() > kMaxShownHolders + 1) {
      return text + fmt::format("{} more", device.holders.size() - i);
    }
    text += HolderText(device.holders[i]);
  }
  return text.empty() ? "-" : text;
}

std::vector<Cell> CellsOf(const NodeRow& node, const DeviceView& device, const Style& style) {
  std::string model = device.gpu != nullptr ? device::ShortModel(device.gpu->model) : "";
  if (device.slice != nullptr) model += " " + device.slice->profile;
  std::vector<Cell> row{node.entry->node.name,
                        device.name,
                        model.empty() ? "-" : model,
                        GpuCountText(device.used_milli),
                        MemoryText(device.used_memory, device.memory),
                        HoldersText(device, style.wide())};
  if (style.wide()) {
    row.emplace_back(device.uuid);
    row.emplace_back(device.gpu != nullptr ? device.gpu->pci_bus_id : "-");
    const auto numa = device.gpu != nullptr ? device.gpu->numa_node : std::nullopt;
    row.emplace_back(numa ? fmt::format("{}", *numa) : "-");
  }
  if (!device.unhealthy_reason.empty()) {
    row.emplace_back("Unhealthy: " + device.unhealthy_reason, Tone::kBad);
  } else if (!device.suspect_reason.empty()) {
    row.emplace_back("Suspect: " + device.suspect_reason, Tone::kPlain);
  } else {
    row.emplace_back("Healthy", Tone::kGood);
  }
  return row;
}

Json ItemOf(const NodeRow& node, const DeviceView& device) {
  Json json = Json::MakeObject(
      {{"metadata", MetadataOf("", device.uuid)}, {"node", Json::String(node.entry->node.name)}});
  const Json described = JsonOfDevice(device);
  for (const auto& [key, value] : described.members()) json.Set(key, value);
  Json holders = Json::MakeArray();
  for (const PodShare& pod_share : device.holders) holders.Append(JsonOfPodShare(pod_share));
  json.Set("heldBy", std::move(holders));
  return json;
}

}  // namespace

Json JsonOfPodShare(const PodShare& pod_share) {
  Json json = Json::MakeObject({{"namespace", Json::String(pod_share.pod->request.ns)},
                                {"name", Json::String(pod_share.pod->request.name)},
                                {"uid", Json::String(pod_share.pod->request.uid.str())},
                                {"whole", Json::Bool(pod_share.is_whole())},
                                {"milli", Json::Int(pod_share.share.compute.count())},
                                {"bytes", Json::Int(pod_share.share.memory.count())}});
  if (pod_share.pod->guessed()) json.Set("confirmed", Json::Bool(false));
  return json;
}

Json JsonOfDevice(const DeviceView& device) {
  Json json = Json::MakeObject({{"uuid", Json::String(device.uuid)}});
  if (device.gpu != nullptr) {
    json.Set("index", Json::Int(device.gpu->index));
    if (device.gpu->minor) json.Set("minor", Json::Int(*device.gpu->minor));
    json.Set("model", Json::String(device.gpu->model));
    json.Set("pci", Json::String(device.gpu->pci_bus_id));
    if (device.gpu->numa_node) json.Set("numa", Json::Int(*device.gpu->numa_node));
  }
  if (device.slice != nullptr) json.Set("mig", Json::String(device.slice->profile));
  json.Set("bytes", Json::MakeObject({{"used", Json::Int(device.used_memory.count())},
                                      {"total", Json::Int(device.memory.count())}}));
  json.Set("milli", Json::MakeObject({{"used", Json::Int(device.used_milli)},
                                      {"total", Json::Int(kWholeGpu.count())}}));
  json.Set("healthy", Json::Bool(device.unhealthy_reason.empty()));
  if (!device.unhealthy_reason.empty())
    json.Set("unhealthy", Json::String(device.unhealthy_reason));
  if (!device.suspect_reason.empty()) json.Set("suspect", Json::String(device.suspect_reason));
  return json;
}

Result<std::string> ShowGpus(const ClusterView& view, std::string_view node, const Style& style,
                             std::string_view selector) {
  std::vector<NodeRow> nodes;
  if (node.empty()) {
    nodes = view.Nodes();
  } else {
    ASSIGN_OR_RETURN(NodeRow row, view.Node(node));
    nodes.push_back(std::move(row));
  }
  Listing list{.kind = "GPU",
               .columns = {"NODE", "GPU", "MODEL", "COMPUTE", "MEMORY", "HELD BY"},
               .empty_text = node.empty()
                                 ? NoNodesText(selector, "No node has GPUs: see \"tessera nodes\".")
                                 : fmt::format("Node {} has no GPUs that are known.", node)};
  if (style.wide()) list.columns.insert(list.columns.end(), {"UUID", "PCI", "NUMA"});
  list.columns.emplace_back("STATUS");
  for (const NodeRow& each : nodes) {
    for (const DeviceView& device : each.devices) {
      Listing::Row& row = list.rows.emplace_back();
      if (style.shows_cells()) row.cells = CellsOf(each, device, style);
      if (style.needs_objects()) row.object = ItemOf(each, device);
    }
  }
  return Print(std::move(list), style);
}

}  // namespace tessera::cli
