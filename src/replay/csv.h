// SPDX-License-Identifier: Apache-2.0
// A table of comma separated fields (RFC 4180) whose columns are found by name; errors say where.
// Beyond the RFC blanks around fields do not count, and empty lines are skipped.
// Private to this room. Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera::replay {

// What a file says, to be repeated to people: as a JSON string, without its end where it is long.
std::string Quote(std::string_view text);

class Csv {
 public:
  static constexpr size_t kMissing = static_cast<size_t>(-1);

  // Refers to `text`, which must outlive it. INVALID_ARGUMENT where a row has another number of
  // fields than the first line, a column has no name or the name of another, there are no rows, or
  // a quote stands where none may: not closed, inside a field without quotes, before other text.
  static Result<Csv> Parse(std::string_view text, std::string_view file);

  size_t rows() const { return lines_.size(); }
  // kMissing where there is no such column.
  size_t Find(std::string_view column) const;
  // INVALID_ARGUMENT names the column that is missing, and those that there are.
  Result<size_t> Column(std::string_view column) const;

  std::string_view Text(size_t row, size_t column) const {
    return fields_[row * columns_.size() + column];
  }
  // INVALID_ARGUMENT where it is empty, no whole number, or not between the limits.
  Result<int64_t> Number(size_t row, size_t column, int64_t least, int64_t most) const;
  // INVALID_ARGUMENT: "pods.csv:17: gpu_milli: what".
  Status Wrong(size_t row, size_t column, std::string_view what) const;

 private:
  std::string file_;
  std::vector<std::string_view> columns_;
  std::vector<std::string_view> fields_;
  std::deque<std::string> unquoted_;  // fields with doubled quotes; `fields_` refers to them
  std::vector<size_t> lines_;         // where each row begins, from 1
};

}  // namespace tessera::replay
