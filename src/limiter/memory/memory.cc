// SPDX-License-Identifier: Apache-2.0
// The driver's functions that allocate, free or report device memory.
#include "src/limiter/loader/driver.h"
#include "src/limiter/process/process.h"
#include "src/limiter/tables/blocks.h"
#include "src/limiter/tables/moment.h"

namespace tessera::cuda {
namespace {

using limiter::Contexts;
using limiter::driver;
using limiter::LaunchStream;
using limiter::NextMoment;
using limiter::Process;
using limiter::RoundToBlocks;
using limiter::Throttle;

// `allocate` calls the driver, which writes `pointer`. Afterwards `allocated_bytes` returns the
// bytes that the driver allocated, which may be a little more than `bytes`.
template <typename Pointer, typename Allocate, typename AllocatedBytes>
Result AllocateLinear(Pointer* pointer, uint64_t bytes, Allocate allocate,
                      AllocatedBytes allocated_bytes) {
  Process& process = Process::Get();
  const Contexts::Info context = process.CurrentContext();
  const uint64_t reserved = RoundToBlocks(bytes);
  // The driver refuses a size that exceeds every device.
  if (context.gpu < 0 || pointer == nullptr || reserved == 0) return allocate();
  if (!process.Hold(context.gpu, reserved)) return Result::kOutOfMemory;
  const Result result = allocate();
  if (result != Result::kSuccess) {
    process.memory_budget().Release(context.gpu, reserved);
    return result;
  }
  if (process.Charge(context, *pointer, allocated_bytes(), reserved)) return Result::kSuccess;
  driver.cuMemFree_v2(*pointer);
  *pointer = 0;
  return Result::kOutOfMemory;
}

// The driver chooses the pitch of a row: on all known devices, a multiple of 512 bytes.
template <typename Pointer, typename Size, typename Allocate>
Result AllocatePitched(Pointer* pointer, Size* pitch, size_t width, size_t height,
                       Allocate allocate) {
  constexpr size_t kRowAlignment = 512;
  const size_t row_bytes = (width + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  size_t bytes = 0;
  if (pitch == nullptr || row_bytes < width || __builtin_mul_overflow(row_bytes, height, &bytes))
    return allocate();
  return AllocateLinear(pointer, bytes, allocate, [&] { return uint64_t(*pitch) * height; });
}

constexpr int kNotCharged = -1, kUnknown = -2;

// Returns the index (in the limits) of the GPU whose default or current pool this is. kNotCharged:
// that GPU is not limited. kUnknown: it is the default or current pool of no GPU.
int GpuWithPool(MemPool handle) {
  int devices = 0;
  if (driver.cuDeviceGetCount(&devices) != Result::kSuccess) return kUnknown;
  for (Device device = 0; device < devices; ++device) {
    for (const auto pool_of : {driver.cuDeviceGetDefaultMemPool, driver.cuDeviceGetMemPool}) {
      MemPool pool = nullptr;
      if (pool_of(&pool, device) == Result::kSuccess && pool == handle)
        return Process::Get().GpuOf(device);
    }
  }
  return kUnknown;
}

// Returns the index (in the limits) of the GPU that has the memory. kNotCharged: that GPU is not
// limited, or the memory is on the host.
int GpuWithMemory(DevicePtr pointer) {
  constexpr int kMemoryType = 2, kOrdinal = 9;  // CUpointer_attribute
  constexpr unsigned kOnDevice = 2;
  unsigned type = 0;
  Device device = -1;
  if (driver.cuPointerGetAttribute(&type, kMemoryType, pointer) != Result::kSuccess ||
      type != kOnDevice ||
      driver.cuPointerGetAttribute(&device, kOrdinal, pointer) != Result::kSuccess)
    return kNotCharged;
  return Process::Get().GpuOf(device);
}

// Charges the bytes that a pool has allocated. A pool may grow by more than the allocation needs,
// so the limit is checked again.
template <typename Free>
Result ChargeFromPool(DevicePtr* pointer, int gpu, int pool, uint64_t reserved, Free free) {
  Process& process = Process::Get();
  const bool charged = pool >= 0 && process.ChargePool(gpu, *pointer, pool, reserved);
  const uint64_t limit = process.LimitOf(gpu);
  if (charged && (limit == 0 || process.memory_budget().HeldBytes(gpu) <= limit))
    return Result::kSuccess;
  (void)process.Release(*pointer, [&] { return free(*pointer); });
  process.pools().TrimAll(gpu, &process.memory_budget());
  *pointer = 0;
  return Result::kOutOfMemory;
}

// Makes the first allocation from a pool that a library has created by calling the driver directly,
// or from a default pool of host memory. Only the allocated memory shows to which device the pool
// belongs.
template <typename Allocate, typename Free>
Result AllocateFromForeignPool(DevicePtr* pointer, MemPool handle, Allocate allocate, Free free) {
  const Result result = allocate();
  if (result != Result::kSuccess) return result;
  const int gpu = GpuWithMemory(*pointer);
  const int pool = Process::Get().AddPool(handle, gpu);
  return gpu == kNotCharged ? result : ChargeFromPool(pointer, gpu, pool, 0, free);
}

// A pool may serve the allocation from memory that it has reserved before. Whether the pool has
// grown is known only after the call. So the whole size is reserved before the call, and pools are
// trimmed if the reservation exceeds the limit.
template <typename Allocate, typename Free>
Result AllocateFromPool(DevicePtr* pointer, uint64_t bytes, MemPool handle, LaunchStream stream,
                        Allocate allocate, Free free) {
  Process& process = Process::Get();
  const uint64_t reserved = RoundToBlocks(bytes);
  if (!process.IsLimiting() || pointer == nullptr || handle == nullptr || reserved == 0)
    return allocate();
  // The pool may belong to another GPU than the current context.
  int pool = process.pools().Find(handle);
  const int gpu = pool >= 0 ? process.pools().GpuOf(pool) : GpuWithPool(handle);
  if (gpu == kNotCharged) {
    if (pool < 0) (void)process.AddPool(handle, gpu);
    return allocate();
  }
  // A captured call adds a node to a graph, which allocates when it is launched (graph_memory.h).
  if (Throttle::Get().IsCaptured(stream)) return allocate();
  if (gpu == kUnknown) return AllocateFromForeignPool(pointer, handle, allocate, free);
  if (pool < 0) pool = process.AddPool(handle, gpu);
  if (pool < 0 || !process.Reserve(gpu, reserved)) return Result::kOutOfMemory;
  const Result result = allocate();
  if (result == Result::kSuccess) return ChargeFromPool(pointer, gpu, pool, reserved, free);
  process.memory_budget().Cancel(gpu, reserved);
  return result;
}

MemPool CurrentPool() {
  Device device = -1;
  MemPool pool = nullptr;
  if (driver.cuCtxGetDevice(&device) != Result::kSuccess) return nullptr;
  return driver.cuDeviceGetMemPool(&pool, device) == Result::kSuccess ? pool : nullptr;
}

template <typename Size>
Result GetMemInfo(Result (*driver_function)(Size*, Size*), Size* free, Size* total) {
  Size device_free = 0, device_total = 0;
  const Result result = driver_function(&device_free, &device_total);
  if (result != Result::kSuccess) return result;
  Process& process = Process::Get();
  const int gpu = process.CurrentContext().gpu;
  const uint64_t limit = process.LimitOf(gpu);
  if (limit != 0) {
    process.physical_pieces().EndChargesOfClosedExports();
    const uint64_t held = process.memory_budget().HeldBytesAfterSweep(gpu);
    const uint64_t room = held < limit ? limit - held : 0;
    if (room < device_free) device_free = Size(room);
    if (limit < device_total) device_total = Size(limit);
  }
  if (free != nullptr) *free = device_free;
  if (total != nullptr) *total = device_total;
  return Result::kSuccess;
}

template <typename Size>
Result GetTotalMem(Result (*driver_function)(Size*, Device), Size* bytes, Device device) {
  const Result result = driver_function(bytes, device);
  if (result != Result::kSuccess || bytes == nullptr) return result;
  Process& process = Process::Get();
  const uint64_t limit = process.LimitOf(process.GpuOf(device));
  if (limit != 0 && limit < *bytes) *bytes = Size(limit);
  return Result::kSuccess;
}

}  // namespace

LIMITER_EXPORT Result cuMemAlloc_v2(DevicePtr* pointer, size_t bytes) {
  return AllocateLinear(
      pointer, bytes, [&] { return driver.cuMemAlloc_v2(pointer, bytes); }, [&] { return bytes; });
}

LIMITER_EXPORT Result cuMemAllocManaged(DevicePtr* pointer, size_t bytes, unsigned flags) {
  return AllocateLinear(
      pointer, bytes, [&] { return driver.cuMemAllocManaged(pointer, bytes, flags); },
      [&] { return bytes; });
}

LIMITER_EXPORT Result cuMemAlloc(DevicePtrV1* pointer, unsigned bytes) {
  return AllocateLinear(
      pointer, bytes, [&] { return driver.cuMemAlloc(pointer, bytes); }, [&] { return bytes; });
}

LIMITER_EXPORT Result cuMemAllocPitch_v2(DevicePtr* pointer, size_t* pitch, size_t width,
                                         size_t height, unsigned element) {
  return AllocatePitched(pointer, pitch, width, height, [&] {
    return driver.cuMemAllocPitch_v2(pointer, pitch, width, height, element);
  });
}

LIMITER_EXPORT Result cuMemAllocPitch(DevicePtrV1* pointer, unsigned* pitch, unsigned width,
                                      unsigned height, unsigned element) {
  return AllocatePitched(pointer, pitch, width, height, [&] {
    return driver.cuMemAllocPitch(pointer, pitch, width, height, element);
  });
}

LIMITER_EXPORT Result cuMemFree(DevicePtrV1 pointer) {
  return Process::Get().Release(pointer, [&] { return driver.cuMemFree(pointer); });
}

LIMITER_EXPORT Result cuMemFree_v2(DevicePtr pointer) {
  return Process::Get().Release(pointer, [&] { return driver.cuMemFree_v2(pointer); });
}

LIMITER_EXPORT Result cuMemAllocAsync(DevicePtr* pointer, size_t bytes, Stream stream) {
  return AllocateFromPool(
      pointer, bytes, CurrentPool(), {.handle = stream},
      [&] { return driver.cuMemAllocAsync(pointer, bytes, stream); },
      [&](DevicePtr allocated) { return driver.cuMemFreeAsync(allocated, stream); });
}

LIMITER_EXPORT Result cuMemAllocAsync_ptsz(DevicePtr* pointer, size_t bytes, Stream stream) {
  return AllocateFromPool(
      pointer, bytes, CurrentPool(), {.handle = stream, .per_thread = true},
      [&] { return driver.cuMemAllocAsync_ptsz(pointer, bytes, stream); },
      [&](DevicePtr allocated) { return driver.cuMemFreeAsync_ptsz(allocated, stream); });
}

LIMITER_EXPORT Result cuMemAllocFromPoolAsync(DevicePtr* pointer, size_t bytes, MemPool pool,
                                              Stream stream) {
  return AllocateFromPool(
      pointer, bytes, pool, {.handle = stream},
      [&] { return driver.cuMemAllocFromPoolAsync(pointer, bytes, pool, stream); },
      [&](DevicePtr allocated) { return driver.cuMemFreeAsync(allocated, stream); });
}

LIMITER_EXPORT Result cuMemAllocFromPoolAsync_ptsz(DevicePtr* pointer, size_t bytes, MemPool pool,
                                                   Stream stream) {
  return AllocateFromPool(
      pointer, bytes, pool, {.handle = stream, .per_thread = true},
      [&] { return driver.cuMemAllocFromPoolAsync_ptsz(pointer, bytes, pool, stream); },
      [&](DevicePtr allocated) { return driver.cuMemFreeAsync_ptsz(allocated, stream); });
}

LIMITER_EXPORT Result cuMemFreeAsync(DevicePtr pointer, Stream stream) {
  return Process::Get().Release(pointer, [&] { return driver.cuMemFreeAsync(pointer, stream); });
}

LIMITER_EXPORT Result cuMemFreeAsync_ptsz(DevicePtr pointer, Stream stream) {
  return Process::Get().Release(pointer,
                                [&] { return driver.cuMemFreeAsync_ptsz(pointer, stream); });
}

LIMITER_EXPORT Result cuMemPoolCreate(MemPool* pool, const MemPoolProperties* properties) {
  const Result result = driver.cuMemPoolCreate(pool, properties);
  Process& process = Process::Get();
  if (result != Result::kSuccess || !process.IsLimiting()) return result;
  const bool is_on_device = properties->location.type == kLocationDevice;
  const int gpu = is_on_device ? process.GpuOf(properties->location.id) : kNotCharged;
  // If the limiter knows a pool with this handle, the driver has destroyed that pool.
  const int replaced = process.FindPool(*pool);
  if (replaced >= 0) process.pools().Remove(replaced, NextMoment(), &process.memory_budget());
  if (process.AddPool(*pool, gpu) >= 0 || gpu == kNotCharged) return result;
  driver.cuMemPoolDestroy(*pool);
  return Result::kOutOfMemory;
}

LIMITER_EXPORT Result cuMemPoolTrimTo(MemPool handle, size_t keep) {
  Process& process = Process::Get();
  const int pool = process.FindPool(handle);
  if (pool < 0) return driver.cuMemPoolTrimTo(handle, keep);
  return process.pools().Trim(pool, keep, &process.memory_budget());
}

LIMITER_EXPORT Result cuMemPoolDestroy(MemPool handle) {
  Process& process = Process::Get();
  // The moment precedes FindPool, because a new pool may get the index before Remove.
  const uint64_t call_moment = NextMoment();
  const int pool = process.FindPool(handle);
  const Result result = driver.cuMemPoolDestroy(handle);
  if (pool >= 0 && result == Result::kSuccess) {
    process.pools().Remove(pool, call_moment, &process.memory_budget());
  }
  return result;
}

LIMITER_EXPORT Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  return GetMemInfo(driver.cuMemGetInfo_v2, free, total);
}

// The driver clamps the values to 32 bits.
LIMITER_EXPORT Result cuMemGetInfo(unsigned* free, unsigned* total) {
  return GetMemInfo(driver.cuMemGetInfo, free, total);
}

LIMITER_EXPORT Result cuDeviceTotalMem_v2(size_t* bytes, Device device) {
  return GetTotalMem(driver.cuDeviceTotalMem_v2, bytes, device);
}

LIMITER_EXPORT Result cuDeviceTotalMem(unsigned* bytes, Device device) {
  return GetTotalMem(driver.cuDeviceTotalMem, bytes, device);
}

}  // namespace tessera::cuda
