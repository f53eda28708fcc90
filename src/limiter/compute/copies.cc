// SPDX-License-Identifier: Apache-2.0
// The driver's functions that copy and set device memory. Copies and sets within device memory take
// GPU time and have prices. Copies from and to the host have no prices (loader/exemptions.inc).
#include "src/limiter/compute/launch.h"
#include "src/limiter/loader/driver.h"

namespace tessera::cuda {
namespace {

using limiter::current_thread;
using limiter::driver;
using limiter::Launch;
using limiter::LaunchStream;
using limiter::Meter;
using limiter::PriceKey;
using limiter::Throttle;
using limiter::Work;

// Minimum bytes that a GPU moves within its memory in a nanosecond.
constexpr uint64_t kBytesPerNanosecond = 500;

// The meter of the current context's GPU. Null: the GPU has no limit, or no launch of this thread
// has used the context yet.
Meter* LimitedGpuMeter() {
  if (!Throttle::Get().IsCurrent(current_thread)) return nullptr;
  Meter* const meter = current_thread.meter;
  return meter != nullptr && meter->gate.books().epoch() != 0 ? meter : nullptr;
}

// Calls the driver, and charges a copy or set within device memory.
template <typename Call>
Result ChargeCopy(uint64_t bytes, LaunchStream stream, Call call) {
  const auto work = [=] { return Work{0x6d6f7665, bytes}; };
  const Result result = Launch(work, int64_t(bytes / kBytesPerNanosecond) + 2'000, stream, call);
  if (Meter* const meter = LimitedGpuMeter(); meter != nullptr)
    meter->gate.books().RecordCopy(PriceKey(work()));
  return result;
}

template <typename Copy>
uint64_t BoxBytes(const Copy& copy) {
  uint64_t bytes = uint64_t(copy.width) * copy.height;
  if constexpr (requires { copy.depth; }) bytes *= copy.depth;
  return bytes;
}

// False: the GPU of this thread's context has no limit.
bool MayBeLimited() {
  return !Throttle::Get().IsCurrent(current_thread) || LimitedGpuMeter() != nullptr;
}

// Calls the driver, so it is used only if the GPU is limited.
bool IsInDeviceMemory(DevicePtr pointer) {
  constexpr int kPointerMemoryType = 2;
  MemoryType type = {};
  return driver.cuPointerGetAttribute(&type, kPointerMemoryType, pointer) == Result::kSuccess &&
         type == MemoryType::kDevice;
}

bool IsOnDevice(MemoryType type, DevicePtr pointer) {
  return type == MemoryType::kDevice || type == MemoryType::kArray ||
         (type == MemoryType::kUnified && IsInDeviceMemory(pointer));
}

// A copy of rows or planes, which is charged if both sides are in device memory.
template <typename Copy, typename Call>
Result ChargeBoxCopy(const Copy* copy, LaunchStream stream, Call call) {
  const bool is_within_device = copy != nullptr && MayBeLimited() &&
                                IsOnDevice(copy->src_type, copy->src_device) &&
                                IsOnDevice(copy->dst_type, copy->dst_device);
  return is_within_device ? ChargeCopy(BoxBytes(*copy), stream, call) : call();
}

// A copy whose sides are known only by their addresses.
template <typename Call>
Result ChargeUnifiedCopy(DevicePtr to, DevicePtr from, uint64_t bytes, LaunchStream stream,
                         Call call) {
  const bool is_within_device = MayBeLimited() && IsInDeviceMemory(to) && IsInDeviceMemory(from);
  return is_within_device ? ChargeCopy(bytes, stream, call) : call();
}

// Bytes that a batch moves within device memory; 0 also if the GPU is not limited.
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

// Calls the driver, and charges `bytes` that move within device memory; 0: nothing to charge.
template <typename Call>
Result ChargeBatch(uint64_t bytes, LaunchStream stream, Call call) {
  return bytes != 0 ? ChargeCopy(bytes, stream, call) : call();
}

}  // namespace

// Defines a function, and its variant with `suffix`, which uses the per-thread default stream.
// `charge` gets the last arguments, the stream and the driver call.
#define BOTH(name, suffix, parameters, arguments, stream, charge, ...)             \
  LIMITER_EXPORT Result name parameters {                                          \
    return charge(__VA_ARGS__, LaunchStream{.handle = stream},                     \
                  [&] { return driver.name arguments; });                          \
  }                                                                                \
  LIMITER_EXPORT Result name##suffix parameters {                                  \
    return charge(__VA_ARGS__, LaunchStream{.handle = stream, .per_thread = true}, \
                  [&] { return driver.name##suffix arguments; });                  \
  }

// `width` is the size of an element.
#define SET(bits, type, width)                                                                    \
  BOTH(cuMemsetD##bits##_v2, _ptds, (DevicePtr to, type value, size_t count), (to, value, count), \
       nullptr, ChargeCopy, uint64_t(count) * width)                                              \
  BOTH(cuMemsetD##bits##Async, _ptsz, (DevicePtr to, type value, size_t count, Stream stream),    \
       (to, value, count, stream), stream, ChargeCopy, uint64_t(count) * width)                   \
  BOTH(cuMemsetD2D##bits##_v2, _ptds,                                                             \
       (DevicePtr to, size_t pitch, type value, size_t columns, size_t rows),                     \
       (to, pitch, value, columns, rows), nullptr, ChargeCopy, uint64_t(columns) * rows * width)  \
  BOTH(cuMemsetD2D##bits##Async, _ptsz,                                                           \
       (DevicePtr to, size_t pitch, type value, size_t columns, size_t rows, Stream stream),      \
       (to, pitch, value, columns, rows, stream), stream, ChargeCopy,                             \
       uint64_t(columns) * rows * width)
SET(8, unsigned char, 1)
SET(16, unsigned short, 2)
SET(32, unsigned, 4)
#undef SET

BOTH(cuMemcpyDtoD_v2, _ptds, (DevicePtr to, DevicePtr from, size_t bytes), (to, from, bytes),
     nullptr, ChargeCopy, bytes)
BOTH(cuMemcpyDtoDAsync_v2, _ptsz, (DevicePtr to, DevicePtr from, size_t bytes, Stream stream),
     (to, from, bytes, stream), stream, ChargeCopy, bytes)
BOTH(cuMemcpy, _ptds, (DevicePtr to, DevicePtr from, size_t bytes), (to, from, bytes), nullptr,
     ChargeUnifiedCopy, to, from, bytes)
BOTH(cuMemcpyAsync, _ptsz, (DevicePtr to, DevicePtr from, size_t bytes, Stream stream),
     (to, from, bytes, stream), stream, ChargeUnifiedCopy, to, from, bytes)

BOTH(cuMemcpy2D_v2, _ptds, (const Memcpy2D* copy), (copy), nullptr, ChargeBoxCopy, copy)
BOTH(cuMemcpy2DUnaligned_v2, _ptds, (const Memcpy2D* copy), (copy), nullptr, ChargeBoxCopy, copy)
BOTH(cuMemcpy3D_v2, _ptds, (const Memcpy3D* copy), (copy), nullptr, ChargeBoxCopy, copy)
BOTH(cuMemcpy3DPeer, _ptds, (const Memcpy3D* copy), (copy), nullptr, ChargeBoxCopy, copy)
BOTH(cuMemcpy2DAsync_v2, _ptsz, (const Memcpy2D* copy, Stream stream), (copy, stream), stream,
     ChargeBoxCopy, copy)
BOTH(cuMemcpy3DAsync_v2, _ptsz, (const Memcpy3D* copy, Stream stream), (copy, stream), stream,
     ChargeBoxCopy, copy)
BOTH(cuMemcpy3DPeerAsync, _ptsz, (const Memcpy3D* copy, Stream stream), (copy, stream), stream,
     ChargeBoxCopy, copy)

// Copies to, from and between arrays, and copies between devices. A copy between devices is charged
// to the device of the current context.
BOTH(cuMemcpyDtoA_v2, _ptds, (Array to, size_t offset, DevicePtr from, size_t bytes),
     (to, offset, from, bytes), nullptr, ChargeCopy, bytes)
BOTH(cuMemcpyAtoD_v2, _ptds, (DevicePtr to, Array from, size_t offset, size_t bytes),
     (to, from, offset, bytes), nullptr, ChargeCopy, bytes)
BOTH(cuMemcpyAtoA_v2, _ptds,
     (Array to, size_t to_offset, Array from, size_t from_offset, size_t bytes),
     (to, to_offset, from, from_offset, bytes), nullptr, ChargeCopy, bytes)
BOTH(cuMemcpyPeer, _ptds,
     (DevicePtr to, Context to_context, DevicePtr from, Context from_context, size_t bytes),
     (to, to_context, from, from_context, bytes), nullptr, ChargeCopy, bytes)
BOTH(cuMemcpyPeerAsync, _ptsz,
     (DevicePtr to, Context to_context, DevicePtr from, Context from_context, size_t bytes,
      Stream stream),
     (to, to_context, from, from_context, bytes, stream), stream, ChargeCopy, bytes)

BOTH(cuMemcpyBatchAsync, _ptsz,
     (DevicePtr * to, DevicePtr* from, size_t* bytes, size_t count, void* attributes,
      size_t* indices, size_t attribute_count, size_t* failed, Stream stream),
     (to, from, bytes, count, attributes, indices, attribute_count, failed, stream), stream,
     ChargeBatch, BatchBytes(to, from, bytes, count))
BOTH(cuMemcpyBatchAsync_v2, _ptsz,
     (DevicePtr * to, DevicePtr* from, size_t* bytes, size_t count, void* attributes,
      size_t* indices, size_t attribute_count, Stream stream),
     (to, from, bytes, count, attributes, indices, attribute_count, stream), stream, ChargeBatch,
     BatchBytes(to, from, bytes, count))
BOTH(cuMemcpy3DBatchAsync, _ptsz,
     (size_t count, BatchCopy3D* copies, size_t* failed, unsigned long long flags, Stream stream),
     (count, copies, failed, flags, stream), stream, ChargeBatch, BatchBytes(copies, count))
BOTH(cuMemcpy3DBatchAsync_v2, _ptsz,
     (size_t count, BatchCopy3D* copies, unsigned long long flags, Stream stream),
     (count, copies, flags, stream), stream, ChargeBatch, BatchBytes(copies, count))
BOTH(cuMemcpyWithAttributesAsync, _ptsz,
     (DevicePtr to, DevicePtr from, size_t bytes, void* attributes, Stream stream),
     (to, from, bytes, attributes, stream), stream, ChargeUnifiedCopy, to, from, bytes)
BOTH(cuMemcpy3DWithAttributesAsync, _ptsz,
     (BatchCopy3D * copy, unsigned long long flags, Stream stream), (copy, flags, stream), stream,
     ChargeBatch, BatchBytes(copy, 1))
BOTH(cuMemBatchDecompressAsync, _ptsz,
     (DecompressParameters * buffers, size_t count, unsigned flags, size_t* failed, Stream stream),
     (buffers, count, flags, failed, stream), stream, ChargeBatch,
     DecompressedBytes(buffers, count))
#undef BOTH

// The copy and set functions of CUDA 3.1 and earlier, with addresses and sizes of 32 bits. Drivers
// up to CUDA 12 still export them, and cuGetProcAddress returns them to programs built for such a
// version.
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
