// SPDX-License-Identifier: Apache-2.0
// Device memory, host memory, pools, and attributes of pointers. Copies are in copy.cc.
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/loader/symbols.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kPitch = 512;
constexpr size_t kHostAlign = 4096;

// CUmemPool_attribute
constexpr int kReleaseThreshold = 4;
constexpr int kReservedCurrent = 5, kReservedHigh = 6, kUsedCurrent = 7, kUsedHigh = 8;

// CUpointer_attribute
constexpr int kPointerContext = 1, kPointerMemoryType = 2, kPointerDevice = 3, kPointerHost = 4,
              kPointerSyncMemops = 6, kPointerBufferId = 7, kPointerIsManaged = 8,
              kPointerOrdinal = 9, kPointerIsLegacyIpcCapable = 10, kPointerRangeStart = 11,
              kPointerRangeSize = 12, kPointerMapped = 13, kPointerHandleTypes = 14,
              kPointerIsRdmaCapable = 15, kPointerAccessFlags = 16, kPointerPool = 17,
              kPointerMappingSize = 18, kPointerMappingBase = 19, kPointerBlockId = 20,
              kPointerLast = kPointerBlockId;
constexpr int kInvalidOrdinal = -2;  // CU_DEVICE_INVALID

Result MemInfo(uint64_t* free, uint64_t* total) {
  CUDA_ENTER(ContextCall, call);
  call->EndClosedCharges();
  const uint32_t gpu = call->GpuOf(call.context()->device);
  const sim::GpuFacts& facts = call->FactsOf(call.context()->device);
  *total = facts.memory_bytes - facts.reserved_bytes;
  const uint64_t used = call->UsedBytes(gpu);
  *free = *total > used ? *total - used : 0;
  return Result::kSuccess;
}

Result Allocate(DevicePtr* pointer, size_t bytes, MemoryKind kind) {
  CUDA_ENTER(ContextCall, call);
  if (call->graphs().InvalidateByUnsafeCall()) return Result::kStreamCaptureUnsupported;
  if (pointer == nullptr) return Result::kInvalidValue;
  return call->Allocate(call.context(), bytes, kind, nullptr, pointer);
}

Result AllocateFromPool(ContextCall& call, DevicePtr* pointer, size_t bytes, MemPool pool,
                        Stream stream) {
  if (pointer == nullptr) return Result::kInvalidValue;
  StreamTag* queue = call->FindStream(call.context(), stream);
  if (queue == nullptr) return Result::kInvalidHandle;
  if (Capture* capture = call->graphs().CaptureOf(queue)) {
    if (bytes == 0) return Result::kInvalidValue;
    std::shared_ptr<GraphMemory> memory;
    const Result result = call->graph_pools().Create(pool->device, bytes, &memory);
    if (result != Result::kSuccess) return result;
    *pointer = memory->base;
    return call->graphs().AddMemory(capture, queue, GraphNodeType::kMemAlloc, std::move(memory));
  }
  const Result result = call->Allocate(call.context(), bytes, MemoryKind::kDevice, pool, pointer);
  if (result != Result::kSuccess) return result;
  // Memory that other streams freed may be used after these streams have reached the free.
  for (const TicketRef& end : pool->frees) {
    if (!end->reached && end->stream != queue) {
      call->engine().Push(queue, {.kind = Command::Kind::kWait, .ticket = end});
    }
  }
  return Result::kSuccess;
}

bool IsPool(Call& call, MemPool pool) {
  if (call->created_pools().contains(pool)) return true;
  for (int i = 0; i < call->device_count(); ++i) {
    if (pool == call->DefaultPoolOf(i)) return true;
  }
  return false;
}

