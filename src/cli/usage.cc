// SPDX-License-Identifier: Apache-2.0
#include "src/cli/usage.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "api/names.h"
#include "src/cli/json_of.h"
#include "src/cli/output/text.h"
#include "src/device/node_annotation.h"
#include "src/device/request.h"

namespace tessera::cli {
namespace {

constexpr const char* kUnknown = "-";  // instead of a number
constexpr const char* kNotLimited = "not limited";

Result<ContainerUse> DecodeUse(const Json& json, const std::string& node) {
  ContainerUse use{.node = node};
  const Json* memory = json.Find("memory");
  if (memory == nullptr || !memory->is_object()) {
    return Error(Code::kInvalidArgument, "container without \"memory\"");
  }
  for (const auto& [key, text] :
       {std::pair("namespace", &use.ns), std::pair("pod", &use.pod),
        std::pair("container", &use.container), std::pair("uuid", &use.uuid)}) {
    ASSIGN_OR_RETURN(*text, json.StringAt(key));
  }
  ASSIGN_OR_RETURN(const int64_t granted, memory->IntAt("granted"));
  use.granted = Bytes(granted);
  ASSIGN_OR_RETURN(const int64_t milli, json.IntAt("milli"));
  use.compute = MilliGpu(milli);
  const Result<int64_t> index = json.IntAt("index");
  use.gpu = index.ok() ? fmt::format("{}", *index) : kUnknown;
  // Older agents omit "limited" and report only limited containers.
  const Json* limited = json.Find("limited");
  use.limited = limited == nullptr || limited->bool_value();
  if (!use.limited) return use;
  for (const auto& [key, bytes] :
       {std::pair("limit", &use.limit), std::pair("used", &use.used),
        std::pair("unaccounted", &use.unaccounted), std::pair("peak", &use.peak)}) {
    ASSIGN_OR_RETURN(const int64_t count, memory->IntAt(key));
    *bytes = Bytes(count);
  }
  if (memory->Find("driver") != nullptr) {
    ASSIGN_OR_RETURN(const int64_t count, memory->IntAt("driver"));
    use.driver_reported = Bytes(count);
  }
  if (json.Find("class") != nullptr) {
    ASSIGN_OR_RETURN(use.compute_class, json.StringAt("class"));
  }
  if (json.Find("limit_milli") != nullptr) {
    ASSIGN_OR_RETURN(const int64_t limit, json.IntAt("limit_milli"));
    use.compute_limit = MilliGpu(limit);
  }
  if (json.Find("used_milli") != nullptr) {
    ASSIGN_OR_RETURN(const int64_t used, json.IntAt("used_milli"));
    use.compute_used = MilliGpu(used);
  }
  if (json.Find("driver_milli") != nullptr) {
    ASSIGN_OR_RETURN(const int64_t used, json.IntAt("driver_milli"));
    use.compute_by_driver = MilliGpu(used);
  }
  if (json.Find("waiting_milli") != nullptr) {
    ASSIGN_OR_RETURN(use.waiting_threads_milli, json.IntAt("waiting_milli"));
  }
  if (json.Find("waited_ms") != nullptr) {
    ASSIGN_OR_RETURN(use.waited_ms, json.IntAt("waited_ms"));
  }
  if (json.Find("mean_milli") != nullptr) {
    ASSIGN_OR_RETURN(use.mean_used_milli, json.IntAt("mean_milli"));
    ASSIGN_OR_RETURN(use.worst_deviation_milli, json.IntAt("worst_error_milli"));
  }
  if (json.Find("mean_driver_milli") != nullptr) {
    ASSIGN_OR_RETURN(use.mean_by_driver_milli, json.IntAt("mean_driver_milli"));
  }
  ASSIGN_OR_RETURN(use.rejected_allocations, json.IntAt("refused"));
  ASSIGN_OR_RETURN(use.processes, json.IntAt("processes"));
  use.without_limiter = json.IntAt("without_limiter").value_or(0);
  return use;
}

bool IsFull(const ContainerUse& use) { return use.limit > Bytes(0) && use.used >= use.limit; }

constexpr std::array<const char*, 5> kComputeColumns = {"SHARE", "UP TO", "COMPUTE", "BY DRIVER",
                                                        "WAITING"};
std::array<std::string, 5> ComputeTexts(const ContainerUse& use) {
  const auto share_text = [](std::optional<MilliGpu> part) {
    return part && *part != MilliGpu(0) ? GpuCountText(part->count()) : kUnknown;
  };
  const auto use_text = [](std::optional<MilliGpu> used) {
    return used ? GpuCountText(used->count()) : kUnknown;
  };
  return {share_text(use.compute), share_text(use.compute_limit), use_text(use.compute_used),
          use_text(use.compute_by_driver),
          use.waiting_threads_milli
              ? fmt::format("{:.2f}", static_cast<double>(*use.waiting_threads_milli) / 1000)
              : kUnknown};
}

// Adds the columns MEMORY, LIMIT, PEAK and REFUSED.
void AddMemoryCells(const ContainerUse& use, std::string limit, std::vector<Cell>* row) {
  if (!use.limited) {
    row->insert(row->end(), {kUnknown, Cell(kNotLimited, Tone::kBad), kUnknown, kUnknown});
    return;
  }
  row->emplace_back(MemoryText(use.used), IsFull(use) ? Tone::kBad : Tone::kPlain);
  const bool bypassed = use.without_limiter > 0;
  row->emplace_back(bypassed ? limit + ", bypassed" : std::move(limit),
                    bypassed ? Tone::kBad : Tone::kPlain);
  row->emplace_back(MemoryText(use.peak));
  row->emplace_back(fmt::format("{}", use.rejected_allocations),
                    use.rejected_allocations > 0 ? Tone::kBad : Tone::kPlain);
}

std::vector<Cell> RowOf(const ContainerUse& use, bool all_namespaces, bool wide) {
  std::vector<Cell> row;
  if (all_namespaces) row.emplace_back(use.ns);
  row.emplace_back(use.pod);
  row.emplace_back(use.container);
  row.emplace_back(use.node);
  row.emplace_back(use.gpu);
  AddMemoryCells(use, MemoryText(use.limit), &row);
  for (std::string& text : ComputeTexts(use)) row.emplace_back(std::move(text));
  if (!wide) return row;
  row.emplace_back(use.waited_ms
                       ? fmt::format("{:.1f}s", static_cast<double>(*use.waited_ms) / 1000)
                       : kUnknown);
  row.emplace_back(use.compute_class.empty() ? kUnknown : use.compute_class);
  row.emplace_back(MemoryText(use.granted));
  row.emplace_back(use.limited ? MemoryText(use.unaccounted) : kUnknown);
  row.emplace_back(use.driver_reported ? MemoryText(*use.driver_reported) : kUnknown);
  row.emplace_back(use.limited ? fmt::format("{}", use.processes) : kUnknown);
  row.emplace_back(use.uuid);
  return row;
}

}  // namespace

Result<UsagePage> DecodeUses(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const std::string node, json.StringAt("node"));
  const Json* containers = json.Find("containers");
  if (containers == nullptr || !containers->is_array()) {
    return Error(Code::kInvalidArgument, "\"containers\" is not a list");
  }
  UsagePage page;
  for (const Json& container : containers->items()) {
    ASSIGN_OR_RETURN(ContainerUse use, DecodeUse(container, node));
    page.uses.push_back(std::move(use));
  }
  // Older agents omit "complete".
  const Json* complete = json.Find("complete");
  page.complete = complete == nullptr || complete->bool_value();
  return page;
}

