// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/counters.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "src/base/file.h"
#include "src/base/log.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

constexpr std::array<std::string_view, 5> kTypes = {"gauge", "counter", "histogram", "summary",
                                                    "label"};
constexpr size_t kMaxCountersFile = 1 << 20;

// The columns of a line; nullopt if a quoted column is not closed, or text follows its closing
// quote.
std::optional<std::vector<std::string>> SplitColumns(std::string_view line) {
  std::vector<std::string> columns;
  for (;;) {
    line = line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with('"')) {
      const size_t comma = line.find(',');
      columns.emplace_back(Trim(line.substr(0, comma)));
      if (comma == std::string_view::npos) return columns;
      line.remove_prefix(comma + 1);
      continue;
    }
    std::string& column = columns.emplace_back();
    size_t at = 1;
    for (;; ++at) {
      if (at >= line.size()) return std::nullopt;
      if (line[at] != '"') {
        column += line[at];
      } else if (at + 1 < line.size() && line[at + 1] == '"') {
        column += line[at++];
      } else {
        break;
      }
    }
    line = Trim(line.substr(at + 1));
    if (line.empty()) return columns;
    if (!line.starts_with(',')) return std::nullopt;
    line.remove_prefix(1);
  }
}

Result<CounterSpec> ParseCounter(std::string_view line) {
  auto columns = SplitColumns(line);
  if (!columns) {
    return Error(Code::kInvalidArgument,
                 "a double quote is not closed, or text follows a closing quote: double each quote "
                 "inside a quoted column");
  }
  if (columns->size() != 3) {
    return Error(Code::kInvalidArgument,
                 "{} columns: write \"FIELD, type, help\", and put a help text with a comma in "
                 "double quotes",
                 columns->size());
  }
  CounterSpec counter{.field = FindField((*columns)[0]),
                      .name = (*columns)[0],
                      .type = (*columns)[1],
                      .help = (*columns)[2]};
  if (counter.field == nullptr) {
    return Error(
        Code::kInvalidArgument,
        "field \"{}\" is unknown: take a field of dcgm-exporter's default-counters.csv, or remove "
        "the line",
        counter.name);
  }
  if (std::ranges::find(kTypes, counter.type) == kTypes.end()) {
    return Error(Code::kInvalidArgument,
                 "type \"{}\" of {} is unknown: write gauge, counter, histogram, summary or label",
                 counter.type, counter.name);
  }
  return counter;
}

}  // namespace

CounterSpecs DefaultCounters() {
  CounterSpecs counters;
  for (const Field& field : AllFields()) {
    if (!field.is_default) continue;
    counters.push_back({.field = &field,
                        .name = std::string(field.name),
                        .type = std::string(field.type),
                        .help = std::string(field.help)});
  }
  return counters;
}

Result<CounterSpecs> ParseCounters(std::string_view text, std::string_view file) {
  CounterSpecs counters;
  std::map<std::string, int> line_of_counter;
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    Result<CounterSpec> counter = ParseCounter(line);
    if (!counter.ok()) return counter.status().Annotate(fmt::format("{}, line {}", file, number));
    const auto [earlier, is_new] = line_of_counter.emplace(counter->name, number);
    if (!is_new) {
      return Error(Code::kInvalidArgument, "{}, line {}: {} is in line {}, too: remove one of them",
                   file, number, counter->name, earlier->second);
    }
    counters.push_back(*std::move(counter));
  }
  return counters;
}

Result<CounterSpecs> LoadCounters(const std::string& path) {
  if (path.empty()) return DefaultCounters();
  Result<std::string> text = ReadFile(path, kMaxCountersFile);
  if (!text.ok()) return text.status().Annotate("--collectors");
  Result<CounterSpecs> counters = ParseCounters(*text, path);
  std::string fields_without_value;
  for (size_t i = 0; counters.ok() && i < counters->size(); ++i) {
    const CounterSpec& counter = (*counters)[i];
    if (counter.field->source == FieldSource::kNone) fields_without_value += " " + counter.name;
  }
  if (!fields_without_value.empty()) {
    Log(Severity::kWarning, "fields of --collectors have no value on this agent",
        {{"file", path}, {"fields", fields_without_value.substr(1)}});
  }
  return counters;
}

}  // namespace tessera::agent
