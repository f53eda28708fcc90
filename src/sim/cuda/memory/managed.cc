// SPDX-License-Identifier: Apache-2.0
// Advice about managed memory. It only changes the attributes that programs read: the memory has
// one copy, which host and devices access at the same address.
#include <string.h>

#include <algorithm>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr int kHost = ManagedAdvice::kHost, kNone = ManagedAdvice::kNone;

// CUmem_advise
constexpr int kSetReadMostly = 1, kUnsetReadMostly = 2, kSetPreferred = 3, kUnsetPreferred = 4,
              kSetAccessedBy = 5, kUnsetAccessedBy = 6;
// CUmem_range_attribute
constexpr int kReadMostly = 1, kPreferred = 2, kAccessedBy = 3, kLastPrefetch = 4,
              kPreferredType = 5, kPreferredId = 6, kLastPrefetchType = 7, kLastPrefetchId = 8;
constexpr unsigned kAttachFlags = 7;  // CUmemAttach_flags: global, host or single

// The managed memory that contains the whole range, or null.
Allocation* FindManaged(Call& call, DevicePtr pointer, uint64_t bytes) {
  Allocation* found = call->FindAllocation(pointer, bytes);
  return found != nullptr && found->kind == MemoryKind::kManaged ? found : nullptr;
}

// Converts a location to the number that older functions take: a device, or kHost.
Result ToDevice(Call& call, const MemLocation& location, Device* device) {
  if (location.type == kLocationDevice) {
    *device = location.id;
    return call->IsDevice(location.id) ? Result::kSuccess : Result::kInvalidDevice;
  }
  *device = kHost;
  const bool host = location.type >= kLocationHost && location.type <= kLocationHostNumaCurrent;
  return host ? Result::kSuccess : Result::kInvalidValue;
}

MemLocation ToLocation(Device device) {
  if (device == kNone) return {.type = 0, .id = 0};
  return device == kHost ? MemLocation{.type = kLocationHost, .id = 0}
                         : MemLocation{.type = kLocationDevice, .id = device};
}

Result Prefetch(DevicePtr pointer, size_t bytes, const MemLocation& location, Stream stream) {
  CUDA_ENTER(StreamCall, call, stream);
  Allocation* managed = FindManaged(call, pointer, bytes);
  if (managed == nullptr) return Result::kInvalidValue;
  Device device = kNone;
  const Result result = ToDevice(call, location, &device);
  if (result == Result::kSuccess) managed->advice.prefetched = device;
  return result;
}

Result Advise(DevicePtr pointer, size_t bytes, int advice, const MemLocation& location) {
  CUDA_ENTER(ContextCall, call);
  Allocation* managed = FindManaged(call, pointer, bytes);
  if (managed == nullptr) return Result::kInvalidValue;
  // Only preferred location and accessed-by use the location.
  Device device = kNone;
  const bool has_location = advice >= kSetPreferred && advice != kUnsetPreferred;
  const Result result = has_location ? ToDevice(call, location, &device) : Result::kSuccess;
  if (result != Result::kSuccess) return result;
  ManagedAdvice& stored = managed->advice;
  switch (advice) {
    case kSetReadMostly:
    case kUnsetReadMostly:
      stored.read_mostly = advice == kSetReadMostly;
      return Result::kSuccess;
    case kSetPreferred:
    case kUnsetPreferred:
      stored.preferred = device;
      return Result::kSuccess;
    case kSetAccessedBy:
      stored.accessed_by.insert(device);
      return Result::kSuccess;
    case kUnsetAccessedBy:
      stored.accessed_by.erase(device);
      return Result::kSuccess;
    default:
      return Result::kInvalidValue;
  }
}

// Writes the locations, and kNone to the rest of the array.
Result ListLocations(const std::set<int>& locations, int* data, size_t bytes) {
  if (bytes == 0 || bytes % sizeof(int) != 0) return Result::kInvalidValue;
  std::fill_n(data, bytes / sizeof(int), kNone);
  std::copy_n(locations.begin(), std::min(locations.size(), bytes / sizeof(int)), data);
  return Result::kSuccess;
}

