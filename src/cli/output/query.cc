// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/query.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "src/base/file.h"
#include "src/base/strings.h"
#include "src/device/quantity.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kFormatsText =
    "table, wide, json, yaml, name, jsonpath=TEMPLATE, jsonpath-file=FILE, custom-columns=SPEC or "
    "custom-columns-file=FILE";

Status ParseColumns(std::string_view spec, ListingQuery* query) {
  for (const std::string_view part : Split(spec, ',')) {
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos || colon == 0 || colon + 1 == part.size()) {
      return Error(Code::kInvalidArgument,
                   "-o custom-columns: invalid column \"{}\": want HEADER:PATH, such as "
                   "NAME:.metadata.name",
                   part);
    }
    ASSIGN_OR_RETURN(
        JsonPath path,
        JsonPath::ParseExpression(part.substr(colon + 1)).Annotate("-o custom-columns"));
    query->columns.push_back({std::string(part.substr(0, colon)), std::move(path)});
  }
  return Status::Ok();
}

// The file has the headers in its first line and the paths in its second.
Status ParseColumnsFile(const std::string& file, ListingQuery* query) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file).Annotate("-o custom-columns-file"));
  const std::vector<std::string_view> lines = Split(text, '\n');
  std::vector<std::string_view> words[2];
  for (size_t i = 0; i < 2 && i < lines.size(); ++i) {
    for (const std::string_view word : Split(lines[i], ' ')) {
      if (!Trim(word).empty()) words[i].push_back(Trim(word));
    }
  }
  if (words[0].empty() || words[0].size() != words[1].size()) {
    return Error(Code::kInvalidArgument,
                 "-o custom-columns-file: {}: want a line of headers and a line of as many paths",
                 file);
  }
  for (size_t i = 0; i < words[0].size(); ++i) {
    ASSIGN_OR_RETURN(JsonPath path, JsonPath::ParseExpression(words[1][i]).Annotate(file));
    query->columns.push_back({std::string(words[0][i]), std::move(path)});
  }
  return Status::Ok();
}

Result<OutputFormat> ParseFormat(const std::string& output, ListingQuery* query) {
  static const std::map<std::string, OutputFormat, std::less<>> kFormatsWithoutValue{
      {"table", OutputFormat::kTable}, {"wide", OutputFormat::kWide}, {"json", OutputFormat::kJson},
      {"yaml", OutputFormat::kYaml},   {"name", OutputFormat::kName},
  };
  const size_t equals = output.find('=');
  const std::string name = ToLower(output.substr(0, equals));
  const auto plain = kFormatsWithoutValue.find(name);
  if (plain != kFormatsWithoutValue.end() && equals == std::string::npos) return plain->second;
  const std::string value = equals == std::string::npos ? "" : output.substr(equals + 1);
  const bool reads_file = name == "jsonpath-file" || name == "custom-columns-file";
  const bool is_jsonpath = name == "jsonpath" || name == "jsonpath-file";
  if (!is_jsonpath && name != "custom-columns" && name != "custom-columns-file") {
    return Error(Code::kInvalidArgument, "invalid format \"{}\": want {}", output, kFormatsText);
  }
  if (value.empty()) {
    return Error(Code::kInvalidArgument, "-o {} needs a value: -o {}=…", name, name);
  }
  if (!is_jsonpath) {
    RETURN_IF_ERROR(reads_file ? ParseColumnsFile(value, query) : ParseColumns(value, query));
    return OutputFormat::kCustomColumns;
  }
  std::string text = value;
  if (reads_file) {
    ASSIGN_OR_RETURN(text, ReadFile(value).Annotate("-o jsonpath-file"));
  }
  ASSIGN_OR_RETURN(query->path, JsonPath::Parse(text));
  return OutputFormat::kJsonPath;
}