// After an agent has ended, the kubelet sets the amounts of its resources to 0, but the annotation
// stays.
bool HasGpuResources(const kube::NodeObject& node) {
  const bool offers = std::ranges::any_of(node.capacity, [](const auto& resource) {
    return device::IsGpuResource(resource.first) && resource.second != "0";
  });
  if (offers) return true;
  const auto text = node.meta.annotations.find(names::kAnnotationDevices);
  if (text == node.meta.annotations.end()) return false;
  const Result<device::NodeInventory> inventory = device::DecodeNodeInventory(text->second);
  return inventory.ok() && !inventory->gpus.empty();
}

std::string TextOfNodeWithoutAgent(std::string_view node) {
  return fmt::format(
      "node {} has GPU resources, but no agent runs on it: its containers are not shown: check "
      "daemonsets.nodeSelector and daemonsets.tolerations (see \"tessera status\")",
      node);
}

Json JsonOfUse(const ContainerUse& use) {
  Json memory = Json::MakeObject({{"granted", Json::Int(use.granted.count())}});
  if (use.limited) {
    memory.Set("limit", Json::Int(use.limit.count()));
    memory.Set("used", Json::Int(use.used.count()));
    memory.Set("unaccounted", Json::Int(use.unaccounted.count()));
    memory.Set("peak", Json::Int(use.peak.count()));
  }
  if (use.driver_reported) memory.Set("driver", Json::Int(use.driver_reported->count()));
  Json json = Json::MakeObject({{"namespace", Json::String(use.ns)},
                                {"pod", Json::String(use.pod)},
                                {"container", Json::String(use.container)},
                                {"node", Json::String(use.node)},
                                {"gpu", Json::String(use.gpu)},
                                {"uuid", Json::String(use.uuid)},
                                {"limited", Json::Bool(use.limited)},
                                {"milli", Json::Int(use.compute.count())}});
  if (!use.compute_class.empty()) json.Set("class", Json::String(use.compute_class));
  if (use.compute_limit) json.Set("limit_milli", Json::Int(use.compute_limit->count()));
  if (use.compute_used) json.Set("used_milli", Json::Int(use.compute_used->count()));
  if (use.compute_by_driver) json.Set("driver_milli", Json::Int(use.compute_by_driver->count()));
  if (use.waiting_threads_milli) json.Set("waiting_milli", Json::Int(*use.waiting_threads_milli));
  if (use.waited_ms) json.Set("waited_ms", Json::Int(*use.waited_ms));
  if (use.mean_used_milli) json.Set("mean_milli", Json::Int(*use.mean_used_milli));
  if (use.worst_deviation_milli)
    json.Set("worst_error_milli", Json::Int(*use.worst_deviation_milli));
  if (use.mean_by_driver_milli) json.Set("mean_driver_milli", Json::Int(*use.mean_by_driver_milli));
  json.Set("memory", std::move(memory));
  if (!use.limited) return json;
  json.Set("refused", Json::Int(use.rejected_allocations));
  json.Set("processes", Json::Int(use.processes));
  json.Set("without_limiter", Json::Int(use.without_limiter));
  return json;
}

