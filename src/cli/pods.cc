// SPDX-License-Identifier: Apache-2.0
#include "src/cli/commands.h"
#include "src/cli/json_of.h"
#include "src/cli/table.h"
#include "src/cli/text.h"

namespace tessera::cli {
namespace {

using ledger::BindingState;
using ledger::PodEntry;

Cell StatusOf(const PodEntry& pod) {
  std::string text = pod.binding_state == BindingState::kWaiting ? "Waiting" : "Placed";
  if (pod.deleting) text = "Leaving";
  if (!pod.problem.empty()) return {text + ": " + pod.problem, Tone::kBad};
  if (pod.guessed()) return {text + ": the agent has not said which GPUs", Tone::kPlain};
  return {text, pod.binding_state == BindingState::kWaiting ? Tone::kPlain : Tone::kGood};
}

}  // namespace

Json JsonOfPod(const ClusterView& view, const PodEntry& pod) {
  const device::MemoryUnit unit = view.ledger().options().gpu_mem_unit;
  Json containers = Json::MakeArray();
  for (const device::ContainerRequest& container : pod.request.devices.containers) {
    if (container.dialect == device::Dialect::kNone) continue;
    Json json = Json::MakeObject({{"name", Json::String(container.name)},
                                  {"asks", Json::String(RequestText(container, unit))}});
    Json shares = Json::MakeArray();
    const auto has = pod.assignment.containers.find(container.name);
    if (has != pod.assignment.containers.end()) {
      for (const device::DeviceShare& share : has->second) {
        shares.Append(Json::MakeObject({{"uuid", Json::String(share.uuid)},
                                        {"milli", Json::Int(share.compute.count())},
                                        {"bytes", Json::Int(share.memory.count())}}));
      }
    }
    json.Set("gpus", std::move(shares));
    containers.Append(std::move(json));
  }
  Json json = Json::MakeObject({{"namespace", Json::String(pod.request.ns)},
                                {"name", Json::String(pod.request.name)},
                                {"uid", Json::String(pod.request.uid.view())},
                                {"placed", Json::Bool(pod.binding_state != BindingState::kWaiting)},
                                {"node", Json::String(pod.node)},
                                {"containers", std::move(containers)}});
  if (pod.deleting) json.Set("deleting", Json::Bool(true));
  if (pod.guessed()) json.Set("confirmed", Json::Bool(false));
  if (!pod.problem.empty()) json.Set("problem", Json::String(pod.problem));
  return json;
}

std::string ShowPods(const ClusterView& view, std::string_view ns, Style style) {
  const std::vector<const PodEntry*> pods = view.Pods(ns);
  if (style.for_machines()) {
    Json list = Json::MakeArray();
    for (const PodEntry* pod : pods) list.Append(JsonOfPod(view, *pod));
    return Serialize(Json::MakeObject({{"pods", std::move(list)}}), style);
  }
  TextOutput output(style.color);
  if (pods.empty()) {
    output.Line(ns.empty() ? "No pod requests GPUs."
                           : fmt::format("No pod in namespace {} requests GPUs; -A shows all "
                                         "namespaces.",
                                         ns));
    return output.Take();
  }
  std::vector<std::string> columns;
  if (ns.empty()) columns.emplace_back("NAMESPACE");
  columns.insert(columns.end(), {"NAME", "ASKS FOR", "NODE", "GPUS"});
  if (style.wide()) columns.insert(columns.end(), {"PRIORITY", "UUIDS"});
  columns.emplace_back("STATUS");
  TextTable table(std::move(columns));
  for (const PodEntry* pod : pods) {
    std::vector<Cell> row;
    if (ns.empty()) row.emplace_back(pod->request.ns);
    row.emplace_back(pod->request.name);
    row.emplace_back(RequestText(pod->request.devices, view.ledger().options().gpu_mem_unit));
    row.emplace_back(pod->node.empty() ? "-" : pod->node);
    const std::vector<DeviceView> devices = view.DevicesOf(*pod);
    std::string names, uuids;
    for (const DeviceView& device : devices) {
      names += (names.empty() ? "" : ",") + device.name;
      if (!uuids.empty()) uuids += ',';
      uuids += device.uuid;
    }
    row.emplace_back(names.empty() ? "-" : names);
    if (style.wide()) {
      row.emplace_back(fmt::format("{}", pod->request.priority));
      row.emplace_back(uuids.empty() ? "-" : uuids);
    }
    row.push_back(StatusOf(*pod));
    table.Add(std::move(row));
  }
  output.Add(table);
  return output.Take();
}

}  // namespace tessera::cli
