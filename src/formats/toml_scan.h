// SPDX-License-Identifier: Apache-2.0
// Locates statements in a TOML text, with the spans of their lines and values. Understands only
// texts that a complete parser has accepted; returns INTERNAL for others, without reading past the
// end. Used only by toml_patcher.
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

enum class StatementKind { kTable, kArrayOfTables, kKeyValue };

struct Statement {
  StatementKind kind = StatementKind::kKeyValue;
  KeyPath path;        // from the root
  Span lines;          // whole lines, with comment and line end
  size_t content = 0;  // position of the first non-blank character
  Span value;          // only of kKeyValue
  bool below_array_of_tables = false;
};

// An item of an array, or a member of an inline table.
struct Item {
  KeyPath path;  // members only
  Span whole;    // without the comma
  Span value;
};
struct ItemList {
  std::vector<Item> items;
  bool trailing_comma = false;
  size_t after_comma = 0;  // after the trailing comma
  size_t close = 0;        // the closing bracket
};

bool HasPrefix(const KeyPath& path, const KeyPath& prefix);
Result<std::vector<Statement>> ScanStatements(std::string_view text);
// `at` is the opening bracket, "[" or "{".
Result<ItemList> ScanItems(std::string_view text, size_t at);

}  // namespace tessera::toml_scan
