// SPDX-License-Identifier: Apache-2.0
// Prints the results of all commands, in kubectl's formats: tables, JSON, YAML, names, JSONPath and
// custom columns. A command fills a Listing; the options for lists (-o, --sort-by,
// --field-selector, --no-headers) work alike for all commands.
//
// Errors: INVALID_ARGUMENT, naming the option.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/base/uid.h"
#include "src/cli/output/jsonpath.h"
#include "src/cli/output/table.h"
#include "src/formats/json.h"

namespace tessera::cli {

enum class OutputFormat : uint8_t { kTable, kWide, kJson, kYaml, kName, kJsonPath, kCustomColumns };

// The parsed values of -o, --sort-by and --field-selector.
struct ListingQuery;

struct Style {
  OutputFormat format = OutputFormat::kTable;
  bool color = false;
  bool shows_header = true;
  std::shared_ptr<const ListingQuery> query = nullptr;  // null: no paths, order or selection

  bool wide() const { return format == OutputFormat::kWide; }
  // Whether the format shows cells; otherwise it shows objects.
  bool shows_cells() const { return format == OutputFormat::kTable || wide(); }
  // Whether rows need their objects: to print, sort or select them.
  bool needs_objects() const { return !shows_cells() || query != nullptr; }
};

// The options as they are written on a command line.
struct StyleOptions {
  std::string output = "table";
  std::string sort_by;
  std::string field_selector;
  bool no_headers = false;
};
Result<Style> MakeStyle(const StyleOptions& options, bool color);

struct Listing {
  struct Row {
    // With metadata.name. Needed if style.needs_objects().
    Json object;
    // One cell for each column. Needed if style.shows_cells().
    std::vector<Cell> cells;
    // A second line of a table's row; empty: none.
    std::vector<Cell> second_line = {};
  };
  std::string kind;  // kind of the items, for -o name and the document: "GPU" makes a "GPUList"
  std::vector<std::string> columns;
  std::vector<Row> rows;
  // The user named one object: JSON, YAML and JSONPath then show this object instead of a list.
  bool is_one_object = false;
  Json::Object extra_members;  // further members of the document
  std::string empty_text;      // printed instead of a table without rows
  std::string note;            // printed below the table
  // A table without -o wide has at most `max_rows` rows; 0: all. If rows are hidden, the line "and
  // N `hidden_rows`" follows.
  size_t max_rows = 0;
  std::string hidden_rows;
};

// Selects and sorts the rows, and prints them.
Result<std::string> Print(Listing listing, const Style& style);

// Prints an answer that is not a list. `text` is for -o table and wide; custom columns and names
// are rejected.
Result<std::string> PrintDocument(const Json& document, const std::string& text,
                                  const Style& style);

// {"namespace": …, "name": …, …} of an item; empty texts are left out.
Json MetadataOf(std::string_view ns, std::string_view name, const Uid& uid = Uid());

}  // namespace tessera::cli
