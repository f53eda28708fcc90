// SPDX-License-Identifier: Apache-2.0
#include "src/kube/uid_digest.h"

#include <string_view>

namespace tessera::kube {
namespace {

// FNV-1a.
uint64_t HashOf(std::string_view text, uint64_t hash) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

UidDigest UidDigest::Of(const Uid& uid) {
  const std::string_view text = uid.view();
  const UidDigest hash{HashOf(text, 0xCBF29CE484222325), HashOf(text, 0x84222325CBF29CE4)};
  if (text.size() != 36) return hash;
  UidDigest digest;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return hash;
      continue;
    }
    const int digit = HexDigit(text[i]);
    if (digit < 0) return hash;
    digest.high = digest.high << 4 | digest.low >> 60;
    digest.low = digest.low << 4 | static_cast<uint64_t>(digit);
  }
  return digest;
}

}  // namespace tessera::kube
