// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/cli/commands.h"
#include "src/cli/json_of.h"
#include "src/cli/output/table.h"
#include "src/cli/output/text.h"
#include "src/cli/session.h"

namespace tessera::cli {
namespace {

using ledger::BindingState;
using ledger::PodEntry;

Cell StatusOf(const PodEntry& pod) {
  std::string text = pod.binding_state == BindingState::kWaiting ? "Waiting" : "Placed";
  if (pod.deleting) text = "Leaving";
  if (!pod.problem().empty()) return {text + ": " + pod.problem(), Tone::kBad};
  if (pod.guessed()) return {text + ": the agent has not reported the GPUs", Tone::kPlain};
  return {text, pod.binding_state == BindingState::kWaiting ? Tone::kPlain : Tone::kGood};
}

std::vector<Cell> CellsOf(const ClusterView& view, const PodEntry& pod, bool with_namespace,
                          const Style& style) {
  std::vector<Cell> cells;
  if (with_namespace) cells.emplace_back(pod.request.ns);
  cells.emplace_back(pod.request.name);
  const std::string request =
      device::RequestText(*pod.request.devices, view.ledger().options().gpu_mem_unit);
  cells.emplace_back(request.empty() ? "none" : request);
  cells.emplace_back(pod.node.empty() ? "-" : pod.node);
  std::string names, uuids;
  for (const DeviceView& device : view.DevicesOf(pod)) {
    names += (names.empty() ? "" : ",") + device.name;
    if (!uuids.empty()) uuids += ',';
    uuids += device.uuid;
  }
  cells.emplace_back(names.empty() ? "-" : names);
  if (style.wide()) {
    cells.emplace_back(fmt::format("{}", pod.request.priority));
    cells.emplace_back(uuids.empty() ? "-" : uuids);
  }
  cells.push_back(StatusOf(pod));
  return cells;
}

// The pods with these names; all pods if `names` is empty.
Result<std::vector<const PodEntry*>> PodsNamed(const ClusterView& view, std::string_view ns,
                                               const std::vector<std::string>& names) {
  const std::vector<const PodEntry*> all = view.Pods(ns);
  if (names.empty()) return all;
  std::vector<const PodEntry*> pods;
  for (const std::string& name : names) {
    const auto is_named = [&](const auto& pod) { return pod->request.name == name; };
    const auto found = std::ranges::find_if(all, is_named);
    if (found != all.end()) {
      pods.push_back(*found);
      continue;
    }
    for (const auto& [uid, pod] : view.ledger().pods()) {
      if (pod.request.ns != ns || pod.request.name != name) continue;
      return Error(Code::kNotFound, "pod {} in namespace {} requests no GPU", name, ns);
    }
    return NoSuchPod(view.ledger(), std::string(ns), name);
  }
  return pods;
}

}  // namespace

Json JsonOfPod(const ClusterView& view, const PodEntry& pod) {
  const device::MemoryUnit unit = view.ledger().options().gpu_mem_unit;
  Json containers = Json::MakeArray();
  const device::Assignment assignment = pod.assignment();
  for (const device::ContainerRequest& container : pod.request.devices->containers) {
    if (container.dialect == device::Dialect::kNone) continue;
    Json json = Json::MakeObject({{"name", Json::String(container.name)},
                                  {"asks", Json::String(device::RequestText(container, unit))}});
    Json shares = Json::MakeArray();
    const auto assigned = assignment.containers.find(container.name);
    if (assigned != assignment.containers.end()) {
      for (const device::DeviceShare& share : assigned->second) {
        shares.Append(Json::MakeObject({{"uuid", Json::String(share.uuid)},
                                        {"milli", Json::Int(share.compute.count())},
                                        {"bytes", Json::Int(share.memory.count())}}));
      }
    }
    json.Set("gpus", std::move(shares));
    containers.Append(std::move(json));
  }
  Json json =
      Json::MakeObject({{"metadata", MetadataOf(pod.request.ns, pod.request.name, pod.request.uid)},
                        {"placed", Json::Bool(pod.binding_state != BindingState::kWaiting)},
                        {"node", Json::String(pod.node)},
                        {"containers", std::move(containers)}});
  if (pod.deleting) json.Set("deleting", Json::Bool(true));
  if (pod.guessed()) json.Set("confirmed", Json::Bool(false));
  if (!pod.problem().empty()) json.Set("problem", Json::String(pod.problem()));
  return json;
}

Result<std::string> ShowPods(const ClusterView& view, std::string_view ns, const Style& style,
                             const std::vector<std::string>& names) {
  ASSIGN_OR_RETURN(const std::vector<const PodEntry*> pods, PodsNamed(view, ns, names));
  Listing list{.kind = "Pod",
               .empty_text = ns.empty()
                                 ? "No pod requests GPUs."
                                 : fmt::format("No pod in namespace {} requests GPUs; -A shows "
                                               "all namespaces.",
                                               ns)};
  if (ns.empty()) list.columns.emplace_back("NAMESPACE");
  list.columns.insert(list.columns.end(), {"NAME", "ASKS FOR", "NODE", "GPUS"});
  if (style.wide()) list.columns.insert(list.columns.end(), {"PRIORITY", "UUIDS"});
  list.columns.emplace_back("STATUS");
  list.is_one_object = names.size() == 1;
  for (const PodEntry* pod : pods) {
    Listing::Row& row = list.rows.emplace_back();
    if (style.shows_cells()) row.cells = CellsOf(view, *pod, ns.empty(), style);
    if (style.needs_objects()) row.object = JsonOfPod(view, *pod);
  }
  return Print(std::move(list), style);
}

}  // namespace tessera::cli
