// SPDX-License-Identifier: Apache-2.0
#include "src/replay/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera::replay {

void AppendTable(std::string_view title, const std::vector<std::string>& columns,
                 const std::vector<TextRow>& rows, std::string* out) {
  constexpr size_t kMinWidth = 9;
  size_t name_width = 0;
  std::vector<size_t> widths;
  for (const std::string& column : columns) widths.push_back(std::max(kMinWidth, column.size()));
  for (const TextRow& row : rows) name_width = std::max(name_width, row.name.size());
  const auto append_row = [&](std::string_view name, const std::vector<std::string>& cells) {
    *out += fmt::format("{:<{}}", name, name_width);
    for (size_t n = 0; n < cells.size(); ++n) *out += fmt::format("  {:>{}}", cells[n], widths[n]);
    *out += "\n";
  };
  *out += fmt::format("{}{}\n", out->empty() ? "" : "\n", title);
  append_row("", columns);
  for (const TextRow& row : rows) append_row(row.name, row.cells);
}

}  // namespace tessera::replay
