// SPDX-License-Identifier: Apache-2.0
#include "src/cli/commands.h"
#include "src/cli/json_of.h"
#include "src/cli/output/table.h"
#include "src/cli/output/text.h"

namespace tessera::cli {
namespace {

Cell StatusOf(const NodeRow& node) {
  const ledger::NodeEntry& entry = *node.entry;
  std::string text = entry.ready ? "Ready" : "NotReady";
  if (entry.unschedulable) text += ",Cordoned";
  if (node.unhealthy_devices() > 0) text += fmt::format(",{} unhealthy", node.unhealthy_devices());
  const std::string& why =
      entry.problem.empty() ? entry.node.inventory.without_uuids().problem : entry.problem;
  if (!why.empty()) text += ": " + why;
  const bool healthy = entry.ready && node.unhealthy_devices() == 0 && why.empty();
  return {text, !healthy ? Tone::kBad : entry.unschedulable ? Tone::kPlain : Tone::kGood};
}

std::string OrDash(const std::string& text) { return text.empty() ? "-" : text; }

Json JsonOfNode(const NodeRow& node) {
  const ledger::NodeEntry& entry = *node.entry;
  Json json = Json::MakeObject({
      {"metadata", MetadataOf("", entry.node.name)},
      {"ready", Json::Bool(entry.ready)},
      {"unschedulable", Json::Bool(entry.unschedulable)},
      {"model", Json::String(node.model)},
      {"pool", Json::String(entry.node.pool)},
      {"driver", Json::String(entry.node.inventory.without_uuids().driver_version)},
      {"internalIP", Json::String(node.entry->internal_ip)},
      {"gpus", Json::MakeObject({{"count", JsonOf(node.devices.size())},
                                 {"idle", JsonOf(node.idle_devices())},
                                 {"unhealthy", JsonOf(node.unhealthy_devices())}})},
      {"milli", Json::MakeObject({{"used", Json::Int(node.used_milli())},
                                  {"total", JsonOf(1000 * node.devices.size())}})},
      {"bytes", Json::MakeObject({{"used", Json::Int(node.used_memory().count())},
                                  {"total", Json::Int(node.memory().count())}})},
      {"pods", JsonOf(node.pods.size())},
  });
  if (!entry.problem.empty()) json.Set("problem", Json::String(entry.problem));
  const device::NodeInventory& inventory = entry.node.inventory.without_uuids();
  if (!inventory.problem.empty()) json.Set("driverProblem", Json::String(inventory.problem));
  if (!inventory.notes.empty()) json.Set("notes", Json::Strings(inventory.notes));
  return json;
}

std::vector<Cell> CellsOf(const NodeRow& node, const Style& style) {
  std::vector<Cell> cells{
      node.entry->node.name,
      OrDash(node.model),
      fmt::format("{}", node.devices.size()),
      fmt::format("{}", node.idle_devices()),
      fmt::format("{}/{}", GpuCountText(node.used_milli()), node.devices.size()),
      MemoryText(node.used_memory(), node.memory()),
      fmt::format("{}", node.pods.size())};
  if (style.wide()) {
    cells.emplace_back(OrDash(node.entry->node.pool));
    cells.emplace_back(OrDash(node.entry->node.inventory.without_uuids().driver_version));
    cells.emplace_back(OrDash(node.entry->internal_ip));
  }
  cells.push_back(StatusOf(node));
  return cells;
}

Result<std::vector<NodeRow>> NodesNamed(const ClusterView& view,
                                        const std::vector<std::string>& names) {
  if (names.empty()) return view.Nodes();
  std::vector<NodeRow> nodes;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(NodeRow node, view.Node(name));
    nodes.push_back(std::move(node));
  }
  return nodes;
}

}  // namespace

std::string NoNodesText(std::string_view selector, std::string_view text_without_selector) {
  if (selector.empty()) return std::string(text_without_selector);
  return fmt::format("No node with GPUs matches -l {}.", selector);
}

Result<std::string> ShowNodes(const ClusterView& view, const Style& style,
                              const std::vector<std::string>& names, std::string_view selector) {
  ASSIGN_OR_RETURN(const std::vector<NodeRow> nodes, NodesNamed(view, names));
  Listing list{.kind = "Node",
               .columns = {"NODE", "MODEL", "GPUS", "FREE", "COMPUTE", "MEMORY", "PODS"},
               .empty_text = NoNodesText(
                   selector,
                   "No node has GPUs. tessera-agent writes GPUs to annotation tessera.dev/devices "
                   "of its Node: check the agents: kubectl get pods -A "
                   "-l app.kubernetes.io/name=tessera-agent")};
  if (style.wide()) list.columns.insert(list.columns.end(), {"POOL", "DRIVER", "INTERNAL-IP"});
  list.columns.emplace_back("STATUS");
  list.is_one_object = names.size() == 1;
  for (const NodeRow& node : nodes) {
    Listing::Row& row = list.rows.emplace_back();
    if (style.shows_cells()) row.cells = CellsOf(node, style);
    if (style.needs_objects()) row.object = JsonOfNode(node);
  }
  return Print(std::move(list), style);
}

}  // namespace tessera::cli
