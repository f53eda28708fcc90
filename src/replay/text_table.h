// SPDX-License-Identifier: Apache-2.0
// Plain-text tables: a title, column names, and rows with a name and cells. Included only in
// src/replay.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::replay {

struct TextRow {
  std::string name;
  std::vector<std::string> cells;
};

// Appends the table, after an empty line unless `out` is empty.
void AppendTable(std::string_view title, const std::vector<std::string>& columns,
                 const std::vector<TextRow>& rows, std::string* out);

}  // namespace tessera::replay
