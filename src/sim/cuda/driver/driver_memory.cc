// SPDX-License-Identifier: Apache-2.0
// The memory of a process: blocks of the GPU, and the allocations that the program knows.
#include <errno.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "src/sim/cuda/driver/driver.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kSmallAlign = 512;  // minimum alignment of cuMemAlloc

// Copies only pages that are not zero, so that untouched memory stays untouched.
bool CopyTo(int fd, DevicePtr base, uint64_t bytes) {
  constexpr uint64_t kPage = 4096;
  static constexpr char kZeros[kPage] = {};
  for (uint64_t at = 0; at < bytes; at += kPage) {
    const void* page = reinterpret_cast<const void*>(base + at);
    if (memcmp(page, kZeros, kPage) == 0) continue;
    if (pwrite(fd, page, kPage, off_t(at)) != ssize_t(kPage)) return false;
  }
  return true;
}

// Replaces private memory by a memfd with the same contents.
bool MakeShared(DevicePtr base, uint64_t bytes, ExportedMemory* exported) {
  const int fd = int(syscall(SYS_memfd_create, "simgpu", MFD_CLOEXEC));
  struct stat info;
  if (fd >= 0 && ftruncate(fd, off_t(bytes)) == 0 && CopyTo(fd, base, bytes) &&
      fstat(fd, &info) == 0 &&
      mmap(reinterpret_cast<void*>(base), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
           0) != MAP_FAILED) {
    *exported = {fd, info.st_ino};
    return true;
  }
  if (fd >= 0) close(fd);
  return false;
}

}  // namespace

Result Driver::Map(uint64_t bytes, uint32_t gpu, DevicePtr* pointer) {
  EndClosedCharges();
  switch (slot_.Charge(gpu, bytes)) {
    case 0:
      break;
    case ENOMEM:
      return Result::kOutOfMemory;
    default:
      return Result::kOperatingSystem;
  }
  *pointer = MapAddresses(bytes);
  if (*pointer == 0) {
    slot_.Uncharge(gpu, bytes);
    return Result::kOutOfMemory;
  }
  return Result::kSuccess;
}

// Maps one block more than needed, and then unmaps what is outside of the range, so that the range
// begins at a block's border.
DevicePtr Driver::MapAddresses(uint64_t bytes) {
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#ifdef MAP_32BIT
  if (narrow_addresses) flags |= MAP_32BIT;
#endif
  void* memory = mmap(nullptr, bytes + kBlockBytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) return 0;
  const auto begin = reinterpret_cast<uint64_t>(memory);
  const uint64_t base = RoundUp(begin, kBlockBytes);
  if (base > begin) munmap(memory, base - begin);
  if (base < begin + kBlockBytes) {
    munmap(reinterpret_cast<void*>(base + bytes), begin + kBlockBytes - base);
  }
  return base;
}

void Driver::Unmap(DevicePtr base, uint64_t bytes, uint32_t gpu) {
  slot_.Uncharge(gpu, bytes);
  if (auto exported = exports_.find(base); exported != exports_.end()) {
    close(exported->second.fd);
    exports_.erase(exported);
  }
  UnmapLater(base, bytes);
}

void Driver::UnmapLater(DevicePtr base, uint64_t bytes) {
  pending_unmaps_.push_back({base, bytes, engine_.last_order()});
  UnmapPending();
}

void Driver::UnmapPending() {
  if (pending_unmaps_.empty()) return;
  const uint64_t oldest = engine_.OldestOrder();
  std::erase_if(pending_unmaps_, [oldest](const PendingUnmap& pending) {
    const bool is_due = oldest > pending.order;
    if (is_due) munmap(reinterpret_cast<void*>(pending.base), pending.bytes);
    return is_due;
  });
}

