// SPDX-License-Identifier: Apache-2.0
#include "src/cli/status.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "api/names.h"
#include "src/cli/object_fields.h"
#include "src/cli/output/table.h"
#include "src/cli/status_lines.h"
#include "src/formats/metric_line.h"

namespace tessera::cli {
namespace {

constexpr size_t kMaxNodes = 20;  // one screen

const Json* PodOf(const std::map<std::string, const Json*>& pods, const std::string& node) {
  const auto found = pods.find(node);
  return found == pods.end() ? nullptr : found->second;
}

const char* StateOf(const StatusLine& line) {
  if (line.is_unknown) return "unknown";
  return line.works ? "ok" : "problem";
}

// The name in JSON and -o name: "agent of pool a10" becomes "agent-of-pool-a10".
std::string WordOf(std::string name) {
  std::ranges::replace(name, ' ', '-');
  std::erase(name, '\'');
  return name;
}

void AddRows(const std::vector<StatusLine>& lines, std::string_view kind, Listing* list) {
  for (const StatusLine& line : lines) {
    Listing::Row row{
        Json::MakeObject({{"kind", Json::String(kind)},
                          {"metadata", MetadataOf("", WordOf(line.name))},
                          {"works", Json::Bool(line.works)},
                          {"detail", Json::String(line.detail)},
                          {"fix", Json::String(line.fix)}}),
        {line.name, {StateOf(line), line.works ? Tone::kGood : Tone::kBad}, line.detail}};
    if (!line.fix.empty()) row.second_line = {"", "", {"fix: " + line.fix, Tone::kQuiet}};
    list->rows.push_back(std::move(row));
  }
}

}  // namespace

bool InstallationStatus::works() const {
  return nodes.empty() && std::ranges::all_of(components, &StatusLine::works);
}

std::optional<int64_t> FilterRequests(std::string_view leader_metrics) {
  constexpr const char* kMetric = "tessera_scheduler_request_duration_seconds_count";
  for (const MetricLine& sample : SamplesOf(leader_metrics, kMetric)) {
    if (LabelIn(sample.labels, "verb") == "filter") return static_cast<int64_t>(sample.value);
  }
  return std::nullopt;
}

bool MentionsExtender(std::string_view message) {
  return message.find("/v1/extender/") != message.npos ||
         message.find("/gpushare-scheduler/") != message.npos;
}

std::string LeaderOf(const InstallationObjects& objects) {
  if (!objects.scheduler_endpoints.ok()) return "";
  const Json::Array& endpoints = ItemsAt(*objects.scheduler_endpoints, {"endpoints"});
  if (endpoints.empty()) return "";
  const Json::Array& addresses = ItemsAt(endpoints[0], {"addresses"});
  if (addresses.empty()) return "";
  for (const Json& pod : objects.pods) {
    if (TextAt(pod, {"status", "podIP"}) == addresses[0].string_value() &&
        TextAt(pod, {"metadata", "labels", kNameLabel}) == names::kScheduler) {
      return TextAt(pod, {"metadata", "name"});
    }
  }
  return "";
}

std::map<std::string, const Json*> PodsByNode(const std::vector<Json>& pods,
                                              std::string_view program) {
  std::map<std::string, const Json*> by_node;
  for (const Json& pod : pods) {
    if (!program.empty() && TextAt(pod, {"metadata", "labels", kNameLabel}) != program) continue;
    const std::string node = TextAt(pod, {"spec", "nodeName"});
    if (node.empty()) continue;
    const auto [entry, is_new] = by_node.emplace(node, &pod);
    if (!is_new && IsBeingDeleted(*entry->second)) entry->second = &pod;
  }
  return by_node;
}

InstallationStatus StatusOf(const InstallationObjects& objects) {
  InstallationStatus status;
  status.components = OperatorLines(objects);
  if (objects.audit.tool == InstallTool::kNone && status.components.empty()) {
    status.components = {{"Tessera", false, "not installed", "tessera install"}};
    return status;
  }
  std::ranges::move(ObjectLines(objects), std::back_inserter(status.components));
  std::ranges::move(DriverLines(objects), std::back_inserter(status.components));
  std::ranges::move(AgentLines(objects), std::back_inserter(status.components));
  status.components.push_back(SchedulerLine(objects));
  status.components.push_back(WebhookLine(objects));
  status.components.push_back(KubeSchedulerLine(objects));
  const bool has_no_agents = objects.agent_daemonsets.ok() && objects.agent_daemonsets->empty();
  const std::string fix_without_agent =
      has_no_agents ? FixOfMissing(objects)
                    : "check daemonsets.nodeSelector and daemonsets.tolerations";
  const auto agents = PodsByNode(objects.pods, names::kAgent);
  const auto drivers = PodsByNode(objects.driver_pods, "");
  int64_t with_gpus = 0, ready = 0;
  for (const Json& node : objects.nodes) {
    const Json* condition = ConditionOf(node, names::kConditionGpuReady);
    with_gpus += condition != nullptr ? 1 : 0;
    ready += IsTrue(condition) ? 1 : 0;
    const std::string name = TextAt(node, {"metadata", "name"});
    if (auto line = NodeLine(node, PodOf(agents, name), PodOf(drivers, name), objects.warnings,
                             fix_without_agent)) {
      status.nodes.push_back(*std::move(line));
    }
  }
  std::ranges::sort(status.nodes, {}, &StatusLine::name);
  status.components.push_back(
      {"GPUs", ready == with_gpus,
       with_gpus == 0
           ? "no node has reported GPUs"
           : fmt::format("{} of {} nodes with GPUs have all of them healthy", ready, with_gpus),
       ready == with_gpus ? "" : "see the nodes below"});
  return status;
}

Result<std::string> ShowStatus(const InstallationStatus& status, const Style& style) {
  if (!style.shows_cells()) {
    Listing list{.kind = "Status", .extra_members = {{"works", Json::Bool(status.works())}}};
    AddRows(status.components, "Component", &list);
    AddRows(status.nodes, "Node", &list);
    return Print(std::move(list), style);
  }
  Listing components{.kind = "Status", .columns = {"COMPONENT", "STATUS", "DETAIL"}};
  AddRows(status.components, "Component", &components);
  Listing nodes{.kind = "Status",
                .columns = {"NODE", "STATUS", "DETAIL"},
                .max_rows = kMaxNodes,
                .hidden_rows = "more nodes with problems: -o wide shows all"};
  AddRows(status.nodes, "Node", &nodes);
  ASSIGN_OR_RETURN(std::string text, Print(std::move(components), style));
  ASSIGN_OR_RETURN(const std::string below, Print(std::move(nodes), style));
  if (!text.empty() && !below.empty()) text += '\n';
  return text + below;
}

}  // namespace tessera::cli
