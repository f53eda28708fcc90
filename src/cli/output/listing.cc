// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/listing.h"

#include <algorithm>
#include <utility>

#include "src/base/strings.h"
#include "src/cli/output/query.h"
#include "src/cli/output/text.h"
#include "src/formats/yaml.h"

namespace tessera::cli {
namespace {

std::string NameOfItem(const std::string& kind, const Json& item) {
  const Json* metadata = item.Find("metadata");
  const std::string name = metadata == nullptr ? "" : metadata->StringAt("name").value_or("");
  return fmt::format("{}/{}\n", ToLower(kind), Printable(name));
}

std::string SerializedText(const Json& document, const Style& style) {
  return style.format == OutputFormat::kYaml ? WriteYaml(document)
                                             : PrintableJson(document.Pretty()) + "\n";
}

// Makes each line Printable; line ends and tabs of a template stay.
std::string PrintableLines(std::string_view text) {
  std::string printable;
  size_t begin = 0;
  while (true) {
    const size_t end = std::min(text.find_first_of("\n\t", begin), text.size());
    printable += Printable(text.substr(begin, end - begin));
    if (end == text.size()) return printable;
    printable += text[end];
    begin = end + 1;
  }
}

Result<std::string> CustomColumnsText(const Listing& listing, const Style& style) {
  std::vector<std::string> names;
  for (const ListingQuery::CustomColumn& column : style.query->columns)
    names.push_back(column.name);
  TextTable table{std::move(names)};
  table.shows_header = style.shows_header;
  for (const Listing::Row& row : listing.rows) {
    std::vector<Cell> cells;
    for (const ListingQuery::CustomColumn& column : style.query->columns) {
      ASSIGN_OR_RETURN(const std::vector<const Json*> values, column.path.Find(row.object));
      std::string text;
      for (const Json* value : values) {
        text += fmt::format("{}{}", value == values.front() ? "" : ",", ColumnTextOf(*value));
      }
      cells.emplace_back(values.empty() ? "<none>" : text);
    }
    table.rows.push_back(std::move(cells));
  }
  TextOutput output(false);
  output.AddTable(table);
  return output.Take();
}

std::string TableText(Listing listing, const Style& style) {
  TextOutput output(style.color);
  TextTable table{std::move(listing.columns)};
  table.shows_header = style.shows_header;
  const size_t all = listing.rows.size();
  const size_t shown =
      style.wide() || listing.max_rows == 0 ? all : std::min(all, listing.max_rows);
  for (size_t i = 0; i < shown; ++i) {
    table.rows.push_back(std::move(listing.rows[i].cells));
    if (!listing.rows[i].second_line.empty())
      table.rows.push_back(std::move(listing.rows[i].second_line));
  }
  if (!table.rows.empty()) output.AddTable(table);
  if (shown < all) output.AddLine(fmt::format("and {} {}", all - shown, listing.hidden_rows));
  if (table.rows.empty() && !listing.empty_text.empty()) output.AddLine(listing.empty_text);
  if (!listing.note.empty()) output.AddLine(listing.note);
  return output.Take();
}

Json DocumentOf(Listing listing) {
  if (listing.is_one_object && listing.rows.size() == 1) {
    return std::move(listing.rows.front().object);
  }
  Json document = Json::MakeObject({{"kind", Json::String(listing.kind + "List")}});
  Json items = Json::MakeArray();
  for (Listing::Row& row : listing.rows) items.Append(std::move(row.object));
  document.Set("items", std::move(items));
  for (auto& [key, value] : listing.extra_members) document.Set(key, std::move(value));
  return document;
}

}  // namespace

Result<std::string> Print(Listing listing, const Style& style) {
  if (style.query != nullptr) {
    RETURN_IF_ERROR(Select(*style.query, &listing.rows));
    RETURN_IF_ERROR(Sort(*style.query, &listing.rows));
  }
  switch (style.format) {
    case OutputFormat::kTable:
    case OutputFormat::kWide:
      return TableText(std::move(listing), style);
    case OutputFormat::kName: {
      std::string names;
      for (const Listing::Row& row : listing.rows) names += NameOfItem(listing.kind, row.object);
      return names;
    }
    case OutputFormat::kCustomColumns:
      return CustomColumnsText(listing, style);
    default:
      return PrintDocument(DocumentOf(std::move(listing)), "", style);
  }
}

Result<std::string> PrintDocument(const Json& document, const std::string& text,
                                  const Style& style) {
  if (style.shows_cells()) return text;
  if (style.format == OutputFormat::kJsonPath) {
    ASSIGN_OR_RETURN(const std::string rendered, style.query->path->Render(document));
    return PrintableLines(rendered);
  }
  if (style.format == OutputFormat::kJson || style.format == OutputFormat::kYaml) {
    return SerializedText(document, style);
  }
  return Error(Code::kInvalidArgument,
               "-o name and custom-columns are for lists, and this command prints one answer: use "
               "json, yaml or jsonpath");
}

Json MetadataOf(std::string_view ns, std::string_view name, const Uid& uid) {
  Json metadata = Json::MakeObject();
  if (!ns.empty()) metadata.Set("namespace", Json::String(ns));
  metadata.Set("name", Json::String(name));
  if (!uid.empty()) metadata.Set("uid", Json::String(uid.str()));
  return metadata;
}

}  // namespace tessera::cli
