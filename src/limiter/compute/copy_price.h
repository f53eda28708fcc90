// SPDX-License-Identifier: Apache-2.0
// Prices of copies and sets within device memory, for copies.cc and narrow_copies.cc.
#pragma once

#include "src/limiter/compute/launch.h"
#include "src/limiter/loader/driver.h"

namespace tessera::limiter {

// Minimum bytes that a GPU moves within its memory in a nanosecond.
inline constexpr uint64_t kBytesPerNanosecond = 500;

// The meter of the current context's GPU. Null: the GPU has no limit, or no launch of this thread
// has used the context yet.
inline Meter* LimitedGpuMeter() {
  if (!Throttle::Get().IsCurrent(current_thread)) return nullptr;
  Meter* const meter = current_thread.meter;
  return meter != nullptr && meter->gate.books().epoch() != 0 ? meter : nullptr;
}

// Calls the driver, and charges a copy or set within device memory.
template <typename Call>
cuda::Result ChargeCopy(uint64_t bytes, LaunchStream stream, Call call) {
  const auto work = [=] { return Work{0x6d6f7665, bytes}; };
  const cuda::Result result =
      Launch(work, int64_t(bytes / kBytesPerNanosecond) + 2'000, stream, call);
  if (Meter* const meter = LimitedGpuMeter(); meter != nullptr)
    meter->gate.books().RecordCopy(PriceKey(work()));
  return result;
}

inline uint64_t BytesOf(const cuda::Memcpy2D& copy) { return uint64_t(copy.width) * copy.height; }
inline uint64_t BytesOf(const cuda::Memcpy3D& copy) {
  return uint64_t(copy.width) * copy.height * copy.depth;
}

inline uint64_t BytesOf(const cuda::Memcpy2DV1& copy) { return uint64_t(copy.width) * copy.height; }
inline uint64_t BytesOf(const cuda::Memcpy3DV1& copy) {
  return uint64_t(copy.width) * copy.height * copy.depth;
}

// False: the GPU of this thread's context has no limit.
inline bool MayBeLimited() {
  return !Throttle::Get().IsCurrent(current_thread) || LimitedGpuMeter() != nullptr;
}

// Calls the driver, so it is used only if the GPU is limited.
inline bool IsInDeviceMemory(cuda::DevicePtr pointer) {
  constexpr int kPointerMemoryType = 2;
  cuda::MemoryType type = {};
  return driver.cuPointerGetAttribute(&type, kPointerMemoryType, pointer) ==
             cuda::Result::kSuccess &&
         type == cuda::MemoryType::kDevice;
}

inline bool IsOnDevice(cuda::MemoryType type, cuda::DevicePtr pointer) {
  return type == cuda::MemoryType::kDevice || type == cuda::MemoryType::kArray ||
         (type == cuda::MemoryType::kUnified && IsInDeviceMemory(pointer));
}

// A copy of rows or planes, which is charged if both sides are in device memory.
template <typename Copy, typename Call>
cuda::Result ChargeBoxCopy(const Copy* copy, LaunchStream stream, Call call) {
  const bool is_within_device = copy != nullptr && MayBeLimited() &&
                                IsOnDevice(copy->src_type, copy->src_device) &&
                                IsOnDevice(copy->dst_type, copy->dst_device);
  return is_within_device ? ChargeCopy(BytesOf(*copy), stream, call) : call();
}

// A copy whose sides are known only by their addresses.
template <typename Call>
cuda::Result ChargeUnifiedCopy(cuda::DevicePtr to, cuda::DevicePtr from, uint64_t bytes,
                               LaunchStream stream, Call call) {
  const bool is_within_device = MayBeLimited() && IsInDeviceMemory(to) && IsInDeviceMemory(from);
  return is_within_device ? ChargeCopy(bytes, stream, call) : call();
}

}  // namespace tessera::limiter
