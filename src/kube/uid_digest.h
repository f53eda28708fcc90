// SPDX-License-Identifier: Apache-2.0
// A UID in 16 bytes, for tables of hundreds of thousands of objects. It cannot be turned back into
// the UID's text.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/uid.h"

namespace tessera::kube {

struct UidDigest {
  uint64_t high = 0, low = 0;

  // A UUID, as the API server makes them, is its 128 bits; any other UID is a hash of 128 bits.
  static UidDigest Of(const Uid& uid);
  bool operator==(const UidDigest&) const = default;

  struct Hash {
    // Not to throw spares hash tables a word for each.
    size_t operator()(const UidDigest& digest) const noexcept {
      return digest.high ^ digest.low * 0x9E3779B97F4A7C15;
    }
  };
};

}  // namespace tessera::kube
