// SPDX-License-Identifier: Apache-2.0
// The driver's functions that copy and set device memory. Those within the memory of GPUs take the
// time of the GPU and are priced. Copies from and to the host are not (loader/exemptions.inc).
#include "src/limiter/compute/copy_price.h"
#include "src/limiter/loader/driver.h"

namespace tessera::cuda {
namespace {

using limiter::driver;
using limiter::IsInDeviceMemory;
using limiter::LaunchStream;
using limiter::MayBeLimited;
using limiter::Move;
using limiter::MoveBox;
using limiter::MoveUnified;

// Bytes of a batch that move within device memory; 0 also if the GPU is not limited.
uint64_t BatchBytes(const DevicePtr* to, const DevicePtr* from, const size_t* bytes, size_t count) {
  if (to == nullptr || from == nullptr || bytes == nullptr || !MayBeLimited()) return 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    if (IsInDeviceMemory(to[i]) && IsInDeviceMemory(from[i])) sum += bytes[i];
  }
  return sum;
}

bool IsOnDevice(const BatchSide3D& side) {
  return side.type == kBatchArray || IsInDeviceMemory(side.linear.pointer);
}

// An element of an array counts as one byte until copies of this size are timed.
uint64_t BatchBytes(const BatchCopy3D* copies, size_t count) {
  if (copies == nullptr || !MayBeLimited()) return 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const BatchCopy3D& copy = copies[i];
    if (IsOnDevice(copy.to) && IsOnDevice(copy.from)) sum += copy.width * copy.height * copy.depth;
  }
  return sum;
}

uint64_t DecompressedBytes(const DecompressParameters* buffers, size_t count) {
  if (buffers == nullptr || !MayBeLimited()) return 0;
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += buffers[i].to_bytes;
  return sum;
}

// A call that moves `bytes` within device memory; 0: it is not charged.
template <typename Call>
Result MoveBytes(uint64_t bytes, LaunchStream stream, Call call) {
  return bytes != 0 ? Move(bytes, stream, call) : call();
}

}  // namespace

// `width` is the size of an element.
#define SET(name, type, width, ...)                                    \
  LIMITER_EXPORT Result name(DevicePtr to, type value, size_t count) { \
    return Move(uint64_t(count) * width, LaunchStream{__VA_ARGS__},    \
                [&] { return driver.name(to, value, count); });        \
  }
SET(cuMemsetD8_v2, unsigned char, 1)
SET(cuMemsetD16_v2, unsigned short, 2)
SET(cuMemsetD32_v2, unsigned, 4)
SET(cuMemsetD8_v2_ptds, unsigned char, 1, nullptr, true)
SET(cuMemsetD16_v2_ptds, unsigned short, 2, nullptr, true)
SET(cuMemsetD32_v2_ptds, unsigned, 4, nullptr, true)
#undef SET

#define SET(name, type, width, per_thread_stream)                                     \
  LIMITER_EXPORT Result name(DevicePtr to, type value, size_t count, Stream stream) { \
    return Move(uint64_t(count) * width, {stream, per_thread_stream},                 \
                [&] { return driver.name(to, value, count, stream); });               \
  }
SET(cuMemsetD8Async, unsigned char, 1, false)
SET(cuMemsetD16Async, unsigned short, 2, false)
SET(cuMemsetD32Async, unsigned, 4, false)
SET(cuMemsetD8Async_ptsz, unsigned char, 1, true)
SET(cuMemsetD16Async_ptsz, unsigned short, 2, true)
SET(cuMemsetD32Async_ptsz, unsigned, 4, true)
#undef SET

#define SET(name, type, width, per_thread_stream)                                    \
  LIMITER_EXPORT Result name(DevicePtr to, size_t pitch, type value, size_t columns, \
                             size_t rows) {                                          \
    return Move(uint64_t(columns) * rows * width, {nullptr, per_thread_stream},      \
                [&] { return driver.name(to, pitch, value, columns, rows); });       \
  }
