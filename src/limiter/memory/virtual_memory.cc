// SPDX-License-Identifier: Apache-2.0
// The driver's functions that create and map device memory separately from addresses. Host memory,
// which cuMemCreate can create too, and memory that another process has exported are not charged.
#include "src/limiter/loader/driver.h"
#include "src/limiter/process/process.h"
#include "src/limiter/tables/blocks.h"

namespace tessera::cuda {
namespace {

using limiter::driver;
using limiter::kBlockBytes;
using limiter::Process;
using limiter::RoundToBlocks;

}  // namespace

// The properties name the device: programs call this function without a context.
LIMITER_EXPORT Result cuMemCreate(PhysicalMemory* memory, size_t bytes,
                                  const PhysicalMemoryProperties* properties,
                                  unsigned long long flags) {
  Process& process = Process::Get();
  const auto create = [&] { return driver.cuMemCreate(memory, bytes, properties, flags); };
  const bool on_device = properties != nullptr && properties->location.type == kLocationDevice;
  const int gpu = on_device ? process.GpuOf(properties->location.id) : -1;
  const uint64_t reserved = RoundToBlocks(bytes);
  if (gpu < 0 || memory == nullptr || reserved == 0) return create();
  if (!process.Hold(gpu, reserved)) return Result::kOutOfMemory;
  Result result = create();
  if (result == Result::kSuccess && !process.physical().Add(*memory, gpu, reserved)) {
    driver.cuMemRelease(*memory);
    result = Result::kOutOfMemory;
  }
  if (result != Result::kSuccess) process.accounts().Release(gpu, reserved);
  return result;
}

LIMITER_EXPORT Result cuMemRelease(PhysicalMemory memory) {
  Process& process = Process::Get();
  const uint64_t moment = process.physical().Moment();
  const Result result = driver.cuMemRelease(memory);
  if (result == Result::kSuccess) process.physical().Release(memory, moment);
  return result;
}

LIMITER_EXPORT Result cuMemRetainAllocationHandle(PhysicalMemory* memory, void* address) {
  const Result result = driver.cuMemRetainAllocationHandle(memory, address);
  if (result == Result::kSuccess) Process::Get().physical().Retain(*memory);
  return result;
}

LIMITER_EXPORT Result cuMemMap(DevicePtr pointer, size_t bytes, size_t offset,
                               PhysicalMemory memory, unsigned long long flags) {
  const Result result = driver.cuMemMap(pointer, bytes, offset, memory, flags);
  if (result != Result::kSuccess || Process::Get().physical().Map(pointer, memory)) return result;
  driver.cuMemUnmap(pointer, bytes);
  return Result::kOutOfMemory;
}

LIMITER_EXPORT Result cuMemUnmap(DevicePtr pointer, size_t bytes) {
  Process& process = Process::Get();
  const uint64_t moment = process.physical().Moment();
  const Result result = driver.cuMemUnmap(pointer, bytes);
  if (result == Result::kSuccess) process.physical().Unmap(pointer, bytes, kBlockBytes, moment);
  return result;
}

}  // namespace tessera::cuda