Result Describe(const ManagedAdvice& advice, int attribute, void* data, size_t bytes) {
  int* const number = static_cast<int*>(data);
  if (attribute == kAccessedBy) return ListLocations(advice.accessed_by, number, bytes);
  if (bytes != sizeof(int)) return Result::kInvalidValue;
  switch (attribute) {
    case kReadMostly:
      return Put(number, advice.read_mostly);
    case kPreferred:
      return Put(number, advice.preferred);
    case kLastPrefetch:
      return Put(number, advice.prefetched);
    case kPreferredType:
      return Put(number, ToLocation(advice.preferred).type);
    case kPreferredId:
      return Put(number, ToLocation(advice.preferred).id);
    case kLastPrefetchType:
      return Put(number, ToLocation(advice.prefetched).type);
    case kLastPrefetchId:
      return Put(number, ToLocation(advice.prefetched).id);
    default:
      return Result::kInvalidValue;
  }
}

}  // namespace

CUDA_EXPORT Result cuMemPrefetchAsync(DevicePtr pointer, size_t bytes, Device device,
                                      Stream stream) {
  return Prefetch(pointer, bytes, ToLocation(device), stream);
}
CUDA_PER_THREAD(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync, 4)
CUDA_EXPORT Result cuMemPrefetchAsync_v2(DevicePtr pointer, size_t bytes, MemLocation location,
                                         unsigned flags, Stream stream) {
  return flags != 0 ? Result::kInvalidValue : Prefetch(pointer, bytes, location, stream);
}
CUDA_PER_THREAD(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2, 5)

CUDA_EXPORT Result cuMemAdvise(DevicePtr pointer, size_t bytes, int advice, Device device) {
  return Advise(pointer, bytes, advice, ToLocation(device));
}
CUDA_EXPORT Result cuMemAdvise_v2(DevicePtr pointer, size_t bytes, int advice,
                                  MemLocation location) {
  return Advise(pointer, bytes, advice, location);
}

CUDA_EXPORT Result cuMemRangeGetAttribute(void* data, size_t data_bytes, int attribute,
                                          DevicePtr pointer, size_t bytes) {
  CUDA_ENTER(ContextCall, call);
  const Allocation* managed = FindManaged(call, pointer, bytes);
  if (data == nullptr || managed == nullptr) return Result::kInvalidValue;
  return Describe(managed->advice, attribute, data, data_bytes);
}

CUDA_EXPORT Result cuMemRangeGetAttributes(void** data, size_t* data_bytes, int* attributes,
                                           size_t count, DevicePtr pointer, size_t bytes) {
  if (data == nullptr || data_bytes == nullptr || attributes == nullptr || count == 0) {
    return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    const Result result =
        cuMemRangeGetAttribute(data[i], data_bytes[i], attributes[i], pointer, bytes);
    if (result != Result::kSuccess) return result;
  }
  return Result::kSuccess;
}

// The simulation does not check which stream or host touches the memory.
CUDA_EXPORT Result cuStreamAttachMemAsync(Stream stream, DevicePtr pointer, size_t bytes,
                                          unsigned flags) {
  CUDA_ENTER(StreamCall, call, stream);
  const bool one_flag = flags != 0 && (flags & (flags - 1)) == 0 && (flags & ~kAttachFlags) == 0;
  const Allocation* managed = FindManaged(call, pointer, 1);
  // Only a whole allocation can be attached; 0 bytes mean the whole allocation.
  const bool whole =
      managed != nullptr && managed->base == pointer && (bytes == 0 || bytes == managed->size);
  return one_flag && whole ? Result::kSuccess : Result::kInvalidValue;
}
CUDA_PER_THREAD(cuStreamAttachMemAsync_ptsz, cuStreamAttachMemAsync, 4)

}  // namespace tessera::cuda
