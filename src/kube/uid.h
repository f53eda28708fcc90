// SPDX-License-Identifier: Apache-2.0
// A UID of an object in 16 bytes, for those who keep hundreds of thousands of them. Not for showing
// or sending one: there is no way back to its text.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::kube {

struct Uid {
  uint64_t high = 0, low = 0;

  // A UUID, as the API server makes them, is its 128 bits; any other text is a hash of 128 bits.
  static Uid Of(std::string_view text);
  bool operator==(const Uid&) const = default;

  struct Hash {
    // Not to throw spares hash tables a word for each.
    size_t operator()(const Uid& uid) const noexcept {
      return uid.high ^ uid.low * 0x9E3779B97F4A7C15;
    }
  };
};

}  // namespace tessera::kube