SET(cuMemsetD2D8_v2, unsigned char, 1, false)
SET(cuMemsetD2D16_v2, unsigned short, 2, false)
SET(cuMemsetD2D32_v2, unsigned, 4, false)
SET(cuMemsetD2D8_v2_ptds, unsigned char, 1, true)
SET(cuMemsetD2D16_v2_ptds, unsigned short, 2, true)
SET(cuMemsetD2D32_v2_ptds, unsigned, 4, true)
#undef SET

#define SET(name, type, width, per_thread_stream)                                                 \
  LIMITER_EXPORT Result name(DevicePtr to, size_t pitch, type value, size_t columns, size_t rows, \
                             Stream stream) {                                                     \
    return Move(uint64_t(columns) * rows * width, {stream, per_thread_stream},                    \
                [&] { return driver.name(to, pitch, value, columns, rows, stream); });            \
  }
SET(cuMemsetD2D8Async, unsigned char, 1, false)
SET(cuMemsetD2D16Async, unsigned short, 2, false)
SET(cuMemsetD2D32Async, unsigned, 4, false)
SET(cuMemsetD2D8Async_ptsz, unsigned char, 1, true)
SET(cuMemsetD2D16Async_ptsz, unsigned short, 2, true)
SET(cuMemsetD2D32Async_ptsz, unsigned, 4, true)
#undef SET

LIMITER_EXPORT Result cuMemcpyDtoD_v2(DevicePtr to, DevicePtr from, size_t bytes) {
  return Move(bytes, {}, [&] { return driver.cuMemcpyDtoD_v2(to, from, bytes); });
}
LIMITER_EXPORT Result cuMemcpyDtoD_v2_ptds(DevicePtr to, DevicePtr from, size_t bytes) {
  return Move(bytes, {nullptr, true}, [&] { return driver.cuMemcpyDtoD_v2_ptds(to, from, bytes); });
}
LIMITER_EXPORT Result cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t bytes,
                                           Stream stream) {
  return Move(bytes, {stream, false},
              [&] { return driver.cuMemcpyDtoDAsync_v2(to, from, bytes, stream); });
}
LIMITER_EXPORT Result cuMemcpyDtoDAsync_v2_ptsz(DevicePtr to, DevicePtr from, size_t bytes,
                                                Stream stream) {
  return Move(bytes, {stream, true},
              [&] { return driver.cuMemcpyDtoDAsync_v2_ptsz(to, from, bytes, stream); });
}

#define COPY(name, per_thread_stream)                                             \
  LIMITER_EXPORT Result name(DevicePtr to, DevicePtr from, size_t bytes) {        \
    return MoveUnified(to, from, bytes, LaunchStream{nullptr, per_thread_stream}, \
                       [&] { return driver.name(to, from, bytes); });             \
  }
COPY(cuMemcpy, false)
COPY(cuMemcpy_ptds, true)
#undef COPY

#define COPY(name, per_thread_stream)                                                     \
  LIMITER_EXPORT Result name(DevicePtr to, DevicePtr from, size_t bytes, Stream stream) { \
    return MoveUnified(to, from, bytes, LaunchStream{stream, per_thread_stream},          \
                       [&] { return driver.name(to, from, bytes, stream); });             \
  }
COPY(cuMemcpyAsync, false)
COPY(cuMemcpyAsync_ptsz, true)
#undef COPY

#define COPY(name, type, per_thread_stream)                        \
  LIMITER_EXPORT Result name(const type* copy) {                   \
    return MoveBox(copy, LaunchStream{nullptr, per_thread_stream}, \
                   [&] { return driver.name(copy); });             \
  }
