// SPDX-License-Identifier: Apache-2.0
#include "src/kube/uid_digest.h"

#include <string_view>

#include "src/base/strings.h"

namespace tessera::kube {

UidDigest UidDigest::Of(const Uid& uid) {
  const std::string_view text = uid.view();
  const UidDigest hash{Fnv1a(text), Fnv1a(text, 0x84222325CBF29CE4)};
  if (text.size() != 36) return hash;
  UidDigest digest;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == 8 || i == 13 || i == 18 || i == 23) {
      if (text[i] != '-') return hash;
      continue;
    }
    const int digit = HexDigit(text[i]);
    // Only lower case, as the API server writes it: UIDs with "A" and "a" are different.
    if (digit < 0 || (text[i] >= 'A' && text[i] <= 'F')) return hash;
    digest.high = digest.high << 4 | digest.low >> 60;
    digest.low = digest.low << 4 | static_cast<uint64_t>(digit);
  }
  return digest;
}

}  // namespace tessera::kube