Result HostAlloc(void** pointer, size_t bytes, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (call->graphs().InvalidateByUnsafeCall()) return Result::kStreamCaptureUnsupported;
  if (pointer == nullptr || bytes == 0) return Result::kInvalidValue;
  void* memory = nullptr;
  if (posix_memalign(&memory, kHostAlign, bytes) != 0) return Result::kOutOfMemory;
  call->AddHostMemory(call.context(), memory, bytes, /*registered=*/false, flags);
  *pointer = memory;
  return Result::kSuccess;
}

// Writes the value that an attribute has for an unknown pointer. False: no such attribute.
bool WriteDefaultPointerAttribute(int attribute, void* data) {
  switch (attribute) {
    case kPointerContext:
    case kPointerDevice:
    case kPointerHost:
    case kPointerBufferId:
    case kPointerRangeStart:
    case kPointerRangeSize:
    case kPointerHandleTypes:
    case kPointerPool:
    case kPointerMappingSize:
    case kPointerMappingBase:
    case kPointerBlockId:
      *static_cast<uint64_t*>(data) = 0;
      return true;
    case kPointerMemoryType:
    case kPointerSyncMemops:
    case kPointerAccessFlags:
      *static_cast<unsigned*>(data) = 0;
      return true;
    case kPointerIsManaged:
    case kPointerIsLegacyIpcCapable:
    case kPointerMapped:
    case kPointerIsRdmaCapable:
      *static_cast<bool*>(data) = false;
      return true;
    case kPointerOrdinal:
      *static_cast<int*>(data) = kInvalidOrdinal;
      return true;
    default:
      return false;
  }
}

// Writes an attribute of a pointer into `allocation`.
Result GetPointerAttribute(const Allocation& allocation, int attribute, DevicePtr pointer,
                           void* data) {
  const bool host =
      allocation.kind == MemoryKind::kHost || allocation.kind == MemoryKind::kRegistered;
  switch (attribute) {
    case kPointerContext:
      *static_cast<ContextTag**>(data) = allocation.context;
      break;
    case kPointerMemoryType:
      *static_cast<MemoryType*>(data) = host ? MemoryType::kHost : MemoryType::kDevice;
      break;
    case kPointerDevice:
      *static_cast<DevicePtr*>(data) = pointer;
      break;
    case kPointerHost:
      if (!host && allocation.kind != MemoryKind::kManaged) return Result::kInvalidValue;
      *static_cast<void**>(data) = reinterpret_cast<void*>(pointer);
      break;
    case kPointerSyncMemops:
      *static_cast<int*>(data) = 0;
      break;
    case kPointerBufferId:
      *static_cast<unsigned long long*>(data) = allocation.base;
      break;
    case kPointerIsManaged:
      *static_cast<bool*>(data) = allocation.kind == MemoryKind::kManaged;
      break;
    case kPointerOrdinal:
      *static_cast<int*>(data) = allocation.pool != nullptr      ? allocation.pool->device
                                 : allocation.context != nullptr ? allocation.context->device
                                                                 : allocation.device;
      break;
    case kPointerRangeStart:
      *static_cast<DevicePtr*>(data) = allocation.base;
      break;
    case kPointerRangeSize:
      *static_cast<size_t*>(data) = allocation.size;
      break;
    case kPointerMapped:
      *static_cast<bool*>(data) = true;
      break;
    default:
      return Result::kNotSupported;
  }
  return Result::kSuccess;
}

}  // namespace

