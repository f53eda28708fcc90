// SPDX-License-Identifier: Apache-2.0
// Numbers and lists of the command line. src/base has functions for them, but this tool runs on
// glibc 2.17 and links only fmt.
#pragma once

#include <charconv>
#include <string_view>
#include <vector>

namespace tessera::smi {

// Parses a decimal number. False: the text has other characters, or does not fit.
inline bool ParseUnsigned(std::string_view text, unsigned* value) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stopped == end;
}

// The items of a list; an empty item at its end is left out. They are views of `list`.
inline std::vector<std::string_view> Split(std::string_view list, char separator = ',') {
  std::vector<std::string_view> items;
  while (!list.empty()) {
    const size_t end = list.find(separator);
    items.push_back(list.substr(0, end));
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
  }
  return items;
}

}  // namespace tessera::smi
