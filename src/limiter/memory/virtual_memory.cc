// SPDX-License-Identifier: Apache-2.0
// The driver's virtual memory management: cuMemCreate, which creates a piece of memory without an
// address, and the functions that map, export and import pieces. Host memory, which cuMemCreate can
// create too, is not charged.
#include "src/limiter/loader/driver.h"
#include "src/limiter/memory/shared_handles.h"
#include "src/limiter/process/process.h"
#include "src/limiter/tables/blocks.h"
#include "src/limiter/tables/moment.h"

namespace tessera::cuda {
namespace {

using limiter::driver;
using limiter::kBlockBytes;
using limiter::PieceMark;
using limiter::Process;
using limiter::RoundToBlocks;

// Charges a piece of memory that the driver has imported. On an error, the caller releases the
// piece. No bytes are reserved for a piece that another process of the container holds, because
// such a piece does not count again. If that process releases the piece during this call, the piece
// does count, so the limit is checked afterwards.
Result ChargeImported(PhysicalMemory memory, const PieceMark& mark) {
  Process& process = Process::Get();
  PhysicalMemoryProperties properties = {};
  if (driver.cuMemGetAllocationPropertiesFromHandle(&properties, memory) != Result::kSuccess ||
      properties.location.type != kLocationDevice) {
    return Result::kSuccess;
  }
  const int gpu = process.GpuOf(properties.location.id);
  if (gpu < 0) return Result::kSuccess;
  const bool is_shared = mark.id != 0 && process.shared_pieces().HasOtherHolders(mark.id);
  const uint64_t reserved =
      is_shared || process.physical_pieces().IsChargedFor(mark.id) ? 0 : mark.bytes;
  uint64_t charge = 0;
  if (reserved != 0 && !process.Reserve(gpu, reserved)) return Result::kOutOfMemory;
  const bool added = process.physical_pieces().AddImported(memory, gpu, mark, &charge);
  if (added && charge != 0) process.shared_pieces().Join(mark.id, gpu, charge, charge);
  if (reserved != 0) process.memory_budget().Cancel(gpu, reserved);
  const uint64_t limit = process.LimitOf(gpu);
  if (!added || charge == 0 || reserved != 0 || limit == 0) {
    return added ? Result::kSuccess : Result::kOutOfMemory;
  }
  if (process.memory_budget().HeldBytesAfterSweep(gpu) <= limit) return Result::kSuccess;
  process.physical_pieces().Release(memory, limiter::kAfterAllMoments);
  process.Refuse(gpu, charge);
  return Result::kOutOfMemory;
}

}  // namespace

// The device is in the properties: programs may call this function without a current context.
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
  if (result == Result::kSuccess && !process.physical_pieces().Add(*memory, gpu, reserved)) {
    driver.cuMemRelease(*memory);
    result = Result::kOutOfMemory;
  }
  if (result != Result::kSuccess) process.memory_budget().Release(gpu, reserved);
  return result;
}

LIMITER_EXPORT Result cuMemRelease(PhysicalMemory memory) {
  Process& process = Process::Get();
  const uint64_t call_moment = limiter::NextMoment();
  const Result result = driver.cuMemRelease(memory);
  if (result == Result::kSuccess) process.physical_pieces().Release(memory, call_moment);
  return result;
}

LIMITER_EXPORT Result cuMemRetainAllocationHandle(PhysicalMemory* memory, void* address) {
  const Result result = driver.cuMemRetainAllocationHandle(memory, address);
  if (result == Result::kSuccess) Process::Get().physical_pieces().Retain(*memory);
  return result;
}

// An imported piece of unknown size is charged for the part that is mapped.
LIMITER_EXPORT Result cuMemMap(DevicePtr pointer, size_t bytes, size_t offset,
                               PhysicalMemory memory, unsigned long long flags) {
  Process& process = Process::Get();
  if (!process.IsLimiting()) return driver.cuMemMap(pointer, bytes, offset, memory, flags);
  int gpu = -1;
  const uint64_t reserved = process.physical_pieces().BytesToGrow(memory, offset + bytes, &gpu);
  if (reserved != 0 && !process.Reserve(gpu, reserved)) return Result::kOutOfMemory;
  Result result = driver.cuMemMap(pointer, bytes, offset, memory, flags);
  if (result == Result::kSuccess && !process.physical_pieces().Map(pointer, memory)) {
    driver.cuMemUnmap(pointer, bytes);
    result = Result::kOutOfMemory;
  }
  if (reserved != 0) {
    if (result == Result::kSuccess) {
      process.memory_budget().Add(gpu, process.physical_pieces().Grow(memory, offset + bytes));
    }
    process.memory_budget().Cancel(gpu, reserved);
  }
  return result;
}

// Retain and Release keep the piece in the table while the driver exports it.
LIMITER_EXPORT Result cuMemExportToShareableHandle(void* shared, PhysicalMemory memory,
                                                   unsigned handle_type, unsigned long long flags) {
  Process& process = Process::Get();
  if (!process.IsLimiting()) {
    return driver.cuMemExportToShareableHandle(shared, memory, handle_type, flags);
  }
  auto& pieces = process.physical_pieces();
  pieces.Retain(memory);
  const Result result = driver.cuMemExportToShareableHandle(shared, memory, handle_type, flags);
  if (result == Result::kSuccess) {
    pieces.AddExport(memory,
                     handle_type == kShareByFileDescriptor ? *static_cast<int*>(shared) : -1);
  }
  pieces.Release(memory, limiter::kAfterAllMoments);
  return result;
}

LIMITER_EXPORT Result cuMemImportFromShareableHandle(PhysicalMemory* memory, void* shared,
                                                     unsigned handle_type) {
  const Result imported = driver.cuMemImportFromShareableHandle(memory, shared, handle_type);
  if (imported != Result::kSuccess || !Process::Get().IsLimiting()) return imported;
  PieceMark mark;
  if (handle_type == kShareByFileDescriptor) {
    (void)limiter::FindMark(int(reinterpret_cast<intptr_t>(shared)), &mark);
  }
  const Result result = ChargeImported(*memory, mark);
  if (result != Result::kSuccess) driver.cuMemRelease(*memory);
  return result;
}

LIMITER_EXPORT Result cuMemUnmap(DevicePtr pointer, size_t bytes) {
  Process& process = Process::Get();
  const uint64_t call_moment = limiter::NextMoment();
  const Result result = driver.cuMemUnmap(pointer, bytes);
  if (result == Result::kSuccess)
    process.physical_pieces().Unmap(pointer, bytes, kBlockBytes, call_moment);
  return result;
}

}  // namespace tessera::cuda
