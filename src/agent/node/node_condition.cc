// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_condition.h"

#include <fmt/format.h>

#include <utility>

#include "api/names.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

// Every kubectl and scheduler reads a node's status, so the message names only a few GPUs.
constexpr size_t kMaxGpusNamed = 4;
constexpr size_t kMaxMessage = 1024;

std::string CountText(size_t count) {
  return fmt::format("{} GPU{}", count, count == 1 ? "" : "s");
}

// "2 of 8 GPUs are unhealthy: GPU-a: XID 79; GPU-b: XID 48"
std::string UnhealthyText(const device::NodeInventory& inventory) {
  const size_t unhealthy = inventory.gpus.size() - inventory.healthy_count();
  std::string text;
  if (unhealthy > 0) {
    text = fmt::format("{} of {} {} unhealthy:", unhealthy, CountText(inventory.gpus.size()),
                       unhealthy == 1 ? "is" : "are");
  }
  size_t named = 0;
  for (const device::Gpu& gpu : inventory.gpus) {
    if (gpu.health.ok()) continue;
    if (named == kMaxGpusNamed) {
      text += fmt::format("; and {} more", unhealthy - named);
      break;
    }
    text += fmt::format("{} {}: {}", named == 0 ? "" : ";", gpu.uuid, gpu.health.reason);
    ++named;
  }
  if (inventory.unidentified > 0) {
    const auto silent = static_cast<size_t>(inventory.unidentified);
    text += fmt::format("{}{} never reported {} UUID", text.empty() ? "" : "; ", CountText(silent),
                        silent == 1 ? "its" : "their");
  }
  return text;
}

const Json* FindCondition(const Json& node) {
  for (const Json& each : ItemsAt(node, {"status", "conditions"})) {
    if (TextAt(each, {"type"}) == names::kConditionGpuReady) return &each;
  }
  return nullptr;
}

Json Operation(std::string_view op, const std::string& path) {
  return Json::MakeObject({{"op", Json::String(op)}, {"path", Json::String(path)}});
}

}  // namespace

NodeCondition ConditionOf(const device::NodeInventory& inventory, const NodeFindings& findings) {
  if (!findings.driver_reason.empty()) {
    return {false, findings.driver_reason, TruncateUtf8(findings.driver_problem, kMaxMessage)};
  }
  if (!inventory.problem.empty()) {
    // A missing driver has no version.
    const bool has_driver = !inventory.driver_version.empty();
    return {false, has_driver ? names::kReasonNoGpu : names::kReasonDriverNotReady,
            TruncateUtf8(inventory.problem, kMaxMessage)};
  }
  std::string unhealthy = UnhealthyText(inventory);
  if (!unhealthy.empty()) {
    return {false, names::kReasonGpuUnhealthy, TruncateUtf8(std::move(unhealthy), kMaxMessage)};
  }
  if (!inventory.runtime_problem.empty()) {
    return {false, names::kReasonRuntimeNotConfigured,
            TruncateUtf8(inventory.runtime_problem, kMaxMessage)};
  }
  if (!findings.smoke_problem.empty()) {
    return {false, names::kReasonSmokeTestFailed,
            TruncateUtf8(findings.smoke_problem, kMaxMessage)};
  }
  const size_t count = inventory.gpus.size();
  return {true, names::kReasonGpusHealthy,
          fmt::format("{} {} healthy", CountText(count), count == 1 ? "is" : "are")};
}

std::optional<Json> ConditionPatchFor(const Json& node, const NodeCondition& condition,
                                      WallTime now) {
  const std::string status = condition.ready ? "True" : "False";
  const Json* current = FindCondition(node);
  const auto current_value = [&](std::string_view key) {
    return current != nullptr ? current->StringAt(key).value_or("") : "";
  };
  if (current != nullptr && current_value("status") == status &&
      current_value("reason") == condition.reason &&
      current_value("message") == condition.message) {
    return std::nullopt;
  }
  std::string since = current_value("status") == status ? current_value("lastTransitionTime") : "";
  if (since.empty()) since = Rfc3339(now);
  Json entry = Json::MakeObject({{"type", Json::String(names::kConditionGpuReady)},
                                 {"status", Json::String(status)},
                                 {"reason", Json::String(condition.reason)},
                                 {"message", Json::String(condition.message)},
                                 {"lastHeartbeatTime", Json::String(Rfc3339(now))},
                                 {"lastTransitionTime", Json::String(since)}});
  Json patch = Json::MakeObject();
  patch.Set("status", Json::MakeObject({{"conditions", Json::MakeArray({std::move(entry)})}}));
  return patch;
}

std::optional<Json> GpuCountPatchFor(const Json& node, size_t count) {
  const std::string wanted = std::to_string(count);
  Json changes = Json::MakeObject();
  for (const std::string_view part : {"capacity", "allocatable"}) {
    const Json* resources = FindPath(node, {"status", part});
    const std::string current =
        resources != nullptr ? resources->StringAt(names::kResourceGpuCount).value_or("0") : "0";
    if (current == wanted) continue;
    changes.Set(part,
                Json::MakeObject({{std::string(names::kResourceGpuCount), Json::String(wanted)}}));
  }
  if (changes.members().empty()) return std::nullopt;
  return Json::MakeObject({{"status", std::move(changes)}});
}

std::string LabelOf(const Json& node, std::string_view name) {
  return TextAt(node, {"metadata", "labels", name});
}

bool WasGpuNode(const Json& node) {
  return FindCondition(node) != nullptr || !LabelOf(node, names::kLabelGpuPresent).empty();
}

std::optional<Json> TaintPatchFor(const Json& node, const TaintKeys& keys) {
  const Json::Array& taints = ItemsAt(node, {"spec", "taints"});
  Json patch = Json::MakeArray();
  // The removals start at the end, because a removal moves the taints behind it. The test (RFC
  // 6902, 4.6) makes the whole patch fail if another client has changed the list since it was read.
  for (size_t i = taints.size(); i-- > 0;) {
    const Json& taint = taints[i];
    if (!taint.is_object() || !keys.contains(TextAt(taint, {"key"}))) continue;
    const std::string path = fmt::format("/spec/taints/{}", i);
    Json test = Operation("test", path);
    test.Set("value", taint);
    patch.Append(std::move(test));
    patch.Append(Operation("remove", path));
  }
  if (patch.items().empty()) return std::nullopt;
  return patch;
}

}  // namespace tessera::agent
