// SPDX-License-Identifier: Apache-2.0
// String helpers that several rooms use. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace tessera {

// Texts by name: labels, annotations, quantities of resources, environment variables.
using StringMap = std::map<std::string, std::string, std::less<>>;
// Changes to a StringMap, or its expected entries. nullopt: the entry is to be removed, or is
// expected to be absent.
using StringChanges = std::map<std::string, std::optional<std::string>, std::less<>>;

// The value of `key`; "" if `map` lacks the key.
std::string ValueAt(const StringMap& map, std::string_view key);

// Splits at every `separator`; an empty text has one empty part.
std::vector<std::string_view> Split(std::string_view text, char separator);
// Splits, trims each part and drops empty parts: for lists written by users.
std::vector<std::string_view> SplitList(std::string_view text, char separator = ',');
std::string_view Trim(std::string_view text);
std::string ToLower(std::string_view text);
// A decimal digit, independent of the locale.
constexpr bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Parses a decimal number. INVALID_ARGUMENT, which quotes the text, for other characters and for a
// number that does not fit into 64 bits.
Result<int64_t> ParseInt(std::string_view text);

// The value of a hexadecimal digit; -1 for another character.
constexpr int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}
std::string HexEncode(std::string_view bytes);
// INVALID_ARGUMENT for an odd length or a character that is not a hexadecimal digit.
Result<std::string> HexDecode(std::string_view text);

bool IsValidUtf8(std::string_view text);
// `text` up to `limit` bytes, truncated between characters.
std::string TruncateUtf8(std::string text, size_t limit);

// FNV-1a: a hash for tables and fingerprints, which does not resist crafted collisions. `hash`: the
// hash of a preceding text.
constexpr uint64_t Fnv1a(std::string_view text, uint64_t hash = 0xCBF29CE484222325) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// Appends `text` as a JSON string with its quotes.
void AppendJsonString(std::string_view text, std::string* out);

// A lower-case subdomain of RFC 1123 with at most 253 bytes, as used by DNS and for the names of
// most Kubernetes objects. "a.b-1" is valid; "", "A", "a..b", "-a" and "a_b" are not.
bool IsDnsName(std::string_view text);

}  // namespace tessera