Status ParseFieldSelector(std::string_view text, ListingQuery* query) {
  for (const std::string_view part : SplitList(text)) {
    const size_t at = part.find('=');
    const bool unequal = at != std::string_view::npos && at > 0 && part[at - 1] == '!';
    const std::string_view field = Trim(part.substr(0, unequal ? at - 1 : at));
    if (at == std::string_view::npos || field.empty()) {
      return Error(Code::kInvalidArgument,
                   "--field-selector: invalid condition \"{}\": want FIELD=VALUE or FIELD!=VALUE",
                   part);
    }
    std::string_view value = part.substr(at + 1);
    if (value.starts_with('=')) value.remove_prefix(1);
    ASSIGN_OR_RETURN(JsonPath path, JsonPath::ParseExpression(field).Annotate("--field-selector"));
    query->conditions.push_back(
        {std::string(field), std::move(path), !unequal, std::string(Trim(value))});
  }
  return Status::Ok();
}

bool ComesBefore(const Json* a, const Json* b) {
  if (a == nullptr || b == nullptr) return a == nullptr && b != nullptr;
  if (a->is_number() && b->is_number()) return a->ToDouble().value() < b->ToDouble().value();
  const std::string x = TextOfValue(*a), y = TextOfValue(*b);
  const Result<Bytes> p = device::ParseMemory(x), q = device::ParseMemory(y);
  if (p.ok() && q.ok()) return *p < *q;
  return x < y;
}

}  // namespace

Result<Style> MakeStyle(const StyleOptions& options, bool color) {
  auto query = std::make_shared<ListingQuery>();
  Style style{.color = color, .shows_header = !options.no_headers};
  ASSIGN_OR_RETURN(style.format, ParseFormat(options.output, query.get()));
  if (!options.sort_by.empty()) {
    ASSIGN_OR_RETURN(query->sort_by,
                     JsonPath::ParseExpression(options.sort_by).Annotate("--sort-by"));
    query->sort_text = options.sort_by;
  }
  RETURN_IF_ERROR(ParseFieldSelector(options.field_selector, query.get()));
  const bool paths = query->path || !query->columns.empty();
  if (paths || query->sort_by || !query->conditions.empty()) style.query = std::move(query);
  return style;
}

Status Select(const ListingQuery& query, std::vector<Listing::Row>* rows) {
  for (const ListingQuery::Condition& condition : query.conditions) {
    bool field_found = rows->empty();
    Status failed;
    std::erase_if(*rows, [&](const Listing::Row& row) {
      const Result<std::vector<const Json*>> values = condition.path.Find(row.object);
      if (!values.ok()) failed = values.status();
      if (!values.ok() || values->empty()) return condition.must_equal != condition.value.empty();
      field_found = true;
      const bool equal = std::ranges::any_of(
          *values, [&](const Json* value) { return TextOfValue(*value) == condition.value; });
      return equal != condition.must_equal;
    });
    RETURN_IF_ERROR(failed.Annotate("--field-selector"));
    if (field_found) continue;
    return Error(Code::kInvalidArgument,
                 "--field-selector: no item has the field {}: -o json shows the fields",
                 condition.field);
  }
  return Status::Ok();
}

Status Sort(const ListingQuery& query, std::vector<Listing::Row>* rows) {
  if (!query.sort_by || rows->empty()) return Status::Ok();
  std::vector<std::pair<const Json*, size_t>> keys;
  bool field_found = false;
  for (const Listing::Row& row : *rows) {
    ASSIGN_OR_RETURN(const std::vector<const Json*> values,
                     query.sort_by->Find(row.object).Annotate("--sort-by"));
    keys.emplace_back(values.empty() ? nullptr : values.front(), keys.size());
    field_found = field_found || !values.empty();
  }
  if (!field_found) {
    return Error(Code::kInvalidArgument,
                 "--sort-by: no item has the field {}: -o json shows the fields", query.sort_text);
  }
  std::ranges::stable_sort(
      keys, [](const auto& a, const auto& b) { return ComesBefore(a.first, b.first); });
  std::vector<Listing::Row> sorted;
  for (const auto& key : keys) sorted.push_back((*rows)[key.second]);
  *rows = std::move(sorted);
  return Status::Ok();
}

}  // namespace tessera::cli