Result<std::string> ShowTop(const ClusterUses& all, std::string_view ns, const Style& style) {
  Listing list{.kind = "Container",
               .empty_text = ns.empty() ? "No running container has a share of a GPU."
                                        : fmt::format("No running container of namespace {} has a "
                                                      "share of a GPU; -A shows all namespaces.",
                                                      ns)};
  if (ns.empty()) list.columns.emplace_back("NAMESPACE");
  list.columns.insert(list.columns.end(),
                      {"POD", "CONTAINER", "NODE", "GPU", "MEMORY", "LIMIT", "PEAK", "REFUSED"});
  list.columns.insert(list.columns.end(), kComputeColumns.begin(), kComputeColumns.end());
  if (style.wide()) {
    list.columns.insert(list.columns.end(), {"THROTTLED", "CLASS", "GRANTED", "UNACCOUNTED",
                                             "MEMORY BY DRIVER", "PROCESSES", "UUID"});
  }
  for (const ContainerUse& use : all.uses) {
    if (!ns.empty() && use.ns != ns) continue;
    Listing::Row& row = list.rows.emplace_back();
    if (style.shows_cells()) row.cells = RowOf(use, ns.empty(), style.wide());
    if (!style.needs_objects()) continue;
    row.object = JsonOfUse(use);
    row.object.Set("metadata", MetadataOf(use.ns, use.pod + "/" + use.container));
  }
  Json problems = Json::MakeObject();
  for (const auto& [node, status] : all.problems) {
    problems.Set(node, Json::String(status.message()));
  }
  for (const std::string& node : all.nodes_without_agent) {
    problems.Set(node, Json::String(TextOfNodeWithoutAgent(node)));
  }
  list.extra_members.emplace_back("problems", std::move(problems));
  return Print(std::move(list), style);
}

