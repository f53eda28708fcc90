// SPDX-License-Identifier: Apache-2.0
#include "src/operator/resource_status.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"

namespace tessera::operators {
namespace {

// Far below the API's limit for a condition's message, 32 KiB.
constexpr size_t kMaxMessage = 2048;

std::string CutMessage(std::string text) {
  if (text.size() <= kMaxMessage) return text;
  return TruncateUtf8(std::move(text), kMaxMessage) + "…";
}

const Json* ItemIn(const Json* status, std::string_view list, std::string_view key,
                   std::string_view name) {
  const Json* items = status == nullptr ? nullptr : status->Find(list);
  if (items == nullptr || !items->is_array()) return nullptr;
  for (const Json& item : items->items()) {
    if (item.StringAt(key).value_or("") == name) return &item;
  }
  return nullptr;
}

struct ConditionFields {
  std::string type;
  bool holds = false;
  std::string reason;
  std::string message;
};

Json ConditionJson(const ConditionFields& condition, int64_t generation, const Json* previous,
                   WallTime now) {
  const std::string_view status = condition.holds ? "True" : "False";
  const Json* before = ItemIn(previous, "conditions", "type", condition.type);
  std::string since = Rfc3339(now);
  if (before != nullptr && before->StringAt("status").value_or("") == status) {
    since = before->StringAt("lastTransitionTime").value_or(since);
  }
  return Json::MakeObject({{"type", Json::String(condition.type)},
                           {"status", Json::String(status)},
                           {"observedGeneration", Json::Int(generation)},
                           {"lastTransitionTime", Json::String(since)},
                           {"reason", Json::String(condition.reason)},
                           {"message", Json::String(CutMessage(condition.message))}});
}

std::string_view NameOfState(ComponentState state) {
  switch (state) {
    case ComponentState::kReady:
      return "Ready";
    case ComponentState::kProgressing:
      return "Progressing";
    case ComponentState::kFailed:
      return "Failed";
  }
  return "Unknown";
}

std::string MessagesOf(const StatusInput& input, ComponentState state) {
  std::string text;
  for (const ComponentReport& component : input.components) {
    if (component.state != state) continue;
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", component.name, component.message);
  }
  return text;
}

const ComponentReport* FirstOf(const StatusInput& input, ComponentState state) {
  for (const ComponentReport& component : input.components) {
    if (component.state == state) return &component;
  }
  return nullptr;
}

ConditionFields DegradedOf(const StatusInput& input) {
  if (!input.spec_status.ok()) {
    return {"Degraded", true, "InvalidSpec",
            input.spec_status.message() + "; the objects of the last valid spec stay"};
  }
  if (const ComponentReport* failed = FirstOf(input, ComponentState::kFailed)) {
    return {"Degraded", true, failed->reason, MessagesOf(input, ComponentState::kFailed)};
  }
  if (!input.access_error.empty()) return {"Degraded", true, "WatchFailed", input.access_error};
  if (input.nodes.problem_count > 0) {
    const NodeProblem& first = input.nodes.problems.front();
    return {"Degraded", true, first.reason,
            fmt::format("{} of {} nodes have a problem; the first is {}: {}",
                        input.nodes.problem_count, input.nodes.total, first.node, first.message)};
  }
  return {"Degraded", false, "AsExpected", "no component and no node has a problem"};
}

ConditionFields ProgressingOf(const StatusInput& input) {
  if (!input.deletion_waits_for.empty())
    return {"Progressing", true, "Deleting", input.deletion_waits_for};
  if (const ComponentReport* component = FirstOf(input, ComponentState::kProgressing)) {
    return {"Progressing", true, component->reason,
            MessagesOf(input, ComponentState::kProgressing)};
  }
  return {"Progressing", false, "AsExpected", "all objects are as the spec says"};
}

ConditionFields ReadyOf(const ConditionFields& degraded, const ConditionFields& progressing) {
  // A problem of a single node is enough for Degraded, and so for Ready=False.
  if (progressing.holds) return {"Ready", false, progressing.reason, progressing.message};
  if (degraded.holds) return {"Ready", false, degraded.reason, degraded.message};
  return {"Ready", true, "AllComponentsReady", "all components are ready on all nodes"};
}

Json ComponentsJson(const StatusInput& input) {
  Json list = Json::MakeArray();
  for (const ComponentReport& component : input.components) {
    list.Append(
        Json::MakeObject({{"name", Json::String(component.name)},
                          {"state", Json::String(NameOfState(component.state))},
                          {"reason", Json::String(component.reason)},
                          {"message", Json::String(CutMessage(component.message))},
                          {"objects", Json::Int(static_cast<int64_t>(component.object_count))}}));
  }
  return list;
}

Json NodesJson(const NodeHealth& nodes) {
  Json problems = Json::MakeArray();
  for (const NodeProblem& problem : nodes.problems) {
    problems.Append(Json::MakeObject({{"node", Json::String(problem.node)},
                                      {"reason", Json::String(problem.reason)},
                                      {"message", Json::String(CutMessage(problem.message))}}));
  }
  const auto count = [](size_t value) { return Json::Int(static_cast<int64_t>(value)); };
  return Json::MakeObject({{"total", count(nodes.total)},
                           {"withGPUs", count(nodes.with_gpus)},
                           {"ready", count(nodes.ready)},
                           {"managedByNVIDIA", count(nodes.managed_by_nvidia)},
                           {"withProblems", count(nodes.problem_count)},
                           {"problems", std::move(problems)}});
}

// Failed nodes are left out, because they are already listed as problems of nodes.
ConditionFields UpgradingOf(const FleetReport& drivers) {
  int in_progress = 0, waiting = 0, total = 0;
  std::string blocked;
  for (const DriverPoolReport& pool : drivers.pools) {
    in_progress += pool.counts.in_progress;
    waiting += pool.counts.pending;
    total += pool.counts.total;
    if (blocked.empty() && !pool.blocked.empty()) blocked = "; next: " + pool.blocked;
  }
  if (in_progress > 0) {
    return {"DriverUpgrading", true, "InProgress",
            fmt::format("{} of {} nodes upgrade their driver, {} wait{}", in_progress, total,
                        waiting, blocked)};
  }
  if (waiting > 0) {
    return {"DriverUpgrading", false, "Waiting",
            fmt::format("{} of {} nodes wait for an upgrade of their driver{}", waiting, total,
                        blocked)};
  }
  return {"DriverUpgrading", false, "AsExpected", "no node waits for another driver"};
}

Json DriversJson(const FleetReport& drivers) {
  Json pools = Json::MakeArray();
  for (const DriverPoolReport& pool : drivers.pools) {
    Json json = Json::MakeObject({{"name", Json::String(pool.name)},
                                  {"nodes", Json::Int(pool.counts.total)},
                                  {"pending", Json::Int(pool.counts.pending)},
                                  {"inProgress", Json::Int(pool.counts.in_progress)},
                                  {"done", Json::Int(pool.counts.done)},
                                  {"failed", Json::Int(pool.counts.failed)},
                                  {"unavailable", Json::Int(pool.counts.unavailable)},
                                  {"onHost", Json::Int(pool.on_host)}});
    if (!pool.blocked.empty()) json.Set("blocked", Json::String(CutMessage(pool.blocked)));
    if (!pool.plan.empty()) json.Set("plan", Json::String(pool.plan));
    pools.Append(std::move(json));
  }
  return pools;
}

Json SortKeys(const Json& value) {
  if (value.is_array()) {
    Json out = Json::MakeArray();
    for (const Json& item : value.items()) out.Append(SortKeys(item));
    return out;
  }
  if (!value.is_object()) return value;
  Json::Object members;
  for (const auto& [key, member] : value.members()) members.emplace_back(key, SortKeys(member));
  std::sort(members.begin(), members.end(),
            [](const Json::Member& a, const Json::Member& b) { return a.first < b.first; });
  return Json::MakeObject(std::move(members));
}

}  // namespace

Json StatusOf(const StatusInput& input, const Json* previous, WallTime now) {
  const ConditionFields degraded = DegradedOf(input);
  const ConditionFields progressing = ProgressingOf(input);
  const ConditionFields coexistence{
      "NVIDIAOperatorPresent", !input.coexistence_text.empty(),
      input.coexistence_text.empty() ? "NoClusterPolicy" : "NodesManagedByNVIDIA",
      input.coexistence_text.empty() ? "no ClusterPolicy manages nodes" : input.coexistence_text};
  Json conditions = Json::MakeArray();
  for (const ConditionFields& condition :
       {ReadyOf(degraded, progressing), progressing, degraded, coexistence}) {
    conditions.Append(ConditionJson(condition, input.generation, previous, now));
  }
  if (input.drivers) {
    conditions.Append(ConditionJson(UpgradingOf(*input.drivers), input.generation, previous, now));
  }
  Json status = Json::MakeObject({{"observedGeneration", Json::Int(input.generation)},
                                  {"conditions", std::move(conditions)},
                                  {"components", ComponentsJson(input)},
                                  {"nodes", NodesJson(input.nodes)}});
  if (input.drivers) status.Set("drivers", DriversJson(*input.drivers));
  return status;
}

void AddDriverProblems(const FleetReport& drivers, NodeHealth* nodes) {
  for (const NodeProblem& driver_problem : drivers.problems) {
    const bool known = std::ranges::any_of(nodes->problems, [&](const NodeProblem& problem) {
      return problem.node == driver_problem.node;
    });
    if (known) continue;
    ++nodes->problem_count;
    if (nodes->problems.size() < kMaxProblems) nodes->problems.push_back(driver_problem);
  }
}

std::string CanonicalText(const Json& value) { return SortKeys(value).Serialize(); }

std::vector<StatusChange> ChangesBetween(const Json* previous, const Json& now) {
  std::vector<StatusChange> changes;
  const auto differs = [&](std::string_view list, std::string_view key, std::string_view state,
                           const Json& item) {
    const Json* before = ItemIn(previous, list, key, item.StringAt(key).value_or(""));
    return before == nullptr ||
           before->StringAt(state).value_or("") != item.StringAt(state).value_or("") ||
           before->StringAt("reason").value_or("") != item.StringAt("reason").value_or("");
  };
  for (const Json& item : now.Find("components")->items()) {
    if (!differs("components", "name", "state", item)) continue;
    changes.push_back(
        {item.StringAt("state").value() == NameOfState(ComponentState::kFailed),
         item.StringAt("reason").value(),
         fmt::format("{}: {}", item.StringAt("name").value(), item.StringAt("message").value())});
  }
  for (const Json& item : now.Find("conditions")->items()) {
    const std::string type = item.StringAt("type").value();
    const bool holds = item.StringAt("status").value() == "True";
    if (type == "Progressing" || !differs("conditions", "type", "status", item)) continue;
    const bool fault = type == "Ready" ? !holds : holds && type != "DriverUpgrading";
    if (previous == nullptr && !fault) continue;
    changes.push_back({fault && type != "Ready", item.StringAt("reason").value(),
                       fmt::format("{} is {}: {}", type, holds ? "true" : "false",
                                   item.StringAt("message").value())});
  }
  const Json* nodes = previous == nullptr ? nullptr : previous->Find("nodes");
  for (const Json& item : now.Find("nodes")->Find("problems")->items()) {
    const Json* before = ItemIn(nodes, "problems", "node", item.StringAt("node").value());
    const std::string reason = item.StringAt("reason").value();
    if (before != nullptr && before->StringAt("reason").value_or("") == reason) continue;
    changes.push_back({true, reason,
                       fmt::format("node {}: {}", item.StringAt("node").value(),
                                   item.StringAt("message").value())});
  }
  return changes;
}

std::string ReasonOf(const Status& status) {
  switch (status.code()) {
    case Code::kPermissionDenied:
      return "Forbidden";
    case Code::kInvalidArgument:
      return "InvalidObject";
    case Code::kNotFound:
      return "NotFound";
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
      return "APIServerUnreachable";
    case Code::kResourceExhausted:
      return "APIServerThrottles";
    default:
      return "ApplyFailed";
  }
}

}  // namespace tessera::operators
