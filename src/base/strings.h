// SPDX-License-Identifier: Apache-2.0
// String helpers that several rooms use. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera {

// Splits at every `separator`; an empty text has one empty part.
std::vector<std::string_view> Split(std::string_view text, char separator);
// Splits, trims each part and drops empty parts: for lists written by people.
std::vector<std::string_view> SplitList(std::string_view text, char separator = ',');
std::string_view Trim(std::string_view text);
std::string ToLower(std::string_view text);
// A decimal digit, independent of the locale.
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Parses one decimal number that is the whole text and fits. INVALID_ARGUMENT quotes the text.
Result<int64_t> ParseInt(std::string_view text);

std::string HexEncode(std::string_view bytes);
// INVALID_ARGUMENT for an odd length or a character that is not a hexadecimal digit.
Result<std::string> HexDecode(std::string_view text);

bool IsValidUtf8(std::string_view text);
// `text` up to `limit` bytes, truncated between characters.
std::string CutText(std::string text, size_t limit);

// Appends `text` as a JSON string with its quotes.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace tessera
