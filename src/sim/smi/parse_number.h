// SPDX-License-Identifier: Apache-2.0
// Numbers of the command line. src/base has ParseInt, but this tool runs on glibc 2.17 and links
// only fmt.
#pragma once

#include <charconv>
#include <string_view>

namespace tessera::smi {

// Parses a decimal number. False: the text has other characters, or does not fit.
inline bool ParseUnsigned(std::string_view text, unsigned* value) {
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stopped == end;
}

}  // namespace tessera::smi
