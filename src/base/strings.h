// SPDX-License-Identifier: Apache-2.0
// The few string helpers that several rooms need. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera {

// Splits at every `separator`; an empty text gives one empty part.
std::vector<std::string_view> Split(std::string_view text, char separator);
// Splits, trims each part and drops the empty ones: for lists that people write.
std::vector<std::string_view> SplitList(std::string_view text, char separator = ',');
std::string_view Trim(std::string_view text);
std::string ToLower(std::string_view text);
// A decimal digit, whatever the locale.
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// The whole text must be one decimal number that fits. INVALID_ARGUMENT quotes the text.
Result<int64_t> ParseInt(std::string_view text);

std::string HexEncode(std::string_view bytes);
// INVALID_ARGUMENT for an odd length or a character that is not a hexadecimal digit.
Result<std::string> HexDecode(std::string_view text);

bool IsValidUtf8(std::string_view text);
// `text` up to `limit` bytes, cut at a character.
std::string CutText(std::string text, size_t limit);

// Appends `text` as a JSON string, quotes included.
void AppendJsonString(std::string_view text, std::string* out);

}  // namespace tessera
