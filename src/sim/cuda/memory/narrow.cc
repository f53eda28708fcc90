// SPDX-License-Identifier: Apache-2.0
// Functions of CUDA 3.1 and earlier, with addresses and sizes of 32 bits.
#include <algorithm>

#include "src/sim/cuda/memory/copy.h"

namespace tessera::cuda {
namespace {

// A smaller allocation could share a block whose address has more than 32 bits.
constexpr size_t kMinBytes = 2 << 20;

Result Narrow(DevicePtr wide, DevicePtrV1* pointer) {
  if (wide <= UINT32_MAX) return Put(pointer, DevicePtrV1(wide));
  cuMemFree_v2(wide);
  return Result::kOutOfMemory;
}

// Calls the function for 64-bit addresses with a copy of the descriptor.
template <typename Wide, typename Copy, typename Call>
Result CopyWide(const Copy* copy, Call call) {
  if (copy == nullptr) return Result::kInvalidValue;
  const auto wide = Widen<Wide>(*copy);
  return call(&wide);
}

}  // namespace

CUDA_EXPORT Result cuMemAlloc(DevicePtrV1* pointer, unsigned bytes) {
  if (pointer == nullptr || bytes == 0) return Result::kInvalidValue;
  const Driver::NarrowAddresses narrow;
  DevicePtr wide = 0;
  const Result result = cuMemAlloc_v2(&wide, std::max<size_t>(bytes, kMinBytes));
  return result == Result::kSuccess ? Narrow(wide, pointer) : result;
}

CUDA_EXPORT Result cuMemAllocPitch(DevicePtrV1* pointer, unsigned* pitch, unsigned width,
                                   unsigned height, unsigned element) {
  if (pointer == nullptr || pitch == nullptr || width == 0) return Result::kInvalidValue;
  const Driver::NarrowAddresses narrow;
  DevicePtr wide = 0;
  size_t row = 0;
  const size_t rows = std::max<size_t>(height, kMinBytes / width + 1);
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

CUDA_EXPORT Result cuMemcpyHtoD(DevicePtrV1 to, const void* from, unsigned bytes) {
  return cuMemcpyHtoD_v2(to, from, bytes);
}
CUDA_EXPORT Result cuMemcpyHtoDAsync(DevicePtrV1 to, const void* from, unsigned bytes,
                                     Stream stream) {
  return cuMemcpyHtoDAsync_v2(to, from, bytes, stream);
}
CUDA_EXPORT Result cuMemcpyDtoH(void* to, DevicePtrV1 from, unsigned bytes) {
  return cuMemcpyDtoH_v2(to, from, bytes);
}
CUDA_EXPORT Result cuMemcpyDtoHAsync(void* to, DevicePtrV1 from, unsigned bytes, Stream stream) {
  return cuMemcpyDtoHAsync_v2(to, from, bytes, stream);
}
CUDA_EXPORT Result cuMemcpyHtoA(Array to, unsigned offset, const void* from, unsigned bytes) {
  return cuMemcpyHtoA_v2(to, offset, from, bytes);
}
CUDA_EXPORT Result cuMemcpyHtoAAsync(Array to, unsigned offset, const void* from, unsigned bytes,
                                     Stream stream) {
  return cuMemcpyHtoAAsync_v2(to, offset, from, bytes, stream);
}
CUDA_EXPORT Result cuMemcpyAtoH(void* to, Array from, unsigned offset, unsigned bytes) {
  return cuMemcpyAtoH_v2(to, from, offset, bytes);
}
CUDA_EXPORT Result cuMemcpyAtoHAsync(void* to, Array from, unsigned offset, unsigned bytes,
                                     Stream stream) {
  return cuMemcpyAtoHAsync_v2(to, from, offset, bytes, stream);
}
CUDA_EXPORT Result cuMemcpy2D(const Memcpy2DV1* copy) {
  return CopyWide<Memcpy2D>(copy, cuMemcpy2D_v2);
}
CUDA_EXPORT Result cuMemcpy2DUnaligned(const Memcpy2DV1* copy) { return cuMemcpy2D(copy); }
CUDA_EXPORT Result cuMemcpy2DAsync(const Memcpy2DV1* copy, Stream stream) {
  return CopyWide<Memcpy2D>(copy,
                            [=](const Memcpy2D* wide) { return cuMemcpy2DAsync_v2(wide, stream); });
}
CUDA_EXPORT Result cuMemcpy3D(const Memcpy3DV1* copy) {
  return CopyWide<Memcpy3D>(copy, cuMemcpy3D_v2);
}
CUDA_EXPORT Result cuMemcpy3DAsync(const Memcpy3DV1* copy, Stream stream) {
  return CopyWide<Memcpy3D>(copy,
                            [=](const Memcpy3D* wide) { return cuMemcpy3DAsync_v2(wide, stream); });
}

CUDA_EXPORT Result cuMemGetAddressRange(DevicePtrV1* base, unsigned* bytes, DevicePtrV1 pointer) {
  DevicePtr wide = 0;
  size_t size = 0;
  const Result result = cuMemGetAddressRange_v2(&wide, &size, pointer);
  if (result != Result::kSuccess) return result;
  PutIf(base, wide);
  PutIf(bytes, size);
  return result;
}
CUDA_EXPORT Result cuMemAllocHost(void** pointer, unsigned bytes) {
  return cuMemAllocHost_v2(pointer, bytes);
}
// Host memory has 64-bit addresses, which programs of this API version cannot store.
CUDA_EXPORT Result cuMemHostGetDevicePointer(DevicePtrV1* pointer, void* host, unsigned flags) {
  DevicePtr wide = 0;
  const Result result = cuMemHostGetDevicePointer_v2(&wide, host, flags);
  if (result != Result::kSuccess) return result;
  return wide <= UINT32_MAX ? Put(pointer, wide) : Result::kNotSupported;
}
CUDA_EXPORT Result cuModuleGetGlobal(DevicePtrV1* pointer, unsigned* bytes, Module module,
                                     const char* name) {
  DevicePtr wide = 0;
  size_t size = 0;
  const Result result = cuModuleGetGlobal_v2(&wide, &size, module, name);
  if (result != Result::kSuccess) return result;
  if (wide > UINT32_MAX) return Result::kNotSupported;
  PutIf(pointer, wide);
  PutIf(bytes, size);
  return result;
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
