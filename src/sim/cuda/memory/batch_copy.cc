// SPDX-License-Identifier: Apache-2.0
// Copies in batches, and copies with attributes. Attributes define when the source is read, and
// where the memory is; the simulation ignores them. Copies from or to arrays are not implemented.
#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

// The legacy default stream takes no batches.
bool IsLegacy(Stream stream) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  return number == kStreamLegacy || (number == 0 && !PerThreadDefaultScope::IsActive());
}

Result CopyBatch(const DevicePtr* to, const DevicePtr* from, const size_t* bytes, size_t count,
                 size_t* failed, Stream stream) {
  if (to == nullptr || from == nullptr || bytes == nullptr || count == 0)
    return Result::kInvalidValue;
  if (IsLegacy(stream)) return Result::kInvalidValue;
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
  if (IsLegacy(stream)) return Result::kInvalidValue;
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

CUDA_PER_THREAD(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync, 9)
CUDA_PER_THREAD(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync_v2, 8)
CUDA_PER_THREAD(cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync, 5)
CUDA_PER_THREAD(cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync_v2, 4)
CUDA_PER_THREAD(cuMemcpyWithAttributesAsync_ptsz, cuMemcpyWithAttributesAsync, 5)
CUDA_PER_THREAD(cuMemcpy3DWithAttributesAsync_ptsz, cuMemcpy3DWithAttributesAsync, 3)

}  // namespace tessera::cuda
