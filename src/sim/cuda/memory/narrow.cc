// SPDX-License-Identifier: Apache-2.0
// Functions of CUDA 3.1 and before, with addresses and sizes of 32 bits. Not for: copies of rows
// and planes, and copies from and to the host, of that age.
#include <algorithm>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

// A smaller allocation would share a block with others, whose addresses may be wider.
constexpr size_t kLeastBytes = 2 << 20;

Result Narrow(DevicePtr wide, DevicePtrV1* pointer) {
  if (wide <= UINT32_MAX) return Put(pointer, DevicePtrV1(wide));
  cuMemFree_v2(wide);
  return Result::kOutOfMemory;
}

}  // namespace

CUDA_EXPORT Result cuMemAlloc(DevicePtrV1* pointer, unsigned bytes) {
  if (pointer == nullptr || bytes == 0) return Result::kInvalidValue;
  const Driver::NarrowAddresses narrow;
  DevicePtr wide = 0;
  const Result result = cuMemAlloc_v2(&wide, std::max<size_t>(bytes, kLeastBytes));
  return result == Result::kSuccess ? Narrow(wide, pointer) : result;
}

CUDA_EXPORT Result cuMemAllocPitch(DevicePtrV1* pointer, unsigned* pitch, unsigned width,
                                   unsigned height, unsigned element) {
  if (pointer == nullptr || pitch == nullptr || width == 0) return Result::kInvalidValue;
  const Driver::NarrowAddresses narrow;
  DevicePtr wide = 0;
  size_t row = 0;
  const size_t rows = std::max<size_t>(height, kLeastBytes / width + 1);
  const Result result = cuMemAllocPitch_v2(&wide, &row, width, height == 0 ? 0 : rows, element);
  if (result != Result::kSuccess) return result;
  *pitch = unsigned(row);
  return Narrow(wide, pointer);
}

CUDA_EXPORT Result cuMemFree(DevicePtrV1 pointer) { return cuMemFree_v2(pointer); }

CUDA_EXPORT Result cuMemcpyDtoD(DevicePtrV1 to, DevicePtrV1 from, unsigned bytes) {
  return cuMemcpyDtoD_v2(to, from, bytes);
}
CUDA_EXPORT Result cuMemcpyDtoDAsync(DevicePtrV1 to, DevicePtrV1 from, unsigned bytes,
                                     Stream stream) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
CUDA_EXPORT Result cuMemcpyDtoA(Array to, unsigned offset, DevicePtrV1 from, unsigned bytes) {
  return cuMemcpyDtoA_v2(to, offset, from, bytes);
}
CUDA_EXPORT Result cuMemcpyAtoD(DevicePtrV1 to, Array from, unsigned offset, unsigned bytes) {
  return cuMemcpyAtoD_v2(to, from, offset, bytes);
}
CUDA_EXPORT Result cuMemcpyAtoA(Array to, unsigned to_offset, Array from, unsigned from_offset,
                                unsigned bytes) {
  return cuMemcpyAtoA_v2(to, to_offset, from, from_offset, bytes);
}

#define MEMSET(bits, type)                                                         \
  CUDA_EXPORT Result cuMemsetD##bits(DevicePtrV1 to, type value, unsigned count) { \
    return cuMemsetD##bits##_v2(to, value, count);                                 \
  }                                                                                \
  CUDA_EXPORT Result cuMemsetD2D##bits(DevicePtrV1 to, unsigned pitch, type value, \
                                       unsigned columns, unsigned rows) {          \
    return cuMemsetD2D##bits##_v2(to, pitch, value, columns, rows);                \
  }
MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned)
#undef MEMSET

}  // namespace tessera::cuda
