// SPDX-License-Identifier: Apache-2.0
// Computes the device memory of an array from its descriptor. The driver reports the size only for
// arrays that the program maps itself. Pure. Threads: any.
#pragma once

#include <cstdint>

#include "api/cuda_abi.h"

namespace tessera::limiter {

// Rows are padded to tiles of 64 bytes and 8 rows, as the GPU stores them. 0: the array takes no
// memory at its creation (sparse, or with deferred mapping), or the driver refuses the descriptor.
uint64_t ArrayBytes(const cuda::Array3DDescriptor& descriptor);
// Sum over all levels of a mipmapped array; the driver clamps `levels` to the possible number.
uint64_t MipmapBytes(const cuda::Array3DDescriptor& descriptor, unsigned levels);

}  // namespace tessera::limiter