COPY(cuMemcpy2D_v2, Memcpy2D, false)
COPY(cuMemcpy2D_v2_ptds, Memcpy2D, true)
COPY(cuMemcpy2DUnaligned_v2, Memcpy2D, false)
COPY(cuMemcpy2DUnaligned_v2_ptds, Memcpy2D, true)
COPY(cuMemcpy3D_v2, Memcpy3D, false)
COPY(cuMemcpy3D_v2_ptds, Memcpy3D, true)
COPY(cuMemcpy3DPeer, Memcpy3D, false)
COPY(cuMemcpy3DPeer_ptds, Memcpy3D, true)
#undef COPY

#define COPY(name, type, per_thread_stream)                       \
  LIMITER_EXPORT Result name(const type* copy, Stream stream) {   \
    return MoveBox(copy, LaunchStream{stream, per_thread_stream}, \
                   [&] { return driver.name(copy, stream); });    \
  }
COPY(cuMemcpy2DAsync_v2, Memcpy2D, false)
COPY(cuMemcpy2DAsync_v2_ptsz, Memcpy2D, true)
COPY(cuMemcpy3DAsync_v2, Memcpy3D, false)
COPY(cuMemcpy3DAsync_v2_ptsz, Memcpy3D, true)
COPY(cuMemcpy3DPeerAsync, Memcpy3D, false)
COPY(cuMemcpy3DPeerAsync_ptsz, Memcpy3D, true)
#undef COPY

// Copies to, from and between arrays, and between devices. A copy between devices is charged to the
// device of the current context.
#define COPY(name, per_thread_stream, parameters, arguments)     \
  LIMITER_EXPORT Result name parameters {                        \
    return Move(bytes, LaunchStream{nullptr, per_thread_stream}, \
                [&] { return driver.name arguments; });          \
  }
#define PARAMETERS (Array to, size_t offset, DevicePtr from, size_t bytes)
COPY(cuMemcpyDtoA_v2, false, PARAMETERS, (to, offset, from, bytes))
COPY(cuMemcpyDtoA_v2_ptds, true, PARAMETERS, (to, offset, from, bytes))
#undef PARAMETERS
#define PARAMETERS (DevicePtr to, Array from, size_t offset, size_t bytes)
COPY(cuMemcpyAtoD_v2, false, PARAMETERS, (to, from, offset, bytes))
COPY(cuMemcpyAtoD_v2_ptds, true, PARAMETERS, (to, from, offset, bytes))
#undef PARAMETERS
#define PARAMETERS (Array to, size_t to_offset, Array from, size_t from_offset, size_t bytes)
COPY(cuMemcpyAtoA_v2, false, PARAMETERS, (to, to_offset, from, from_offset, bytes))
COPY(cuMemcpyAtoA_v2_ptds, true, PARAMETERS, (to, to_offset, from, from_offset, bytes))
#undef PARAMETERS
#define PARAMETERS \
  (DevicePtr to, Context to_context, DevicePtr from, Context from_context, size_t bytes)
COPY(cuMemcpyPeer, false, PARAMETERS, (to, to_context, from, from_context, bytes))
COPY(cuMemcpyPeer_ptds, true, PARAMETERS, (to, to_context, from, from_context, bytes))
#undef PARAMETERS
#undef COPY

#define COPY(name, per_thread_stream)                                                            \
  LIMITER_EXPORT Result name(DevicePtr to, Context to_context, DevicePtr from,                   \
                             Context from_context, size_t bytes, Stream stream) {                \
    return Move(bytes, LaunchStream{stream, per_thread_stream},                                  \
                [&] { return driver.name(to, to_context, from, from_context, bytes, stream); }); \
  }
COPY(cuMemcpyPeerAsync, false)
COPY(cuMemcpyPeerAsync_ptsz, true)
#undef COPY

#define COPY(name, per_thread_stream)                                                             \
  LIMITER_EXPORT Result name(DevicePtr* to, DevicePtr* from, size_t* bytes, size_t count,         \
                             void* attributes, size_t* indices, size_t attribute_count,           \
                             size_t* failed, Stream stream) {                                     \
    return MoveBytes(BatchBytes(to, from, bytes, count), LaunchStream{stream, per_thread_stream}, \
                     [&] {                                                                        \
                       return driver.name(to, from, bytes, count, attributes, indices,            \
                                          attribute_count, failed, stream);                       \
                     });                                                                          \
  }
