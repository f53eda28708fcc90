// SPDX-License-Identifier: Apache-2.0
// A UID in 16 bytes, for tables of hundreds of thousands of objects. It cannot be turned back into
// the UID's text.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::kube {

struct UidDigest {
  uint64_t high = 0, low = 0;

  // A UUID, as the API server makes them, is its 128 bits; any other text is a hash of 128 bits.
  static UidDigest Of(std::string_view text);
  bool operator==(const UidDigest&) const = default;

  struct Hash {
    // Not to throw spares hash tables a word for each.
    size_t operator()(const UidDigest& uid) const noexcept {
      return uid.high ^ uid.low * 0x9E3779B97F4A7C15;
    }
  };
};

}  // namespace tessera::kube
