// SPDX-License-Identifier: Apache-2.0
// Where things stand in a TOML text: statements with the spans of their lines and values. Knows
// just enough grammar to find its way through a text that a real parser has accepted; on anything
// else it gives INTERNAL and never reads past the end. Only toml_patcher uses it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/formats/text_edit.h"

namespace tessera::toml_scan {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

struct Statement {
  enum class Kind { kTable, kArrayOfTables, kKeyValue };
  Kind kind = Kind::kKeyValue;
  KeyPath path;     // from the root
  size_t own = 0;   // how many of the last keys of the path the statement itself spells
  Span lines;       // whole lines, comment and line end included
  size_t text = 0;  // where the first character that is no blank stands
  Span value;       // kKeyValue
  bool below_array_of_tables = false;
};

// An item of an array, or a member of an inline table.
struct Item {
  KeyPath path;  // members only
  Span all;      // without the comma
  Span value;
};
struct Items {
  std::vector<Item> items;
  bool trailing_comma = false;
  size_t after_comma = 0;  // behind the trailing comma
  size_t close = 0;        // the closing bracket
};

bool HasPrefix(const KeyPath& path, const KeyPath& prefix);
Result<std::vector<Statement>> ScanStatements(std::string_view text);
// `at` is the opening bracket, "[" or "{".
Result<Items> ScanItems(std::string_view text, size_t at);

}  // namespace tessera::toml_scan
