// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/engine/text_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace tessera::engine {
namespace {

constexpr size_t kContext = 3;
// If the table of the longest common subsequence would be larger, the diff replaces all lines
// between the first and the last difference. Configurations are short.
constexpr size_t kMaxCells = 16u << 20;

struct DiffLine {
  char sign = ' ';
  std::string_view text;
};

using LineList = std::vector<std::string_view>;

LineList SplitLines(std::string_view text) {
  LineList lines;
  while (!text.empty()) {
    const size_t size = std::min(text.find('\n'), text.size() - 1) + 1;
    lines.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return lines;
}

// Diffs by the longest common subsequence.
void DiffMiddle(const LineList& a, const LineList& b, std::vector<DiffLine>* out) {
  const size_t n = a.size();
  const size_t m = b.size();
  std::vector<uint32_t> length;
  if ((n + 1) * (m + 1) <= kMaxCells) length.assign((n + 1) * (m + 1), 0);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return length[i * (m + 1) + j]; };
  if (!length.empty()) {
    for (size_t i = n; i-- > 0;) {
      for (size_t j = m; j-- > 0;) {
        at(i, j) = a[i] == b[j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
      }
    }
  }
  size_t i = 0;
  size_t j = 0;
  while (i < n || j < m) {
    if (!length.empty() && i < n && j < m && a[i] == b[j]) {
      out->push_back({' ', a[i]});
      ++i, ++j;
    } else if (i < n && (j == m || length.empty() || at(i + 1, j) >= at(i, j + 1))) {
      out->push_back({'-', a[i++]});
    } else {
      out->push_back({'+', b[j++]});
    }
  }
}

std::vector<DiffLine> Diff(std::string_view before, std::string_view after) {
  LineList a = SplitLines(before);
  LineList b = SplitLines(after);
  size_t head = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  size_t tail = 0;
  while (tail < a.size() - head && tail < b.size() - head &&
         a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) {
    ++tail;
  }
  std::vector<DiffLine> out;
  for (size_t i = 0; i < head; ++i) out.push_back({' ', a[i]});
  DiffMiddle({a.begin() + head, a.end() - tail}, {b.begin() + head, b.end() - tail}, &out);
  for (size_t i = a.size() - tail; i < a.size(); ++i) out.push_back({' ', a[i]});
  return out;
}

void AppendHunk(const std::vector<DiffLine>& lines, size_t begin, size_t end, std::string* out) {
  size_t old_line = 1;
  size_t new_line = 1;
  for (size_t i = 0; i < begin; ++i) {
    old_line += lines[i].sign != '+';
    new_line += lines[i].sign != '-';
  }
  const auto count = [&](char other) {
    return std::count_if(lines.begin() + begin, lines.begin() + end,
                         [&](const DiffLine& line) { return line.sign != other; });
  };
  const auto old_count = count('+');
  const auto new_count = count('-');
  *out += fmt::format("@@ -{},{} +{},{} @@\n", old_count > 0 ? old_line : old_line - 1, old_count,
                      new_count > 0 ? new_line : new_line - 1, new_count);
  for (size_t i = begin; i < end; ++i) {
    *out += fmt::format("{}{}", lines[i].sign, lines[i].text);
    if (!lines[i].text.ends_with('\n')) *out += "\n\\ No newline at end of file\n";
  }
}

}  // namespace

std::string UnifiedDiff(const std::string& name, const std::optional<std::string>& before,
                        const std::optional<std::string>& after) {
  if (before == after) return "";
  std::string out =
      fmt::format("--- {}\n+++ {}\n", before ? name : "/dev/null", after ? name : "/dev/null");
  const std::string old_text = before.value_or("");
  const std::string new_text = after.value_or("");
  const std::vector<DiffLine> lines = Diff(old_text, new_text);
  const auto changed = [](const DiffLine& line) { return line.sign != ' '; };
  size_t at = 0;
  for (;;) {
    const auto first = std::find_if(lines.begin() + at, lines.end(), changed);
    if (first == lines.end()) return out;
    const size_t begin = std::max(at, static_cast<size_t>(first - lines.begin()) -
                                          std::min<size_t>(kContext, first - lines.begin()));
    size_t end = first - lines.begin() + 1;
    for (size_t i = end; i < lines.size() && i < end + 2 * kContext; ++i) {
      if (changed(lines[i])) end = i + 1;
    }
    end = std::min(end + kContext, lines.size());
    AppendHunk(lines, begin, end, &out);
    at = end;
  }
}

}  // namespace tessera::engine
