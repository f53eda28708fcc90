// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "api/names.h"
#include "src/agent/node/node_condition.h"
#include "src/device/node_annotation.h"
#include "src/kube/event_object.h"

namespace tessera::agent {
namespace {

void AppendGpuEvents(const device::NodeInventory* before, const device::NodeInventory& now,
                     std::vector<NodeEvent>* events) {
  for (const device::Gpu& gpu : now.gpus) {
    const device::Gpu* old = before != nullptr ? before->Find(gpu.uuid) : nullptr;
    const bool was_healthy = old == nullptr || old->health.ok();
    if (was_healthy == gpu.health.ok()) continue;
    if (gpu.health.ok()) {
      events->push_back({false, names::kReasonGpuHealthy,
                         fmt::format("GPU {} ({}) is healthy again, after: {}", gpu.index, gpu.uuid,
                                     old->health.reason)});
    } else {
      events->push_back(
          {true, names::kReasonGpuUnhealthy,
           fmt::format("GPU {} ({}) is unhealthy: {}", gpu.index, gpu.uuid, gpu.health.reason)});
    }
  }
}

// The notes as the annotation has them: shortened, and limited in number.
std::vector<std::string> NotesOf(const device::NodeInventory& inventory) {
  const auto text = device::EncodeNodeInventory(inventory);
  auto read = text.ok() ? device::DecodeNodeInventory(*text) : text.status();
  return read.ok() ? std::move(read->notes) : std::vector<std::string>();
}

void AppendNotes(const std::optional<device::NodeInventory>& before,
                 const device::NodeInventory& now, std::vector<NodeEvent>* events) {
  if (now.notes.empty()) return;
  for (std::string& note : NotesOf(now)) {
    const bool is_old_note = before && std::find(before->notes.begin(), before->notes.end(),
                                                 note) != before->notes.end();
    if (!is_old_note) events->push_back({true, names::kReasonGpuNote, std::move(note)});
  }
}

}  // namespace

std::vector<NodeEvent> EventsBetween(const std::optional<device::NodeInventory>& before,
                                     const device::NodeInventory& now) {
  std::vector<NodeEvent> events;
  const bool had_problem = before && !before->problem.empty();
  if (!now.problem.empty()) {
    if (!had_problem) events.push_back({true, ConditionOf(now).reason, now.problem});
    return events;
  }
  if (had_problem) {
    events.push_back(
        {false, names::kReasonDriverReady,
         fmt::format("driver {} reports {} GPUs", now.driver_version, now.gpus.size())});
  }
  AppendGpuEvents(before && !had_problem ? &*before : nullptr, now, &events);
  const bool had_runtime_problem = before && !before->runtime_problem.empty();
  if (!now.runtime_problem.empty() && !had_runtime_problem) {
    events.push_back({true, names::kReasonRuntimeNotConfigured, now.runtime_problem});
  }
  if (now.runtime_problem.empty() && had_runtime_problem) {
    events.push_back(
        {false, names::kReasonRuntimeConfigured, "containers start through tessera-runtime again"});
  }
  AppendNotes(before, now, &events);
  return events;
}

std::optional<device::NodeInventory> InventoryOn(const Json& node) {
  Result<device::NodeInventory> inventory = device::DecodeNodeInventory(
      TextAt(node, {"metadata", "annotations", names::kAnnotationDevices}));
  if (!inventory.ok()) return std::nullopt;
  return std::move(*inventory);
}

Json EventObject(const Json& node, const NodeEvent& event, WallTime now) {
  const kube::InvolvedObject about{.kind = "Node",
                                   .name = TextAt(node, {"metadata", "name"}),
                                   .uid = Uid(TextAt(node, {"metadata", "uid"}))};
  const auto kind = event.warning ? kube::EventKind::kWarning : kube::EventKind::kNormal;
  return kube::MakeEventObject(fmt::format("{}.{:x}", about.name, now.time_since_epoch().count()),
                               about, {kind, event.reason, event.message},
                               {names::kAgent, about.name, about.name}, now);
}

}  // namespace tessera::agent