CUDA_EXPORT Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  uint64_t free_bytes = 0, total_bytes = 0;
  const Result result = MemInfo(&free_bytes, &total_bytes);
  if (result != Result::kSuccess) return result;
  PutIf(free, free_bytes);
  PutIf(total, total_bytes);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemGetInfo(unsigned* free, unsigned* total) {
  uint64_t free_bytes = 0, total_bytes = 0;
  const Result result = MemInfo(&free_bytes, &total_bytes);
  if (result != Result::kSuccess) return result;
  PutIf(free, std::min<uint64_t>(free_bytes, UINT32_MAX));
  PutIf(total, std::min<uint64_t>(total_bytes, UINT32_MAX));
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemAlloc_v2(DevicePtr* pointer, size_t bytes) {
  return Allocate(pointer, bytes, MemoryKind::kDevice);
}

CUDA_EXPORT Result cuMemAllocManaged(DevicePtr* pointer, size_t bytes, unsigned flags) {
  if (flags != 1 && flags != 2) return Result::kInvalidValue;
  return Allocate(pointer, bytes, MemoryKind::kManaged);
}

CUDA_EXPORT Result cuMemAllocPitch_v2(DevicePtr* pointer, size_t* pitch, size_t width,
                                      size_t height, unsigned element) {
  if (pitch == nullptr || width == 0 || height == 0) return Result::kInvalidValue;
  if (element != 4 && element != 8 && element != 16) return Result::kInvalidValue;
  const uint64_t row = RoundUp(width, kPitch);
  if (row < width || height > UINT64_MAX / row) return Result::kInvalidValue;
  const Result result = Allocate(pointer, row * height, MemoryKind::kDevice);
  if (result == Result::kSuccess) *pitch = row;
  return result;
}

CUDA_EXPORT Result cuMemFree_v2(DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  if (call->graphs().InvalidateByUnsafeCall()) return Result::kStreamCaptureUnsupported;
  if (pointer == 0) return Result::kSuccess;
  // Like the real driver, waits for running commands, which may use the memory.
  const Result waited = call.Wait(call.context());
  return waited == Result::kSuccess ? call->Free(pointer) : waited;
}

CUDA_EXPORT Result cuMemGetAddressRange_v2(DevicePtr* base, size_t* size, DevicePtr pointer) {
  CUDA_ENTER(ContextCall, call);
  const Allocation* allocation = call->FindAllocation(pointer);
  if (allocation == nullptr) return Result::kNotFound;
  PutIf(base, allocation->base);
  PutIf(size, allocation->size);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemAllocAsync(DevicePtr* pointer, size_t bytes, Stream stream) {
  CUDA_ENTER(ContextCall, call);
  return AllocateFromPool(call, pointer, bytes, call->PoolOf(call.context()->device), stream);
}
CUDA_PER_THREAD(cuMemAllocAsync_ptsz, cuMemAllocAsync, 3)

CUDA_EXPORT Result cuMemAllocFromPoolAsync(DevicePtr* pointer, size_t bytes, MemPool pool,
                                           Stream stream) {
  CUDA_ENTER(ContextCall, call);
  if (!IsPool(call, pool) || pool->imported) return Result::kInvalidValue;
  return AllocateFromPool(call, pointer, bytes, pool, stream);
}
CUDA_PER_THREAD(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, 4)

CUDA_EXPORT Result cuMemFreeAsync(DevicePtr pointer, Stream stream) {
  CUDA_ENTER(ContextCall, call);
  StreamTag* queue = call->FindStream(call.context(), stream);
  if (queue == nullptr) return Result::kInvalidHandle;
  if (pointer == 0) return Result::kInvalidValue;
  if (Capture* capture = call->graphs().CaptureOf(queue)) {
    std::shared_ptr<GraphMemory> memory = call->graph_pools().Find(pointer);
    if (memory == nullptr) return Result::kInvalidValue;
    return call->graphs().AddMemory(capture, queue, GraphNodeType::kMemFree, std::move(memory));
  }
  const Allocation* allocation = call->FindAllocation(pointer);
  if (allocation != nullptr && allocation->pool != nullptr && !queue->queue.idle()) {
    std::vector<TicketRef>& frees = allocation->pool->frees;
    std::erase_if(frees, [](const TicketRef& end) { return end->reached; });
    frees.push_back(call->engine().EndTicket(queue));
  }
  return call->Free(pointer);
}
CUDA_PER_THREAD(cuMemFreeAsync_ptsz, cuMemFreeAsync, 2)

CUDA_EXPORT Result cuMemPoolCreate(MemPool* pool, const MemPoolProperties* properties) {
  CUDA_ENTER(Call, call);
  if (pool == nullptr || properties == nullptr) return Result::kInvalidValue;
  // Pools of host memory are not implemented.
  if (properties->location.type != kLocationDevice)
    return Result(ReportUnimplemented("cuMemPoolCreate"));
  if (!call->IsDevice(properties->location.id)) return Result::kInvalidDevice;
  if ((properties->handle_types & ~kShareByFileDescriptor) != 0) return Result::kNotSupported;
  auto* created = new MemPoolTag();
  created->device = properties->location.id;
  created->max_size = properties->max_size;
  created->handle_types = properties->handle_types;
  call->created_pools().insert(created);
  *pool = created;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemPoolDestroy(MemPool pool) {
  CUDA_ENTER(Call, call);
  if (!call->created_pools().contains(pool)) return Result::kInvalidValue;
  // The real driver keeps memory in use beyond the end of its pool; the simulation does not
  // implement this. `used` does not count pointers imported into the pool.
  const bool has_imports = std::ranges::any_of(call->imports(), [&](const auto& item) {
    return call->allocations()[item.first].pool == pool;
  });
  if (pool->used != 0 || has_imports) return Result::kNotSupported;
  if (call->PoolOf(pool->device) == pool) {
    call->SetPool(pool->device, call->DefaultPoolOf(pool->device));
  }
  call->Trim(pool, 0);
  call->created_pools().erase(pool);
  delete pool;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemPoolTrimTo(MemPool pool, size_t keep) {
  CUDA_ENTER(Call, call);
  if (!IsPool(call, pool)) return Result::kInvalidValue;
  call->Trim(pool, keep);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemPoolGetAttribute(MemPool pool, int attribute, void* value) {
  CUDA_ENTER(Call, call);
  if (!IsPool(call, pool) || value == nullptr) return Result::kInvalidValue;
  auto* number = static_cast<uint64_t*>(value);
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      return Put(static_cast<int*>(value), 1);
    case kReleaseThreshold:
      return Put(number, pool->release_threshold);
    case kReservedCurrent:
      return Put(number, pool->reserved);
    case kReservedHigh:
      return Put(number, pool->reserved_high);
    case kUsedCurrent:
      return Put(number, pool->used);
    case kUsedHigh:
      return Put(number, pool->used_high);
    default:
      return Result::kInvalidValue;
  }
}

CUDA_EXPORT Result cuMemPoolSetAttribute(MemPool pool, int attribute, void* value) {
  CUDA_ENTER(Call, call);
  if (!IsPool(call, pool) || value == nullptr) return Result::kInvalidValue;
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      return Result::kSuccess;  // the rules of reuse are hints, which the simulation ignores
    case kReleaseThreshold:
      pool->release_threshold = *static_cast<uint64_t*>(value);
      return Result::kSuccess;
    case kReservedHigh:
      pool->reserved_high = pool->reserved;
      return Result::kSuccess;
    case kUsedHigh:
      pool->used_high = pool->used;
      return Result::kSuccess;
    default:
      return Result::kInvalidValue;
  }
}

// The device of a pool always has read and write access.
CUDA_EXPORT Result cuMemPoolSetAccess(MemPool pool, const MemAccess* access, size_t count) {
  CUDA_ENTER(Call, call);
  if (!IsPool(call, pool) || access == nullptr || count == 0) return Result::kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    const auto& [location, flags] = access[i];
    if (location.type != kLocationDevice) return Result::kInvalidValue;
    if (!call->IsDevice(location.id)) return Result::kInvalidDevice;
    const bool known = flags == kAccessNone || flags == kAccessRead || flags == kAccessReadWrite;
    if (!known || (location.id == pool->device && flags != kAccessReadWrite)) {
      return Result::kInvalidValue;
    }
  }
  for (size_t i = 0; i < count; ++i) pool->access[access[i].location.id] = access[i].flags;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemPoolGetAccess(unsigned* flags, MemPool pool, const MemLocation* location) {
  CUDA_ENTER(Call, call);
  if (!IsPool(call, pool) || location == nullptr || location->type != kLocationDevice) {
    return Result::kInvalidValue;
  }
  if (!call->IsDevice(location->id)) return Result::kInvalidDevice;
  const auto set = pool->access.find(location->id);
  if (set != pool->access.end()) return Put(flags, set->second);
  return Put(flags, location->id == pool->device ? kAccessReadWrite : kAccessNone);
}

CUDA_EXPORT Result cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return HostAlloc(pointer, bytes, flags);
}
CUDA_EXPORT Result cuMemAllocHost_v2(void** pointer, size_t bytes) {
  return HostAlloc(pointer, bytes, 0);
}

CUDA_EXPORT Result cuMemFreeHost(void* pointer) {
  CUDA_ENTER(ContextCall, call);
  if (call->graphs().InvalidateByUnsafeCall()) return Result::kStreamCaptureUnsupported;
  return call->RemoveHostMemory(pointer, /*registered=*/false) ? Result::kSuccess
                                                               : Result::kInvalidValue;
}

CUDA_EXPORT Result cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (pointer == nullptr || bytes == 0) return Result::kInvalidValue;
  if (call->FindAllocation(reinterpret_cast<DevicePtr>(pointer)) != nullptr) {
    return Result::kHostMemoryAlreadyRegistered;
  }
  call->AddHostMemory(call.context(), pointer, bytes, /*registered=*/true, flags);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemHostUnregister(void* pointer) {
  CUDA_ENTER(ContextCall, call);
  return call->RemoveHostMemory(pointer, /*registered=*/true) ? Result::kSuccess
                                                              : Result::kHostMemoryNotRegistered;
}

CUDA_EXPORT Result cuMemHostGetDevicePointer_v2(DevicePtr* device, void* pointer, unsigned) {
  CUDA_ENTER(ContextCall, call);
  const auto address = reinterpret_cast<DevicePtr>(pointer);
  if (call->FindAllocation(address) == nullptr) return Result::kInvalidValue;
  return Put(device, address);
}

CUDA_EXPORT Result cuMemHostGetFlags(unsigned* flags, void* pointer) {
  CUDA_ENTER(ContextCall, call);
  const Allocation* allocation = call->FindAllocation(reinterpret_cast<DevicePtr>(pointer));
  return allocation == nullptr ? Result::kInvalidValue : Put(flags, allocation->flags);
}

CUDA_EXPORT Result cuPointerGetAttribute(void* data, int attribute, DevicePtr pointer) {
  CUDA_ENTER(Call, call);
  if (data == nullptr || attribute < 1 || attribute > kPointerLast) return Result::kInvalidValue;
  const Allocation* allocation = call->FindAllocation(pointer);
  return allocation == nullptr ? Result::kInvalidValue
                               : GetPointerAttribute(*allocation, attribute, pointer, data);
}

// An attribute that `pointer` does not have gets its default value, and the call succeeds.
CUDA_EXPORT Result cuPointerGetAttributes(unsigned count, int* attributes, void** data,
                                          DevicePtr pointer) {
  CUDA_ENTER(Call, call);
  if (count == 0 || attributes == nullptr || data == nullptr) return Result::kInvalidValue;
  const Allocation* allocation = call->FindAllocation(pointer);
  for (unsigned i = 0; i < count; ++i) {
    if (data[i] == nullptr || !WriteDefaultPointerAttribute(attributes[i], data[i])) {
      return Result::kInvalidValue;
    }
    if (allocation != nullptr) {
      (void)GetPointerAttribute(*allocation, attributes[i], pointer, data[i]);
    }
  }
  return Result::kSuccess;
}

}  // namespace tessera::cuda
