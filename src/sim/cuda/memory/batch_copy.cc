// SPDX-License-Identifier: Apache-2.0
// Copies in batches, and copies with attributes, which say when the source is read and where the
// memory is. The simulation ignores the attributes. Not for: sides that are arrays.
#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

Result CopyBatch(const DevicePtr* to, const DevicePtr* from, const size_t* bytes, size_t count,
                 size_t* failed, Stream stream) {
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0)
    return Result::kInvalidValue;
  // The legacy default stream is not allowed.
  if (reinterpret_cast<uintptr_t>(stream) <= kStreamLegacy) return Result::kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    const Result result = cuMemcpyAsync(to[i], from[i], bytes[i], stream);
    if (result == Result::kSuccess) continue;
    PutIf(failed, i);
    return result;
  }
  return Result::kSuccess;
}

Result CopyBox(const BatchCopy3D& copy, Stream stream) {
  if (copy.from.type != kBatchPointer || copy.to.type != kBatchPointer)
    return Result::kNotSupported;
  const Memcpy3D box{.src_type = MemoryType::kUnified,
                     .src_device = copy.from.linear.pointer,
                     .src_pitch = copy.from.linear.row_length,
                     .src_height = copy.from.linear.layer_height,
                     .dst_type = MemoryType::kUnified,
                     .dst_device = copy.to.linear.pointer,
                     .dst_pitch = copy.to.linear.row_length,
                     .dst_height = copy.to.linear.layer_height,
                     .width = copy.width,
                     .height = copy.height,
                     .depth = copy.depth};
  return cuMemcpy3DAsync_v2(&box, stream);
}

Result CopyBoxes(const BatchCopy3D* copies, size_t count, size_t* failed, Stream stream) {
  if (copies == nullptr || count == 0) return Result::kInvalidValue;
  if (reinterpret_cast<uintptr_t>(stream) <= kStreamLegacy) return Result::kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    const Result result = CopyBox(copies[i], stream);
    if (result == Result::kSuccess) continue;
    PutIf(failed, i);
    return result;
  }
  return Result::kSuccess;
}

}  // namespace

CUDA_EXPORT Result cuMemcpyBatchAsync(DevicePtr* to, DevicePtr* from, size_t* bytes, size_t count,
                                      void*, size_t*, size_t, size_t* failed, Stream stream) {
  return CopyBatch(to, from, bytes, count, failed, stream);
}
CUDA_EXPORT Result cuMemcpyBatchAsync_v2(DevicePtr* to, DevicePtr* from, size_t* bytes,
                                         size_t count, void*, size_t*, size_t, Stream stream) {
  return CopyBatch(to, from, bytes, count, nullptr, stream);
}
CUDA_EXPORT Result cuMemcpy3DBatchAsync(size_t count, BatchCopy3D* copies, size_t* failed,
                                        unsigned long long flags, Stream stream) {
  return flags == 0 ? CopyBoxes(copies, count, failed, stream) : Result::kInvalidValue;
}
CUDA_EXPORT Result cuMemcpy3DBatchAsync_v2(size_t count, BatchCopy3D* copies,
                                           unsigned long long flags, Stream stream) {
  return flags == 0 ? CopyBoxes(copies, count, nullptr, stream) : Result::kInvalidValue;
}
CUDA_EXPORT Result cuMemcpyWithAttributesAsync(DevicePtr to, DevicePtr from, size_t bytes,
                                               void* attributes, Stream stream) {
  return attributes != nullptr ? cuMemcpyAsync(to, from, bytes, stream) : Result::kInvalidValue;
}
CUDA_EXPORT Result cuMemcpy3DWithAttributesAsync(BatchCopy3D* copy, unsigned long long flags,
                                                 Stream stream) {
  return flags == 0 && copy != nullptr ? CopyBox(*copy, stream) : Result::kInvalidValue;
}

CUDA_ALIAS(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync)
CUDA_ALIAS(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync_v2)
CUDA_ALIAS(cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync)
CUDA_ALIAS(cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync_v2)
CUDA_ALIAS(cuMemcpyWithAttributesAsync_ptsz, cuMemcpyWithAttributesAsync)
CUDA_ALIAS(cuMemcpy3DWithAttributesAsync_ptsz, cuMemcpy3DWithAttributesAsync)

}  // namespace tessera::cuda
