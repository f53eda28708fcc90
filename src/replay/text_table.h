// SPDX-License-Identifier: Apache-2.0
// Tables of text: a title, names of columns, a name and cells in each row. Private to this room.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::replay {

struct TextRow {
  std::string name;
  std::vector<std::string> cells;
};

// Appends it, after an empty line if there is something before it.
void AppendTable(std::string_view title, const std::vector<std::string>& columns,
                 const std::vector<TextRow>& rows, std::string* out);

}  // namespace tessera::replay
