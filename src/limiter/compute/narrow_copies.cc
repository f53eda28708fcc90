// SPDX-License-Identifier: Apache-2.0
// The copy and set functions of CUDA 3.1 and earlier, with addresses and sizes of 32 bits. Drivers
// up to CUDA 12 still export them, and cuGetProcAddress returns them to programs built for such a
// version.
#include "src/limiter/compute/copy_price.h"
#include "src/limiter/loader/driver.h"

namespace tessera::cuda {
namespace {

using limiter::ChargeBoxCopy;
using limiter::ChargeCopy;
using limiter::driver;

}  // namespace

#define COPY(name, parameters, arguments)                                \
  LIMITER_EXPORT Result name parameters {                                \
    return ChargeCopy(bytes, {}, [&] { return driver.name arguments; }); \
  }
COPY(cuMemcpyDtoD, (DevicePtrV1 to, DevicePtrV1 from, unsigned bytes), (to, from, bytes))
COPY(cuMemcpyDtoA, (Array to, unsigned offset, DevicePtrV1 from, unsigned bytes),
     (to, offset, from, bytes))
COPY(cuMemcpyAtoD, (DevicePtrV1 to, Array from, unsigned offset, unsigned bytes),
     (to, from, offset, bytes))
COPY(cuMemcpyAtoA, (Array to, unsigned to_offset, Array from, unsigned from_offset, unsigned bytes),
     (to, to_offset, from, from_offset, bytes))
#undef COPY

LIMITER_EXPORT Result cuMemcpyDtoDAsync(DevicePtrV1 to, DevicePtrV1 from, unsigned bytes,
                                        Stream stream) {
  return ChargeCopy(bytes, {.handle = stream},
                    [&] { return driver.cuMemcpyDtoDAsync(to, from, bytes, stream); });
}

#define COPY(name, type)                                               \
  LIMITER_EXPORT Result name(const type* copy) {                       \
    return ChargeBoxCopy(copy, {}, [&] { return driver.name(copy); }); \
  }
COPY(cuMemcpy2D, Memcpy2DV1)
COPY(cuMemcpy2DUnaligned, Memcpy2DV1)
COPY(cuMemcpy3D, Memcpy3DV1)
#undef COPY

#define COPY(name, type)                                                                       \
  LIMITER_EXPORT Result name(const type* copy, Stream stream) {                                \
    return ChargeBoxCopy(copy, {.handle = stream}, [&] { return driver.name(copy, stream); }); \
  }
COPY(cuMemcpy2DAsync, Memcpy2DV1)
COPY(cuMemcpy3DAsync, Memcpy3DV1)
#undef COPY

// `width` is the size of an element.
#define SET(bits, type, width)                                                                    \
  LIMITER_EXPORT Result cuMemsetD##bits(DevicePtrV1 to, type value, unsigned count) {             \
    return ChargeCopy(uint64_t(count) * width, {},                                                \
                      [&] { return driver.cuMemsetD##bits(to, value, count); });                  \
  }                                                                                               \
  LIMITER_EXPORT Result cuMemsetD2D##bits(DevicePtrV1 to, unsigned pitch, type value,             \
                                          unsigned columns, unsigned rows) {                      \
    return ChargeCopy(uint64_t(columns) * rows * width, {},                                       \
                      [&] { return driver.cuMemsetD2D##bits(to, pitch, value, columns, rows); }); \
  }
SET(8, unsigned char, 1)
SET(16, unsigned short, 2)
SET(32, unsigned, 4)
#undef SET

}  // namespace tessera::cuda
