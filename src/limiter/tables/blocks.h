// SPDX-License-Identifier: Apache-2.0
// The unit in which the real driver allocates device memory.
#pragma once

#include <cstdint>

namespace tessera::limiter {

inline constexpr uint64_t kBlockBytes = 2 << 20;
// Allocations up to this size share a block.
inline constexpr uint64_t kMaxSmallBytes = 1 << 20;

// Returns 0 for a size that overflows; the driver refuses such sizes.
constexpr uint64_t RoundToBlocks(uint64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

}  // namespace tessera::limiter