Result Driver::AllocateBlocks(MemPoolTag* pool, uint64_t bytes, uint32_t gpu, uint64_t* taken,
                              DevicePtr* base) {
  *taken = bytes;
  if (pool == nullptr) return Map(bytes, gpu, base);
  // A free block also serves a smaller allocation that uses at least half of the block.
  if (auto free_block = pool->free_blocks.lower_bound(bytes);
      free_block != pool->free_blocks.end() && free_block->first / 2 <= bytes) {
    *taken = free_block->first;
    *base = free_block->second;
    pool->free_blocks.erase(free_block);
    return Result::kSuccess;
  }
  if (pool->max_size != 0 && pool->reserved + bytes > RoundUp(pool->max_size, kBlockBytes))
    return Result::kOutOfMemory;
  Result result = Map(bytes, gpu, base);
  if (result == Result::kOutOfMemory && !pool->free_blocks.empty()) {
    Trim(pool, 0);
    result = Map(bytes, gpu, base);
  }
  if (result != Result::kSuccess) return result;
  pool->reserved += bytes;
  pool->reserved_high = std::max(pool->reserved_high, pool->reserved);
  return Result::kSuccess;
}

void Driver::FreeBlocks(MemPoolTag* pool, DevicePtr base, uint64_t bytes, uint32_t gpu) {
  if (pool == nullptr) return Unmap(base, bytes, gpu);
  pool->free_blocks.emplace(bytes, base);
  Trim(pool, pool->release_threshold);
}

void Driver::Trim(MemPoolTag* pool, uint64_t keep) {
  while (pool->reserved > keep && !pool->free_blocks.empty()) {
    const auto free_block = pool->free_blocks.begin();
    Unmap(free_block->second, free_block->first, GpuOf(pool->device));
    pool->reserved -= free_block->first;
    pool->free_blocks.erase(free_block);
  }
}

uint32_t Driver::GpuOf(const Allocation& allocation) const {
  return GpuOf(allocation.pool != nullptr ? allocation.pool->device : allocation.context->device);
}

std::map<DevicePtr, MemoryBlock>& Driver::BlocksOf(const Allocation& allocation) {
  if (allocation.pool != nullptr) return allocation.pool->blocks;
  return allocation.kind == MemoryKind::kArray ? allocation.context->array_blocks
                                               : allocation.context->blocks;
}

Result Driver::AllocateInBlock(uint64_t bytes, uint32_t gpu, Allocation* allocation) {
  const uint64_t size = RoundUp(bytes, kSmallAlign);
  std::map<DevicePtr, MemoryBlock>& blocks = BlocksOf(*allocation);
  for (auto& [base, block] : blocks) {
    for (auto& [start, length] : block.free) {
      if (length < size) continue;
      allocation->base = start;
      allocation->block = base;
      const uint64_t rest = length - size;
      const uint64_t at = start;
      block.free.erase(at);
      if (rest != 0) block.free[at + size] = rest;
      return Result::kSuccess;
    }
  }
  uint64_t taken = 0;
  DevicePtr base = 0;
  const Result result = AllocateBlocks(allocation->pool, kBlockBytes, gpu, &taken, &base);
  if (result != Result::kSuccess) return result;
  MemoryBlock& block = blocks[base];
  block.bytes = taken;
  block.free[base + size] = taken - size;
  allocation->base = base;
  allocation->block = base;
  return Result::kSuccess;
}

void Driver::FreeInBlock(const Allocation& allocation) {
  std::map<DevicePtr, MemoryBlock>& blocks = BlocksOf(allocation);
  std::map<DevicePtr, uint64_t>& free = blocks[allocation.block].free;
  auto here = free.emplace(allocation.base, RoundUp(allocation.size, kSmallAlign)).first;
  if (auto next = std::next(here);
      next != free.end() && here->first + here->second == next->first) {
    here->second += next->second;
    free.erase(next);
  }
  if (here != free.begin()) {
    if (auto before = std::prev(here); before->first + before->second == here->first) {
      before->second += here->second;
      free.erase(here);
    }
  }
  const uint64_t bytes = blocks[allocation.block].bytes;
  if (free.begin()->second != bytes) return;
  blocks.erase(allocation.block);
  FreeBlocks(allocation.pool, allocation.block, bytes, GpuOf(allocation));
}

