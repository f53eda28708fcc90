// SPDX-License-Identifier: Apache-2.0
#include "src/formats/base64.h"

#include <cstdint>

namespace tessera {
namespace {

int ValueOf(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  if (c == '/') return 63;
  return -1;
}

}  // namespace

Result<std::string> Base64Decode(std::string_view text) {
  std::string out;
  out.reserve(text.size() / 4 * 3);
  uint32_t bits = 0;
  int pending_bits = 0;  // number of low bits of `bits` that are not yet written
  int count = 0;         // number of characters, with padding
  int padding = 0;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    ++count;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int value = ValueOf(c);
    if (value < 0 || padding > 0)
      return Error(Code::kInvalidArgument, "not base64: invalid character");
    bits = bits << 6 | static_cast<uint32_t>(value);
    pending_bits += 6;
    if (pending_bits < 8) continue;
    pending_bits -= 8;
    out.push_back(static_cast<char>(bits >> pending_bits & 0xff));
  }
  if (count % 4 != 0 || padding > 2)
    return Error(Code::kInvalidArgument, "not base64: wrong length");
  return out;
}

std::string Base64Encode(std::string_view bytes) {
  static constexpr char kLetters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<uint8_t>(bytes[at + i]) : 0);
    }
    for (size_t i = 0; i < 4; ++i) {
      const bool padding = at + i > bytes.size();
      out.push_back(padding ? '=' : kLetters[bits >> (18 - 6 * i) & 63]);
    }
  }
  return out;
}

}  // namespace tessera
