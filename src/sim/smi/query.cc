// SPDX-License-Identifier: Apache-2.0
#include "src/sim/smi/query.h"

#include <fmt/format.h>

#include <functional>

#include "src/sim/smi/fields.h"

namespace tessera::smi {
namespace {

std::vector<std::string_view> SplitFields(std::string_view list) {
  std::vector<std::string_view> fields;
  while (true) {
    const size_t comma = list.find(',');
    std::string_view field = list.substr(0, comma);
    while (!field.empty() && field.front() == ' ') field.remove_prefix(1);
    while (!field.empty() && field.back() == ' ') field.remove_suffix(1);
    fields.push_back(field);
    if (comma == std::string_view::npos) return fields;
    list.remove_prefix(comma + 1);
  }
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

template <typename Field>
const Field* Find(const std::vector<Field>& table, std::string_view name) {
  for (const Field& field : table) {
    if (field.name == name || field.alias == name) return &field;
  }
  return nullptr;
}

template <typename Field>
bool SelectFields(const std::vector<Field>& table, std::string_view list,
                  std::vector<const Field*>* selected, std::string* out) {
  for (std::string_view name : SplitFields(list)) {
    const Field* field = Find(table, name);
    if (field == nullptr) {
      *out = fmt::format("Field \"{}\" is not a valid field to query.\n\n", name);
      return false;
    }
    selected->push_back(field);
  }
  return true;
}

template <typename Field>
void AppendHeader(const std::vector<const Field*>& fields, const CsvFormat& format,
                  std::string* out) {
  if (!format.header) return;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) *out += ", ";
    *out += HeaderCell(fields[i]->name, fields[i]->unit, format);
  }
  *out += '\n';
}

template <typename Field>
std::string FieldHelp(const std::vector<Field>& table, std::string_view option) {
  std::string out =
      fmt::format("List of valid properties to query for the switch \"{}\":\n\n", option);
  for (const Field& field : table) {
    out += field.alias.empty() ? fmt::format("\"{}\"", field.name)
                               : fmt::format("\"{}\" or \"{}\"", field.name, field.alias);
    out += fmt::format("\n{}\n\n", field.help);
  }
  return out;
}

// Appends a line with the fields of `subject`, such as a GPU and one of its processes.
template <typename Field, typename... Subject>
void AppendLine(const std::vector<const Field*>& fields, const CsvFormat& format, std::string* out,
                const Subject&... subject) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (i > 0) *out += ", ";
    *out += Cell(fields[i]->value(subject...), fields[i]->unit, format);
  }
  *out += '\n';
}

// The arguments of a query.
struct CsvQuery {
  std::string_view fields;
  const CsvFormat* format;
  const NodeValues* node;
  const std::vector<NvmlGpu>* gpus;
};

// `append_lines` appends the lines of one GPU.
template <typename Field, typename AppendLines>
bool QueryEach(const std::vector<Field>& table, const CsvQuery& query, std::string* out,
               AppendLines append_lines) {
  std::vector<const Field*> selected;
  if (!SelectFields(table, query.fields, &selected, out)) return false;
  AppendHeader(selected, *query.format, out);
  for (const NvmlGpu& gpu : *query.gpus) append_lines(selected, gpu);
  return true;
}

bool QueryGpus(const std::vector<GpuField>& table, const CsvQuery& query, std::string* out) {
  return QueryEach(table, query, out, [&](const auto& selected, const NvmlGpu& gpu) {
    AppendLine(selected, *query.format, out, gpu, *query.node);
  });
}

bool QueryComputeApps(const CsvQuery& query, std::string* out) {
  return QueryEach(AppFields(), query, out, [&](const auto& selected, const NvmlGpu& gpu) {
    for (const ListedProcess& process : gpu.Processes()) {
      if (process.type != "C") continue;
      AppendLine(selected, *query.format, out, gpu, process, *query.node);
    }
  });
}

bool QueryRetiredPages(const CsvQuery& query, std::string* out) {
  return QueryEach(PageFields(), query, out, [&](const auto& selected, const NvmlGpu& gpu) {
    for (const RetiredPage& page : gpu.RetiredPages()) {
      AppendLine(selected, *query.format, out, gpu, page, *query.node);
    }
  });
}

bool QuerySupportedClocks(const CsvQuery& query, std::string* out) {
  return QueryEach(ClockFields(), query, out, [&](const auto& selected, const NvmlGpu& gpu) {
    for (const ClockPair& clocks : gpu.SupportedClocks()) {
      AppendLine(selected, *query.format, out, gpu, clocks, *query.node);
    }
  });
}

struct NamedQuery {
  QueryKind kind;
  std::string_view name;
};
constexpr NamedQuery kQueries[] = {{QueryKind::kGpu, "gpu"},
                                   {QueryKind::kComputeApps, "compute-apps"},
                                   {QueryKind::kRemappedRows, "remapped-rows"},
                                   {QueryKind::kRetiredPages, "retired-pages"},
                                   {QueryKind::kSupportedClocks, "supported-clocks"}};

}  // namespace

bool FindQuery(std::string_view option, std::string_view prefix, QueryKind* kind) {
  if (!option.starts_with(prefix)) return false;
  option.remove_prefix(prefix.size());
  for (const NamedQuery& query : kQueries) {
    if (query.name == option) return *kind = query.kind, true;
  }
  return false;
}

bool Query(QueryKind kind, std::string_view fields, const CsvFormat& format, const NodeValues& node,
           const std::vector<NvmlGpu>& gpus, std::string* out) {
  const CsvQuery query = {fields, &format, &node, &gpus};
  switch (kind) {
    case QueryKind::kComputeApps:
      return QueryComputeApps(query, out);
    case QueryKind::kRetiredPages:
      return QueryRetiredPages(query, out);
    case QueryKind::kSupportedClocks:
      return QuerySupportedClocks(query, out);
    case QueryKind::kRemappedRows:
      return QueryGpus(RowFields(), query, out);
    default:
      return QueryGpus(GpuFields(), query, out);
  }
}

std::string HelpQuery(QueryKind kind) {
  switch (kind) {
    case QueryKind::kComputeApps:
      return FieldHelp(AppFields(), "--query-compute-apps=");
    case QueryKind::kRetiredPages:
      return FieldHelp(PageFields(), "--query-retired-pages=");
    case QueryKind::kSupportedClocks:
      return FieldHelp(ClockFields(), "--query-supported-clocks=");
    case QueryKind::kRemappedRows:
      return FieldHelp(RowFields(), "--query-remapped-rows=");
    default:
      return FieldHelp(GpuFields(), "--query-gpu=");
  }
}

}  // namespace tessera::smi
