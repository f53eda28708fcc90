// SPDX-License-Identifier: Apache-2.0
// The parsed options for lists: paths to print, an order, a selection. Included only in
// src/cli/output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/cli/output/listing.h"

namespace tessera::cli {

struct ListingQuery {
  struct CustomColumn {
    std::string name;
    JsonPath path;
  };
  struct Condition {
    std::string field;
    JsonPath path;
    bool must_equal = true;
    std::string value;
  };
  std::optional<JsonPath> path;       // -o jsonpath
  std::vector<CustomColumn> columns;  // -o custom-columns
  std::optional<JsonPath> sort_by;
  std::string sort_text;              // --sort-by as the user wrote it
  std::vector<Condition> conditions;  // --field-selector: a row must meet all
};

// Removes rows that do not meet the conditions. A field that a row lacks has the value "".
// INVALID_ARGUMENT for a field that no row has.
Status Select(const ListingQuery& query, std::vector<Listing::Row>* rows);
// Sorts rows as kubectl does: numbers by value, quantities by amount, other texts by their bytes;
// rows without the field come first. INVALID_ARGUMENT if no row has the field.
Status Sort(const ListingQuery& query, std::vector<Listing::Row>* rows);

}  // namespace tessera::cli
