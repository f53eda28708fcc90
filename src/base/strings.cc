// SPDX-License-Identifier: Apache-2.0
#include "src/base/strings.h"

#include <algorithm>
#include <charconv>

namespace tessera {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

std::string ValueAt(const StringMap& map, std::string_view key) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : std::string();
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t begin = 0;
  while (true) {
    const size_t end = text.find(separator, begin);
    parts.push_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::vector<std::string_view> SplitList(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (const std::string_view part : Split(text, separator)) {
    if (const std::string_view trimmed = Trim(part); !trimmed.empty()) parts.push_back(trimmed);
  }
  return parts;
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string ToLower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return lower;
}

Result<int64_t> ParseInt(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) {
    return Error(Code::kInvalidArgument, "\"{}\" is not a whole number", text.substr(0, 64));
  }
  return value;
}

std::string HexEncode(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

namespace {

// Length of the well-formed sequence at the start of `text`; 0 if it is not well-formed (RFC 3629).
size_t Utf8SequenceLength(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xC0) != 0x80) return 0;
  }
  // The second byte reveals overlong forms, surrogates and code points above U+10FFFF.
  if (lead == 0xE0 && at(1) < 0xA0) return 0;
  if (lead == 0xED && at(1) > 0x9F) return 0;
  if (lead == 0xF0 && at(1) < 0x90) return 0;
  if (lead == 0xF4 && at(1) > 0x8F) return 0;
  return length;
}

bool IsLowerLetterOrDigit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool IsDnsLabel(std::string_view label) {
  return !label.empty() && label.size() <= 63 && IsLowerLetterOrDigit(label.front()) &&
         IsLowerLetterOrDigit(label.back()) &&
         std::ranges::all_of(label, [](char c) { return IsLowerLetterOrDigit(c) || c == '-'; });
}

}  // namespace

Result<std::string> HexDecode(std::string_view text) {
  if (text.size() % 2 != 0) return Status(Code::kInvalidArgument, "odd number of hex digits");
  std::string bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i < text.size(); i += 2) {
    const int high = HexDigit(text[i]);
    const int low = HexDigit(text[i + 1]);
    if (high < 0 || low < 0) return Error(Code::kInvalidArgument, "no hex digits at offset {}", i);
    bytes += static_cast<char>(high << 4 | low);
  }
  return bytes;
}

bool IsValidUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string TruncateUtf8(std::string text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  text.resize(limit);
  return text;
}

void AppendJsonString(std::string_view text, std::string* out) {
  *out += '"';
  size_t plain = 0;  // start of the current run of plain characters
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && c != '"' && c != '\\') continue;
    out->append(text, plain, i - plain);
    plain = i + 1;
    if (c == '"' || c == '\\') {
      *out += '\\';
      *out += c;
    } else if (c == '\n') {
      *out += "\\n";
    } else if (c == '\t') {
      *out += "\\t";
    } else {
      *out += "\\u00";
      *out += kHexDigits[byte >> 4];
      *out += kHexDigits[byte & 15];
    }
  }
  out->append(text, plain);
  *out += '"';
}

bool IsDnsName(std::string_view text) {
  return text.size() <= 253 && std::ranges::all_of(Split(text, '.'), IsDnsLabel);
}

}  // namespace tessera
