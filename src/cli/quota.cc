// SPDX-License-Identifier: Apache-2.0
#include "src/cli/commands.h"
#include "src/cli/output/table.h"
#include "src/cli/output/text.h"
#include "src/cli/quota_lines.h"

namespace tessera::cli {
namespace {

std::string PoolsText(const std::vector<std::string>& pools) {
  return pools.empty() ? "any" : fmt::format("{}", fmt::join(pools, ","));
}

// A limit, or its remainder. "?": unknown; "-": no limit.
std::string AmountText(std::optional<int64_t> milli, bool limits_known) {
  if (milli) return GpuCountText(*milli);
  return limits_known ? "-" : "?";
}

const std::vector<std::string> kColumns{"NAMESPACE", "MODEL", "USED", "LEFT", "LIMIT", "POOLS"};

std::vector<Cell> CellsOf(const QuotaLine& line, bool limits_known) {
  std::optional<int64_t> remaining;
  if (line.limit_milli) remaining = *line.limit_milli - line.used_milli;
  const Tone tone = remaining && *remaining <= 0 ? Tone::kBad : Tone::kPlain;
  return {line.ns,
          line.model,
          GpuCountText(line.used_milli),
          Cell(AmountText(remaining, limits_known), tone),
          AmountText(line.limit_milli, limits_known),
          PoolsText(line.pools)};
}

}  // namespace

std::vector<QuotaLine> QuotaLines(const ledger::ClusterLedger& ledger, std::string_view ns) {
  std::vector<QuotaLine> lines;
  for (const auto& [name, use] : ledger.QuotaUse()) {
    if (!ns.empty() && name != ns) continue;
    const auto& [limits, pools] = use.quota;
    if (!limits) {
      for (const auto& [model, milli] : use.used) lines.push_back({name, model, milli, {}, pools});
      if (use.used.empty()) lines.push_back({name, "any", 0, {}, pools});
      continue;
    }
    for (const placement::QuotaLimit& line : *limits) {
      lines.push_back({name, line.model, ledger.quota().Used(name, line.model).count(),
                       line.gpus * kWholeGpu.count(), pools});
    }
    if (limits->empty()) lines.push_back({name, "none", 0, 0, pools});
  }
  return lines;
}

Json JsonOfLine(const QuotaLine& line) {
  Json json = Json::MakeObject({{"namespace", Json::String(line.ns)},
                                {"model", Json::String(line.model)},
                                {"usedMilli", Json::Int(line.used_milli)}});
  if (line.limit_milli) {
    json.Set("leftMilli", Json::Int(*line.limit_milli - line.used_milli));
    json.Set("limitMilli", Json::Int(*line.limit_milli));
  }
  json.Set("pools", Json::Strings(line.pools));
  return json;
}

TextTable QuotaTable(const std::vector<QuotaLine>& lines, bool limits_known) {
  TextTable table{kColumns};
  for (const QuotaLine& line : lines) table.rows.push_back(CellsOf(line, limits_known));
  return table;
}

Result<std::string> ShowQuota(const ClusterView& view, std::string_view ns, const Status& problem,
                              const Style& style) {
  Listing list{.kind = "Quota", .columns = kColumns};
  for (const QuotaLine& line : QuotaLines(view.ledger(), ns)) {
    Listing::Row& row = list.rows.emplace_back();
    if (style.shows_cells()) row.cells = CellsOf(line, problem.ok());
    if (style.needs_objects()) {
      row.object = JsonOfLine(line);
      row.object.Set("metadata", MetadataOf(line.ns, line.model));
    }
  }
  if (!problem.ok()) {
    list.extra_members.emplace_back("problem", Json::String(problem.message()));
    list.note = "Limits are not known: " + std::string(problem.message());
  } else {
    list.empty_text = ns.empty()
                          ? "No namespace has a GPU quota, and none uses GPUs."
                          : fmt::format("Namespace {} has no GPU quota and uses no GPUs.", ns);
  }
  return Print(std::move(list), style);
}

}  // namespace tessera::cli
