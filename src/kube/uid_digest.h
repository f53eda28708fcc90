// SPDX-License-Identifier: Apache-2.0
// A UID as 16 bytes, for tables of hundreds of thousands of objects. The UID's text cannot be
// recovered from it.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/base/uid.h"

namespace tessera::kube {

struct UidDigest {
  uint64_t high = 0, low = 0;

  // The digest of a UUID, the form of UIDs that the API server creates, is the UUID's 128 bits. Any
  // other UID is hashed to 128 bits.
  static UidDigest Of(const Uid& uid);
  bool operator==(const UidDigest&) const = default;

  struct Hash {
    // noexcept, because hash tables then store no hash with each entry.
    size_t operator()(const UidDigest& digest) const noexcept {
      return digest.high ^ digest.low * 0x9E3779B97F4A7C15;
    }
  };
};

}  // namespace tessera::kube
