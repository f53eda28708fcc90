// SPDX-License-Identifier: Apache-2.0
// Computes the device memory of an array from its descriptor. The driver reports the size only for
// arrays that the program maps itself. Threads: any.
#pragma once

#include <cstdint>

#include "api/cuda_abi.h"

namespace tessera::limiter {

// The GPU stores arrays in tiles of 64 bytes by 8 rows, so both dimensions are rounded up. 0: the
// array takes no memory at its creation (sparse, or with deferred mapping), or the driver refuses
// the descriptor.
uint64_t ArrayBytes(const cuda::Array3DDescriptor& descriptor);
// Sum over all levels of a mipmapped array; the driver clamps `levels` to the possible number.
uint64_t MipmapBytes(const cuda::Array3DDescriptor& descriptor, unsigned levels);

}  // namespace tessera::limiter