Result Driver::Allocate(ContextTag* context, uint64_t bytes, MemoryKind kind, MemPoolTag* pool,
                        DevicePtr* pointer) {
  if (bytes == 0) return Result::kInvalidValue;
  Allocation allocation;
  allocation.size = bytes;
  allocation.kind = kind;
  allocation.context = context;
  allocation.pool = pool;
  const uint32_t gpu = GpuOf(allocation);
  if (bytes > FactsOf(context->device).memory_bytes) return Result::kOutOfMemory;
  Result result;
  if (bytes <= kSmallBytes) {
    result = AllocateInBlock(bytes, gpu, &allocation);
  } else {
    result = AllocateBlocks(pool, RoundUp(bytes, kBlockBytes), gpu, &allocation.charged_bytes,
                            &allocation.base);
  }
  if (result != Result::kSuccess) return result;
  if (pool != nullptr) {
    pool->used += bytes;
    pool->used_high = std::max(pool->used_high, pool->used);
  }
  allocations_[allocation.base] = allocation;
  *pointer = allocation.base;
  return Result::kSuccess;
}

Result Driver::Free(DevicePtr pointer) {
  auto found = allocations_.find(pointer);
  if (found == allocations_.end() || found->second.kind == MemoryKind::kHost ||
      found->second.kind == MemoryKind::kRegistered || found->second.physical != 0 ||
      found->second.is_module_memory) {
    return Result::kInvalidValue;
  }
  if (found->second.imported) {
    if (found->second.pool == nullptr) return Result::kInvalidValue;  // the program must close it
    if (--imports_[pointer].open_count == 0) Unimport(pointer);
    return Result::kSuccess;
  }
  if (found->second.graph != nullptr) return graph_pools_.Free(found->second.graph);
  Release(found);
  return Result::kSuccess;
}

void Driver::Release(std::map<DevicePtr, Allocation>::iterator found) {
  const Allocation allocation = found->second;
  allocations_.erase(found);
  if (allocation.pool != nullptr) allocation.pool->used -= allocation.size;
  if (allocation.block != 0) {
    FreeInBlock(allocation);
  } else {
    FreeBlocks(allocation.pool, allocation.base, allocation.charged_bytes, GpuOf(allocation));
  }
}

Result Driver::Export(const Allocation& allocation, ExportedMemory* exported) {
  const bool in_block = allocation.block != 0;
  const DevicePtr base = in_block ? allocation.block : allocation.base;
  const uint64_t bytes = in_block ? BlocksOf(allocation)[base].bytes : allocation.charged_bytes;
  auto known = exports_.find(base);
  if (known == exports_.end()) {
    ExportedMemory created;
    if (!MakeShared(base, bytes, &created)) return Result::kOutOfMemory;
    known = exports_.emplace(base, created).first;
  }
  *exported = known->second;
  return Result::kSuccess;
}

void Driver::Unimport(DevicePtr pointer) {
  const ImportedMemory& memory = imports_[pointer];
  UnmapLater(memory.mapped, memory.mapped_bytes);
  allocations_.erase(pointer);
  imports_.erase(pointer);
}

Allocation* Driver::FindAllocation(DevicePtr pointer, uint64_t bytes) {
  auto after = allocations_.upper_bound(pointer);
  if (after == allocations_.begin()) return nullptr;
  Allocation& allocation = std::prev(after)->second;
  const uint64_t offset = pointer - allocation.base;
  if (offset > allocation.size || (offset == allocation.size && bytes > 0)) return nullptr;
  uint64_t inside = allocation.size - offset;
  for (; inside < bytes; ++after) {
    const bool continues = allocation.physical != 0 && after != allocations_.end() &&
                           after->second.physical != 0 && after->first == pointer + inside &&
                           after->second.access != kAccessNone;
    if (!continues) return nullptr;
    inside += after->second.size;
  }
  return allocation.access == kAccessNone ? nullptr : &allocation;
}

void Driver::AddHostMemory(ContextTag* context, void* pointer, uint64_t bytes, bool registered,
                           unsigned flags) {
  Allocation allocation;
  allocation.base = reinterpret_cast<DevicePtr>(pointer);
  allocation.size = bytes;
  allocation.kind = registered ? MemoryKind::kRegistered : MemoryKind::kHost;
  allocation.context = context;
  allocation.flags = flags;
  allocations_[allocation.base] = allocation;
}

bool Driver::RemoveHostMemory(void* pointer, bool registered) {
  auto found = allocations_.find(reinterpret_cast<DevicePtr>(pointer));
  const MemoryKind kind = registered ? MemoryKind::kRegistered : MemoryKind::kHost;
  if (found == allocations_.end() || found->second.kind != kind) return false;
  allocations_.erase(found);
  if (!registered) free(pointer);
  return true;
}

}  // namespace tessera::cuda
