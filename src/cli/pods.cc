// SPDX-License-Identifier: Apache-2.0
#include "src/cli/commands.h"
#include "src/cli/json_of.h"
#include "src/cli/table.h"
#include "src/cli/text.h"

namespace tessera::cli {
namespace {

using ledger::PodEntry;
using ledger::Standing;

Cell StatusOf(const PodEntry& pod) {
  std::string text = pod.standing == Standing::kWaiting ? "Waiting" : "Placed";
  if (pod.deleting) text = "Leaving";
  if (!pod.problem.empty()) return {text + ": " + pod.problem, Tone::kBad};
  if (pod.guessed()) return {text + ": the agent has not said which GPUs", Tone::kPlain};
  return {text, pod.standing == Standing::kWaiting ? Tone::kPlain : Tone::kGood};
}

}  // namespace

Json JsonOfPod(const View& view, const PodEntry& pod) {
  const device::MemoryUnit unit = view.ledger().options().gpu_mem_unit;
  Json containers = Json::MakeArray();
  for (const device::ContainerRequest& container : pod.ask.request.containers) {
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
  Json json = Json::MakeObject({{"namespace", Json::String(pod.ask.ns)},
                                {"name", Json::String(pod.ask.name)},
                                {"uid", Json::String(pod.ask.uid.view())},
                                {"placed", Json::Bool(pod.standing != Standing::kWaiting)},
                                {"node", Json::String(pod.node)},
                                {"containers", std::move(containers)}});
  if (pod.deleting) json.Set("deleting", Json::Bool(true));
  if (pod.guessed()) json.Set("confirmed", Json::Bool(false));
  if (!pod.problem.empty()) json.Set("problem", Json::String(pod.problem));
  return json;
}

std::string ShowPods(const View& view, std::string_view ns, Style style) {
  const std::vector<const PodEntry*> pods = view.Pods(ns);
  if (style.for_machines()) {
    Json list = Json::MakeArray();
    for (const PodEntry* pod : pods) list.Append(JsonOfPod(view, *pod));
    return Serialize(Json::MakeObject({{"pods", std::move(list)}}), style);
  }
  Paper paper(style.color);
  if (pods.empty()) {
    paper.Line(ns.empty() ? "No pod requests GPUs."
                          : fmt::format("No pod in namespace {} requests GPUs; -A shows all "
                                        "namespaces.",
                                        ns));
    return paper.Take();
  }
  std::vector<std::string> columns;
  if (ns.empty()) columns.emplace_back("NAMESPACE");
  columns.insert(columns.end(), {"NAME", "ASKS FOR", "NODE", "GPUS"});
  if (style.wide()) columns.insert(columns.end(), {"PRIORITY", "UUIDS"});
  columns.emplace_back("STATUS");
  Table table(std::move(columns));
  for (const PodEntry* pod : pods) {
    std::vector<Cell> row;
    if (ns.empty()) row.emplace_back(pod->ask.ns);
    row.emplace_back(pod->ask.name);
    row.emplace_back(RequestText(pod->ask.request, view.ledger().options().gpu_mem_unit));
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
      row.emplace_back(fmt::format("{}", pod->ask.priority));
      row.emplace_back(uuids.empty() ? "-" : uuids);
    }
    row.push_back(StatusOf(*pod));
    table.Add(std::move(row));
  }
  paper.Add(table);
  return paper.Take();
}

}  // namespace tessera::cli
