// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/table.h"

#include <algorithm>
#include <iterator>

#include "src/cli/output/text.h"

namespace tessera::cli {
namespace {

constexpr size_t kColumnGap = 3;

// By Tone.
constexpr std::string_view kEscapeCodes[] = {"", "\033[32m", "\033[31m", "\033[2m", "\033[1m"};
static_assert(std::size(kEscapeCodes) == size_t(Tone::kHead) + 1);

}  // namespace

void TextOutput::Append(std::string_view printable, Tone tone) {
  if (!color_ || tone == Tone::kPlain || printable.empty()) {
    text_ += printable;
    return;
  }
  text_.append(kEscapeCodes[static_cast<size_t>(tone)]).append(printable).append("\033[0m");
}

void TextOutput::AddLine(std::string_view text, Tone tone) {
  Append(Printable(text), tone);
  text_ += '\n';
}

void TextOutput::AddTable(const TextTable& table, size_t indent) {
  std::vector<std::vector<Cell>> rows(table.shows_header ? 1 : 0);
  for (const std::string& column : table.columns) {
    if (table.shows_header) rows[0].emplace_back(column, Tone::kHead);
  }
  for (const std::vector<Cell>& row : table.rows) {
    for (Cell& cell : rows.emplace_back(row)) cell.text = Printable(cell.text);
  }
  std::vector<size_t> widths(table.columns.size());
  for (const std::vector<Cell>& row : rows) {
    for (size_t n = 0; n < row.size(); ++n) widths[n] = std::max(widths[n], WidthOf(row[n].text));
  }
  for (const std::vector<Cell>& row : rows) {
    size_t pending_spaces = indent;
    for (size_t n = 0; n < row.size(); ++n) {
      if (!row[n].text.empty()) {
        text_.append(pending_spaces, ' ');
        Append(row[n].text, row[n].tone);
        pending_spaces = 0;
      }
      pending_spaces += widths[n] - WidthOf(row[n].text) + kColumnGap;
    }
    text_ += '\n';
  }
}

}  // namespace tessera::cli
