// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: programs reserve addresses, create memory, and map memory at
// addresses. The memory is a memfd, which several mappings and processes can share.
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kPinned = 1;

bool IsWholeBlocks(uint64_t bytes) { return bytes != 0 && bytes % kBlockBytes == 0; }

Result CheckProperties(Call& call, const PhysicalMemoryProperties* properties) {
  if (properties == nullptr || properties->type != kPinned) return Result::kInvalidValue;
  const MemLocation& location = properties->location;
  if (location.type < kLocationDevice || location.type > kLocationHostNumaCurrent) {
    return Result::kInvalidValue;
  }
  const bool valid = location.type != kLocationDevice || call->IsDevice(location.id);
  return valid ? Result::kSuccess : Result::kInvalidDevice;
}

int NewMemory(uint64_t bytes) {
  const int fd = int(syscall(SYS_memfd_create, "simgpu", MFD_CLOEXEC));
  if (fd >= 0 && ftruncate(fd, off_t(bytes)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Reserves addresses. With MAP_FIXED, replaces the mappings in the range.
void* Reserve(void* wanted, uint64_t bytes, int flags) {
  return mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

// Frees memory without a handle and without a mapping.
void EndIfUnused(Call& call, PhysicalMemory memory) {
  auto found = call->physical().find(memory);
  const PhysicalAllocation physical = found->second;
  if (physical.handles != 0 || physical.mappings != 0) return;
  call->physical().erase(found);
  if (physical.charged) call->slot().Uncharge(physical.gpu, physical.bytes);
  if (physical.shared_inode == 0) {
    close(physical.fd);
    return;
  }
  call->EndSharedCharge(physical);
  call->EndClosedCharges();
}

// An exported descriptor holds a lock on one byte of the memfd. The position of the byte is the
// index of the GPU that has the memory, or kHostByte. The kernel keeps the lock until all processes
// have closed all copies of the descriptor.
constexpr uint32_t kHostByte = sim::kMaxGpus;

// Opens the memfd again, because a file description does not see its own locks (F_OFD_GETLK in
// fcntl(2)).
int Reopen(int fd) {
  return open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC);
}

bool LockByte(int fd, uint32_t byte) {
  struct flock lock = {};
  lock.l_type = F_RDLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = off_t(byte);
  lock.l_len = 1;
  return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

// The byte that exported descriptors have locked; -1: no exported descriptor is open.
int LockedByte(int fd) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = 0;
  lock.l_len = kHostByte + 1;
  if (fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return -1;
  return int(lock.l_start);
}

// Opens exported memory and charges it, unless it is already charged to a live process.
Result Import(Call& call, int exported_fd, PhysicalAllocation* physical) {
  struct stat info;
  const int fd = Reopen(exported_fd);
  const int byte = fd < 0 ? -1 : LockedByte(fd);
  Result result = Result::kInvalidValue;
  if (byte >= 0 && fstat(fd, &info) == 0 && IsWholeBlocks(uint64_t(info.st_size))) {
    *physical = {.bytes = uint64_t(info.st_size), .fd = fd};
    physical->properties = {.type = kPinned, .handle_types = kShareByFileDescriptor};
    physical->properties.location = {.type = kLocationHost, .id = 0};
    if (uint32_t(byte) == kHostByte) return Result::kSuccess;
    result = Result::kInvalidDevice;
    for (Device device = 0; device < call->device_count(); ++device) {
      if (call->GpuOf(device) != uint32_t(byte)) continue;
      physical->properties.location = {.type = kLocationDevice, .id = device};
      physical->gpu = uint32_t(byte);
      physical->shared_inode = info.st_ino;
      const bool fits =
          call->slot().Share(physical->gpu, info.st_ino, physical->bytes, /*charged=*/false) == 0;
      if (fits) return Result::kSuccess;
      result = Result::kOutOfMemory;
    }
  }
  if (fd >= 0) close(fd);
  return result;
}

PhysicalMemory Add(Call& call, PhysicalAllocation physical) {
  const PhysicalMemory memory = call->NextId();
  call->physical().emplace(memory, physical);
  return memory;
}

bool IsReserved(Call& call, DevicePtr pointer, uint64_t bytes) {
  auto after = call->reservations().upper_bound(pointer);
  if (after == call->reservations().begin()) return false;
  const auto& [base, size] = *std::prev(after);
  return pointer - base <= size && bytes <= size - (pointer - base);
}

// The mappings in the range. Empty: the mappings do not cover exactly the range.
std::vector<Allocation*> MappingsIn(Call& call, DevicePtr pointer, uint64_t bytes) {
  std::vector<Allocation*> mappings;
  DevicePtr at = pointer;
  while (at < pointer + bytes) {
    auto found = call->allocations().find(at);
    if (found == call->allocations().end() || found->second.physical == 0) return {};
    mappings.push_back(&found->second);
    at += found->second.size;
  }
  if (at != pointer + bytes) return {};
  return mappings;
}

int ProtectionOf(unsigned access) {
  if (access == kAccessNone) return PROT_NONE;
  return access == kAccessRead ? PROT_READ : PROT_READ | PROT_WRITE;
}

}  // namespace

CUDA_EXPORT Result cuMemGetAllocationGranularity(size_t* bytes,
                                                 const PhysicalMemoryProperties* properties,
                                                 unsigned) {
  CUDA_ENTER(Call, call);
  const Result result = CheckProperties(call, properties);
  return result == Result::kSuccess ? Put(bytes, kBlockBytes) : result;
}

CUDA_EXPORT Result cuMemAddressReserve(DevicePtr* pointer, size_t bytes, size_t alignment,
                                       DevicePtr wanted, unsigned long long flags) {
  CUDA_ENTER(Call, call);
  if (pointer == nullptr || flags != 0 || !IsWholeBlocks(bytes)) return Result::kInvalidValue;
  if (alignment == 0) alignment = kBlockBytes;
  if ((alignment & (alignment - 1)) != 0) return Result::kInvalidValue;
  if (alignment < kBlockBytes) alignment = kBlockBytes;
  if (bytes > UINT64_MAX - alignment) return Result::kOutOfMemory;
  void* memory = Reserve(reinterpret_cast<void*>(wanted), bytes + alignment, 0);
  if (memory == MAP_FAILED) return Result::kOutOfMemory;
  const auto begin = reinterpret_cast<DevicePtr>(memory);
  const DevicePtr base = RoundUp(begin, alignment);
  if (base > begin) munmap(memory, base - begin);
  munmap(reinterpret_cast<void*>(base + bytes), begin + alignment - base);
  call->reservations()[base] = bytes;
  *pointer = base;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemAddressFree(DevicePtr pointer, size_t bytes) {
  CUDA_ENTER(Call, call);
  auto found = call->reservations().find(pointer);
  if (found == call->reservations().end() || found->second != bytes) return Result::kInvalidValue;
  auto mapping = call->allocations().lower_bound(pointer);
  if (mapping != call->allocations().end() && mapping->first < pointer + bytes) {
    return Result::kInvalidValue;  // the range still has a mapping
  }
  munmap(reinterpret_cast<void*>(pointer), bytes);
  call->reservations().erase(found);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemCreate(PhysicalMemory* memory, size_t bytes,
                               const PhysicalMemoryProperties* properties,
                               unsigned long long flags) {
  CUDA_ENTER(Call, call);
  call->EndClosedCharges();
  const Result result = CheckProperties(call, properties);
  if (result != Result::kSuccess) return result;
  if (memory == nullptr || flags != 0 || !IsWholeBlocks(bytes)) return Result::kInvalidValue;
  if ((properties->handle_types & ~kShareByFileDescriptor) != 0) return Result::kNotSupported;
  PhysicalAllocation physical{.properties = *properties, .bytes = bytes};
  physical.charged = properties->location.type == kLocationDevice;
  if (physical.charged) physical.gpu = call->GpuOf(properties->location.id);
  if (physical.charged && call->slot().Charge(physical.gpu, bytes) != 0) {
    return Result::kOutOfMemory;
  }
  physical.fd = NewMemory(bytes);
  if (physical.fd < 0) {
    if (physical.charged) call->slot().Uncharge(physical.gpu, bytes);
    return Result::kOutOfMemory;
  }
  *memory = Add(call, physical);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemRelease(PhysicalMemory memory) {
  CUDA_ENTER(Call, call);
  auto found = call->physical().find(memory);
  if (found == call->physical().end() || found->second.handles == 0) return Result::kInvalidValue;
  --found->second.handles;
  EndIfUnused(call, memory);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemRetainAllocationHandle(PhysicalMemory* memory, void* pointer) {
  CUDA_ENTER(Call, call);
  auto after = call->allocations().upper_bound(reinterpret_cast<DevicePtr>(pointer));
  if (memory == nullptr || after == call->allocations().begin()) return Result::kInvalidValue;
  const Allocation& allocation = std::prev(after)->second;
  const bool inside = reinterpret_cast<DevicePtr>(pointer) - allocation.base < allocation.size;
  if (!inside || allocation.physical == 0) return Result::kInvalidValue;
  ++call->physical()[allocation.physical].handles;
  *memory = allocation.physical;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemMap(DevicePtr pointer, size_t bytes, size_t offset, PhysicalMemory memory,
                            unsigned long long flags) {
  CUDA_ENTER(Call, call);
  auto found = call->physical().find(memory);
  if (found == call->physical().end() || found->second.handles == 0) return Result::kInvalidValue;
  PhysicalAllocation& physical = found->second;
  if (flags != 0 || !IsWholeBlocks(bytes) || offset % kBlockBytes != 0 ||
      pointer % kBlockBytes != 0 || offset > physical.bytes || bytes > physical.bytes - offset ||
      !IsReserved(call, pointer, bytes)) {
    return Result::kInvalidValue;
  }
  auto next = call->allocations().lower_bound(pointer);
  if (next != call->allocations().end() && next->first < pointer + bytes) {
    return Result::kInvalidValue;  // the range has a mapping
  }
  if (mmap(reinterpret_cast<void*>(pointer), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical.fd,
           off_t(offset)) == MAP_FAILED) {
    return Result::kOutOfMemory;
  }
  Allocation mapping;
  mapping.base = pointer;
  mapping.size = bytes;
  mapping.physical = memory;
  mapping.device = physical.properties.location.id;
  mapping.access = kAccessNone;
  call->allocations()[pointer] = mapping;
  ++physical.mappings;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemUnmap(DevicePtr pointer, size_t bytes) {
  CUDA_ENTER(Call, call);
  if (MappingsIn(call, pointer, bytes).empty()) return Result::kInvalidValue;
  // No running command may lose its memory. Meanwhile, other threads may unmap the range.
  call.WaitForAll();
  const std::vector<Allocation*> mappings = MappingsIn(call, pointer, bytes);
  if (mappings.empty()) return Result::kInvalidValue;
  (void)Reserve(reinterpret_cast<void*>(pointer), bytes, MAP_FIXED);
  for (Allocation* mapping : mappings) {
    const PhysicalMemory memory = mapping->physical;
    call->allocations().erase(mapping->base);
    --call->physical()[memory].mappings;
    EndIfUnused(call, memory);
  }
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemSetAccess(DevicePtr pointer, size_t bytes, const MemAccess* access,
                                  size_t count) {
  CUDA_ENTER(Call, call);
  const std::vector<Allocation*> mappings = MappingsIn(call, pointer, bytes);
  if (mappings.empty() || access == nullptr || count == 0) return Result::kInvalidValue;
  // The widest access applies, because all devices share one address space here.
  unsigned widest = kAccessNone;
  for (size_t i = 0; i < count; ++i) {
    const unsigned flags = access[i].flags;
    if (flags != kAccessNone && flags != kAccessRead && flags != kAccessReadWrite) {
      return Result::kInvalidValue;
    }
    if (access[i].location.type == kLocationDevice && !call->IsDevice(access[i].location.id)) {
      return Result::kInvalidDevice;
    }
    widest = std::max(widest, flags);
  }
  for (Allocation* mapping : mappings) mapping->access = widest;
  (void)mprotect(reinterpret_cast<void*>(pointer), bytes, ProtectionOf(widest));
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemGetAccess(unsigned long long* flags, const MemLocation* location,
                                  DevicePtr pointer) {
  CUDA_ENTER(Call, call);
  auto after = call->allocations().upper_bound(pointer);
  if (location == nullptr || after == call->allocations().begin()) return Result::kInvalidValue;
  const Allocation& mapping = std::prev(after)->second;
  const bool inside = pointer - mapping.base < mapping.size && mapping.physical != 0;
  return inside ? Put(flags, mapping.access) : Result::kInvalidValue;
}

CUDA_EXPORT Result cuMemGetAllocationPropertiesFromHandle(PhysicalMemoryProperties* properties,
                                                          PhysicalMemory memory) {
  CUDA_ENTER(Call, call);
  auto found = call->physical().find(memory);
  if (found == call->physical().end()) return Result::kInvalidValue;
  return Put(properties, found->second.properties);
}

CUDA_EXPORT Result cuMemExportToShareableHandle(void* shared, PhysicalMemory memory,
                                                unsigned handle_type, unsigned long long flags) {
  CUDA_ENTER(Call, call);
  auto found = call->physical().find(memory);
  if (shared == nullptr || found == call->physical().end() || flags != 0 ||
      handle_type != kShareByFileDescriptor ||
      (found->second.properties.handle_types & handle_type) == 0) {
    return Result::kInvalidValue;
  }
  PhysicalAllocation& physical = found->second;
  const bool on_device = physical.properties.location.type == kLocationDevice;
  struct stat info;
  const int fd = Reopen(physical.fd);
  if (fd < 0) return Result::kOperatingSystem;
  if (!LockByte(fd, on_device ? physical.gpu : kHostByte) || fstat(fd, &info) != 0 ||
      (physical.charged &&
       call->slot().Share(physical.gpu, info.st_ino, physical.bytes, /*charged=*/true) != 0)) {
    close(fd);
    return Result::kOperatingSystem;
  }
  if (physical.charged) physical.shared_inode = info.st_ino;
  physical.charged = false;
  *static_cast<int*>(shared) = fd;
  return Result::kSuccess;
}

CUDA_EXPORT Result cuMemImportFromShareableHandle(PhysicalMemory* memory, void* shared,
                                                  unsigned handle_type) {
  CUDA_ENTER(Call, call);
  if (memory == nullptr || handle_type != kShareByFileDescriptor) return Result::kInvalidValue;
  call->EndClosedCharges();
  PhysicalAllocation physical;
  const Result result = Import(call, int(reinterpret_cast<intptr_t>(shared)), &physical);
  if (result == Result::kSuccess) *memory = Add(call, physical);
  return result;
}

void Driver::EndSharedCharge(const PhysicalAllocation& physical) {
  const auto is_same = [&](const PhysicalAllocation& other) {
    return other.shared_inode == physical.shared_inode;
  };
  if (std::ranges::any_of(exported_only_, is_same)) {
    close(physical.fd);  // the list needs only one entry for each memfd
    return;
  }
  if (LockedByte(physical.fd) >= 0) return exported_only_.push_back(physical);
  close(physical.fd);
  if (std::ranges::any_of(physical_, [&](const auto& item) { return is_same(item.second); })) {
    return;
  }
  slot_.Unshare(physical.gpu, physical.shared_inode);
}

void Driver::EndClosedCharges() {
  // EndSharedCharge adds memory with open descriptors to the list again.
  for (const PhysicalAllocation& physical : std::exchange(exported_only_, {}))
    EndSharedCharge(physical);
}

}  // namespace tessera::cuda
