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

// "[N/A]" is how the CSV says that a value is not there.
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
bool Choose(const std::vector<Field>& table, std::string_view list,
            std::vector<const Field*>* chosen, std::string* out) {
  for (std::string_view name : SplitFields(list)) {
    const Field* field = Find(table, name);
    if (field == nullptr) {
      *out = fmt::format("Field \"{}\" is not a valid field to query.\n\n", name);
      return false;
    }
    chosen->push_back(field);
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
  std::string out = fmt::format("List of valid properties to query for the switch \"{}\":\n\n",
                                option);
  for (const Field& field : table) {
    out += field.alias.empty() ? fmt::format("\"{}\"", field.name)
                               : fmt::format("\"{}\" or \"{}\"", field.name, field.alias);
    out += fmt::format("\n{}\n\n", field.help);
  }
  return out;
}

}  // namespace

bool QueryGpus(std::string_view fields, const CsvFormat& format, const NodeFacts& node,
               const std::vector<Gpu>& gpus, std::string* out) {
  std::vector<const GpuField*> chosen;
  if (!Choose(GpuFields(), fields, &chosen, out)) return false;
  AppendHeader(chosen, format, out);
  for (const Gpu& gpu : gpus) {
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (i > 0) *out += ", ";
      *out += Cell(chosen[i]->value(gpu, node), chosen[i]->unit, format);
    }
    *out += '\n';
  }
  return true;
}

bool QueryComputeApps(std::string_view fields, const CsvFormat& format, const NodeFacts& node,
                      const std::vector<Gpu>& gpus, std::string* out) {
  std::vector<const AppField*> chosen;
  if (!Choose(AppFields(), fields, &chosen, out)) return false;
  AppendHeader(chosen, format, out);
  for (const Gpu& gpu : gpus) {
    for (const Process& process : gpu.Processes()) {
      if (process.type != "C") continue;
      for (size_t i = 0; i < chosen.size(); ++i) {
        if (i > 0) *out += ", ";
        *out += Cell(chosen[i]->value(gpu, process, node), chosen[i]->unit, format);
      }
      *out += '\n';
    }
  }
  return true;
}

std::string HelpQueryGpu() { return FieldHelp(GpuFields(), "--query-gpu="); }
std::string HelpQueryComputeApps() { return FieldHelp(AppFields(), "--query-compute-apps="); }

}  // namespace tessera::smi
