// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/query.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/sim/smi/fields.h"
#include "src/sim/smi/parse_text.h"

namespace tessera::smi {
namespace {

std::string_view TrimSpaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// A missing value is "[N/A]" in CSV.
std::string Cell(const std::string& value, std::string_view unit, const CsvFormat& format) {
  if (value == kNotAvailable) return "[N/A]";
  if (unit.empty()) return value;
  return format.units ? fmt::format("{} {}", value, unit) : value;
}

std::string HeaderCell(std::string_view name, std::string_view unit, const CsvFormat& format) {
  return unit.empty() || !format.units ? std::string(name) : fmt::format("{} [{}]", name, unit);
}

const QueryField* Find(const std::vector<QueryField>& table, std::string_view name) {
  for (const QueryField& field : table) {
    if (field.name == name || field.alias == name) return &field;
  }
  return nullptr;
}

bool SelectFields(const std::vector<QueryField>& table, std::string_view names,
                  std::vector<const QueryField*>* selected, std::string* out) {
  const std::string list = fmt::format("{},", names);  // keeps an empty last name
  for (const std::string_view item : Split(list)) {
    const std::string_view name = TrimSpaces(item);
    const QueryField* field = Find(table, name);
    if (field == nullptr) {
      *out = fmt::format("Field \"{}\" is not a valid field to query.\n\n", name);
      return false;
    }
    selected->push_back(field);
  }
  return true;
}

void AppendHeader(const std::vector<const QueryField*>& fields, const CsvFormat& format,
                  std::string* out) {
  if (!format.header) return;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) *out += ", ";
    *out += HeaderCell(fields[i]->name, fields[i]->unit, format);
  }
  *out += '\n';
}

void AppendLine(const std::vector<const QueryField*>& fields, const CsvFormat& format,
                const QueryLine& line, std::string* out) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) *out += ", ";
    *out += Cell(fields[i]->value(line), fields[i]->unit, format);
  }
  *out += '\n';
}

std::vector<QueryLine> GpuLine(const NvmlGpu& gpu, const NodeValues& node) {
  return {{.gpu = gpu, .node = node}};
}

std::vector<QueryLine> AppLines(const NvmlGpu& gpu, const NodeValues& node) {
  std::vector<QueryLine> lines;
  for (const ListedProcess& process : gpu.Processes()) {
    if (process.type == "C") lines.push_back({.gpu = gpu, .node = node, .process = process});
  }
  return lines;
}

std::vector<QueryLine> PageLines(const NvmlGpu& gpu, const NodeValues& node) {
  std::vector<QueryLine> lines;
  for (const RetiredPage& page : gpu.RetiredPages()) {
    lines.push_back({.gpu = gpu, .node = node, .page = page});
  }
  return lines;
}

std::vector<QueryLine> ClockLines(const NvmlGpu& gpu, const NodeValues& node) {
  std::vector<QueryLine> lines;
  for (const ClockPair& clocks : gpu.SupportedClocks()) {
    lines.push_back({.gpu = gpu, .node = node, .clocks = clocks});
  }
  return lines;
}

struct QueryTable {
  QueryKind kind;
  std::string_view name;
  const std::vector<QueryField>& (*fields)();
  std::vector<QueryLine> (*lines)(const NvmlGpu& gpu, const NodeValues& node);
};
constexpr QueryTable kQueries[] = {
    {QueryKind::kGpu, "gpu", GpuFields, GpuLine},
    {QueryKind::kComputeApps, "compute-apps", AppFields, AppLines},
    {QueryKind::kRemappedRows, "remapped-rows", RowFields, GpuLine},
    {QueryKind::kRetiredPages, "retired-pages", PageFields, PageLines},
    {QueryKind::kSupportedClocks, "supported-clocks", ClockFields, ClockLines},
};

const QueryTable& TableOf(QueryKind kind) {
  return *std::ranges::find(kQueries, kind, &QueryTable::kind);
}

}  // namespace

bool FindQuery(std::string_view option, std::string_view prefix, QueryKind* kind) {
  if (!option.starts_with(prefix)) return false;
  option.remove_prefix(prefix.size());
  for (const QueryTable& query : kQueries) {
    if (query.name == option) return *kind = query.kind, true;
  }
  return false;
}

bool Query(QueryKind kind, std::string_view fields, const CsvFormat& format, const NodeValues& node,
           const std::vector<NvmlGpu>& gpus, std::string* out) {
  const QueryTable& query = TableOf(kind);
  std::vector<const QueryField*> selected;
  if (!SelectFields(query.fields(), fields, &selected, out)) return false;
  AppendHeader(selected, format, out);
  for (const NvmlGpu& gpu : gpus) {
    for (const QueryLine& line : query.lines(gpu, node)) AppendLine(selected, format, line, out);
  }
  return true;
}

std::string HelpQuery(QueryKind kind) {
  const QueryTable& query = TableOf(kind);
  std::string out = fmt::format(
      "List of valid properties to query for the switch \"--query-{}=\":\n\n", query.name);
  for (const QueryField& field : query.fields()) {
    out += field.alias.empty() ? fmt::format("\"{}\"", field.name)
                               : fmt::format("\"{}\" or \"{}\"", field.name, field.alias);
    out += fmt::format("\n{}\n\n", field.help);
  }
  return out;
}

}  // namespace tessera::smi
