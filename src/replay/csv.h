// SPDX-License-Identifier: Apache-2.0
// A table of comma separated fields (RFC 4180) with named columns; errors contain the position.
// Beyond the RFC, blanks around fields and empty lines are ignored. Included only in src/replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::replay {

// Quotes text of a file for messages: a JSON string, truncated if it is long.
std::string Quote(std::string_view text);

class Csv {
 public:
  static constexpr size_t kMissing = static_cast<size_t>(-1);

  // The result refers to `text`, which must outlive it. INVALID_ARGUMENT if a row and the first
  // line differ in their number of fields, a column has no name or the name of another column,
  // there are no rows, or a quote is misplaced: not closed, inside an unquoted field, or followed
  // by text.
  static Result<Csv> Parse(std::string_view text, std::string_view file);

  size_t rows() const { return lines_.size(); }
  // kMissing if there is no such column.
  size_t Find(std::string_view column) const;
  // INVALID_ARGUMENT names the missing column and lists the existing columns.
  Result<size_t> Column(std::string_view column) const;

  std::string_view Text(size_t row, size_t column) const {
    return fields_[row * columns_.size() + column];
  }
  // INVALID_ARGUMENT for an empty field, a number that is not whole, or one outside the limits.
  Result<int64_t> Number(size_t row, size_t column, int64_t min, int64_t max) const;
  // INVALID_ARGUMENT: "pods.csv:17: gpu_milli: <problem>".
  Status InvalidField(size_t row, size_t column, std::string_view problem) const;

 private:
  std::string file_;
  std::vector<std::string_view> columns_;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // fields with doubled quotes; `fields_` refers to them
  std::vector<size_t> lines_;         // line number of each row, from 1
};

}  // namespace tessera::replay