COPY(cuMemcpyBatchAsync, false)
COPY(cuMemcpyBatchAsync_ptsz, true)
#undef COPY

#define COPY(name, per_thread_stream)                                                             \
  LIMITER_EXPORT Result name(DevicePtr* to, DevicePtr* from, size_t* bytes, size_t count,         \
                             void* attributes, size_t* indices, size_t attribute_count,           \
                             Stream stream) {                                                     \
    return MoveBytes(BatchBytes(to, from, bytes, count), LaunchStream{stream, per_thread_stream}, \
                     [&] {                                                                        \
                       return driver.name(to, from, bytes, count, attributes, indices,            \
                                          attribute_count, stream);                               \
                     });                                                                          \
  }
COPY(cuMemcpyBatchAsync_v2, false)
COPY(cuMemcpyBatchAsync_v2_ptsz, true)
#undef COPY

#define COPY(name, per_thread_stream)                                                    \
  LIMITER_EXPORT Result name(size_t count, BatchCopy3D* copies, size_t* failed,          \
                             unsigned long long flags, Stream stream) {                  \
    return MoveBytes(BatchBytes(copies, count), LaunchStream{stream, per_thread_stream}, \
                     [&] { return driver.name(count, copies, failed, flags, stream); }); \
  }
COPY(cuMemcpy3DBatchAsync, false)
COPY(cuMemcpy3DBatchAsync_ptsz, true)
#undef COPY

#define COPY(name, per_thread_stream)                                                     \
  LIMITER_EXPORT Result name(size_t count, BatchCopy3D* copies, unsigned long long flags, \
                             Stream stream) {                                             \
    return MoveBytes(BatchBytes(copies, count), LaunchStream{stream, per_thread_stream},  \
                     [&] { return driver.name(count, copies, flags, stream); });          \
  }
COPY(cuMemcpy3DBatchAsync_v2, false)
COPY(cuMemcpy3DBatchAsync_v2_ptsz, true)
#undef COPY

#define COPY(name, per_thread_stream)                                                      \
  LIMITER_EXPORT Result name(DevicePtr to, DevicePtr from, size_t bytes, void* attributes, \
                             Stream stream) {                                              \
    return MoveUnified(to, from, bytes, LaunchStream{stream, per_thread_stream},           \
                       [&] { return driver.name(to, from, bytes, attributes, stream); });  \
  }
COPY(cuMemcpyWithAttributesAsync, false)
COPY(cuMemcpyWithAttributesAsync_ptsz, true)
#undef COPY

#define COPY(name, per_thread_stream)                                                      \
  LIMITER_EXPORT Result name(BatchCopy3D* copy, unsigned long long flags, Stream stream) { \
    return MoveBytes(BatchBytes(copy, 1), LaunchStream{stream, per_thread_stream},         \
                     [&] { return driver.name(copy, flags, stream); });                    \
  }
COPY(cuMemcpy3DWithAttributesAsync, false)
COPY(cuMemcpy3DWithAttributesAsync_ptsz, true)
#undef COPY

#define DECOMPRESS(name, per_thread_stream)                                                      \
  LIMITER_EXPORT Result name(DecompressParameters* buffers, size_t count, unsigned flags,        \
                             size_t* failed, Stream stream) {                                    \
    return MoveBytes(DecompressedBytes(buffers, count), LaunchStream{stream, per_thread_stream}, \
                     [&] { return driver.name(buffers, count, flags, failed, stream); });        \
  }
DECOMPRESS(cuMemBatchDecompressAsync, false)
DECOMPRESS(cuMemBatchDecompressAsync_ptsz, true)
#undef DECOMPRESS

}  // namespace tessera::cuda
