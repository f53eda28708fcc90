// SPDX-License-Identifier: Apache-2.0
// Formats the output of commands for terminals: lines and tables, with optional colors. Makes all
// text Printable (text.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::cli {

enum class Tone : uint8_t { kPlain, kGood, kBad, kQuiet, kHead };

struct Cell {
  // NOLINTNEXTLINE(google-explicit-constructor): for readable tables
  Cell(std::string text, Tone tone = Tone::kPlain) : text(std::move(text)), tone(tone) {}
  Cell(const char* text) : text(text) {}                    // NOLINT(google-explicit-constructor)
  Cell(std::string_view text) : text(std::string(text)) {}  // NOLINT(google-explicit-constructor)

  std::string text;
  Tone tone = Tone::kPlain;
};

struct TextTable {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;  // each has a cell for each column
  bool shows_header = true;
};

class TextOutput {
 public:
  explicit TextOutput(bool color) : color_(color) {}

  void AddLine(std::string_view text, Tone tone = Tone::kPlain);
  void AddEmptyLine() { text_ += '\n'; }
  // Columns are as wide as their widest cell, separated by three spaces, without trailing spaces.
  void AddTable(const TextTable& table, size_t indent = 0);
  std::string Take() { return std::exchange(text_, {}); }

 private:
  void Append(std::string_view printable, Tone tone);

  const bool color_;
  std::string text_;
};

}  // namespace tessera::cli