std::vector<ContainerUse> UsesOf(const ClusterUses& all, std::string_view ns,
                                 std::string_view pod) {
  std::vector<ContainerUse> uses;
  std::ranges::copy_if(all.uses, std::back_inserter(uses),
                       [&](const ContainerUse& use) { return use.ns == ns && use.pod == pod; });
  return uses;
}

Status UsageProblem(const Result<ClusterUses>& uses) {
  if (!uses.ok()) return uses.status();
  return uses->problems.empty() ? Status::Ok() : uses->problems.begin()->second;
}

Status ProblemOf(const ClusterUses& uses) {
  if (!uses.uses.empty() || uses.problems.empty()) return Status::Ok();
  const auto& [node, status] = *uses.problems.begin();
  if (status.code() != Code::kPermissionDenied) {
    return status.Annotate(fmt::format("no agent reports usage; the agent of node {}", node));
  }
  return status.Annotate(
      "no permission to read from the agents: ask an administrator for get on pods/proxy in their "
      "namespace (Role tessera-view-usage)");
}

std::string ShareSentence(const ContainerUse& use) {
  if (!use.mean_used_milli || !use.worst_deviation_milli) return "";
  const int64_t error = *use.worst_deviation_milli;
  const std::string worst =
      error == 0  ? "never beyond its limit, and never below its share while it waited"
      : error > 0 ? fmt::format("at worst {} beyond its limit in a second", GpuCountText(error))
                  : fmt::format("at worst {} below its share in a second, while it waited",
                                GpuCountText(-error));
  const std::string by_driver =
      use.mean_by_driver_milli
          ? fmt::format(" ({} by the driver)", GpuCountText(*use.mean_by_driver_milli))
          : "";
  return fmt::format("{} on GPU {} in the last minute: {} on average{}, {}", use.container, use.gpu,
                     GpuCountText(*use.mean_used_milli), by_driver, worst);
}

TextTable UsesTable(const std::vector<ContainerUse>& uses) {
  std::vector<std::string> columns{"CONTAINER", "GPU", "MEMORY", "LIMIT", "PEAK", "REFUSED"};
  columns.insert(columns.end(), kComputeColumns.begin(), kComputeColumns.end());
  columns.insert(columns.end(), {"CLASS", "UNACCOUNTED"});
  TextTable table{columns};
  for (const ContainerUse& use : uses) {
    std::string limit =
        use.limit < use.granted
            ? fmt::format("{} of {} granted", MemoryText(use.limit), MemoryText(use.granted))
            : MemoryText(use.limit);
    std::vector<Cell> row{use.container, use.gpu};
    AddMemoryCells(use, std::move(limit), &row);
    for (std::string& text : ComputeTexts(use)) row.emplace_back(std::move(text));
    row.emplace_back(use.compute_class.empty() ? kUnknown : use.compute_class);
    row.emplace_back(use.limited ? MemoryText(use.unaccounted) : kUnknown);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace tessera::cli
