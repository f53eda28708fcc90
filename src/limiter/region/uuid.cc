// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/region/uuid.h"

#include <string.h>

namespace tessera::limiter {

bool ParseUuid(const char* text, uint8_t (&uuid)[16]) {
  if (::strncmp(text, "GPU-", 4) == 0 || ::strncmp(text, "MIG-", 4) == 0) text += 4;
  constexpr char kHex[] = "0123456789abcdef";
  size_t digits = 0;
  for (; *text != 0 && digits < 32; ++text) {
    if (*text == '-') continue;
    const char* digit = ::strchr(kHex, *text | 0x20);
    if (digit == nullptr) return false;
    uint8_t& byte = uuid[digits++ / 2];
    byte = uint8_t(byte << 4 | (digit - kHex));
  }
  return digits == 32 && *text == 0;
}

}  // namespace tessera::limiter
