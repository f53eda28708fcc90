// SPDX-License-Identifier: Apache-2.0
// The device memory that an array takes, from its descriptor. The driver reports it only for arrays
// that the program maps itself. Pure. Threads: any.
#pragma once

#include <cstdint>

#include "api/cuda_abi.h"

namespace tessera::limiter {

// Rows are padded to tiles of 64 bytes and 8 rows, as the GPU stores them. 0: it takes nothing by
// itself (sparse arrays and those with deferred mapping), or it is so large or so malformed that
// the driver refuses it.
uint64_t ArrayBytes(const cuda::Array3DDescriptor& descriptor);
// The same of all levels of a mipmapped array; the driver clamps `levels` to what there can be.
uint64_t MipmapBytes(const cuda::Array3DDescriptor& descriptor, unsigned levels);

}  // namespace tessera::limiter
