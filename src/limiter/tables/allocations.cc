// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/allocations.h"

namespace tessera::limiter {
namespace {

// Eight neighboring allocations share a hash and have adjacent entries. Neighbors are eight
// successive blocks of 2 MiB, or eight successive units of 256 bytes in one block. The driver
// aligns allocations to at least 256 bytes.
constexpr int kNeighbors = 8;

uint64_t BlockOf(uint64_t pointer) { return pointer >> 21; }
uint64_t UnitOf(uint64_t pointer) { return pointer >> 8 & 0x1fff; }

uint64_t Hash(uint64_t pointer) {
  return (BlockOf(pointer) / kNeighbors * 0x9e3779b97f4a7c15u + UnitOf(pointer) / kNeighbors) *
         0xc2b2ae3d27d4eb4fu;
}

size_t ShardIndexOf(uint64_t pointer) { return Hash(pointer) >> 58; }
static_assert(kAllocationShards == 1 << (64 - 58));

}  // namespace

uint32_t HashOfPointer(uint64_t pointer) {
  return uint32_t(Hash(pointer) >> 29) * kNeighbors +
         uint32_t(BlockOf(pointer) + UnitOf(pointer)) % kNeighbors;
}

Allocations::Shard& Allocations::ShardOf(uint64_t pointer) {
  return shards_[ShardIndexOf(pointer)];
}

void Allocations::Reset() {
  for (Shard& shard : shards_) {
    shard.table.Clear();
    shard.freed_pointer_count = 0;
    shard.lock.Reset();
  }
}

bool Allocations::Shard::RemoveFreed(uint64_t pointer) {
  for (uint32_t i = 0; i < freed_pointer_count; ++i) {
    if (freed_pointers[i] != pointer) continue;
    freed_pointers[i] = freed_pointers[--freed_pointer_count];
    return true;
  }
  return false;
}

Allocations::Insertion Allocations::Insert(uint64_t pointer, const Allocation& allocation,
                                           Allocation* replaced) {
  Shard& shard = ShardOf(pointer);
  const SpinGuard lock(&shard.lock);
  bool added = false;
  auto* entry = shard.table.Add(pointer, &added);
  if (entry == nullptr) return Insertion::kNoMemory;
  if (!added) *replaced = entry->value;
  entry->value = allocation;
  (void)shard.RemoveFreed(pointer);
  return added ? Insertion::kAdded : Insertion::kReplaced;
}

bool Allocations::Remove(uint64_t pointer, Allocation* removed) {
  Shard& shard = ShardOf(pointer);
  const SpinGuard lock(&shard.lock);
  auto* entry = shard.table.Find(pointer);
  if (entry == nullptr) return false;
  *removed = entry->value;
  shard.table.Erase(entry);
  return true;
}

// If the table has an entry for the pointer, the entry belongs to a later allocation.
bool Allocations::Restore(uint64_t pointer, const Allocation& allocation) {
  Shard& shard = ShardOf(pointer);
  const SpinGuard lock(&shard.lock);
  if (shard.RemoveFreed(pointer)) return false;
  bool added = false;
  auto* entry = shard.table.Add(pointer, &added);
  if (entry == nullptr || !added) return entry == nullptr;
  entry->value = allocation;
  entry->value.is_restored = 1;
  return true;
}

bool Allocations::RemoveRestored(uint64_t pointer, Allocation* removed) {
  Shard& shard = ShardOf(pointer);
  const SpinGuard lock(&shard.lock);
  if (auto* entry = shard.table.Find(pointer); entry != nullptr) {
    if (entry->value.is_restored == 0) return false;
    *removed = entry->value;
    shard.table.Erase(entry);
    return true;
  }
  // Keeps only the last kMaxFreedPointers pointers: no other thread still frees an older pointer.
  (void)shard.RemoveFreed(pointer);
  if (shard.freed_pointer_count == kMaxFreedPointers) {
    for (uint32_t i = 1; i < kMaxFreedPointers; ++i)
      shard.freed_pointers[i - 1] = shard.freed_pointers[i];
    --shard.freed_pointer_count;
  }
  shard.freed_pointers[shard.freed_pointer_count++] = pointer;
  return false;
}

void Allocations::RemoveContext(uint64_t context, void (*visit)(void*, uint64_t, const Allocation&),
                                void* argument) {
  for (Shard& shard : shards_) {
    uint32_t i = 0;
    bool has_removed = false;  // in this pass
    while (true) {
      Table<Allocation, HashOfPointer>::Entry found{};
      {
        const SpinGuard lock(&shard.lock);
        const auto is_other = [context](const auto& entry) {
          return entry.key == 0 || entry.value.context != context;
        };
        while (i < shard.table.capacity() && is_other(*shard.table.At(i))) ++i;
        if (i >= shard.table.capacity()) {
          if (!has_removed) break;
          // While the lock was free, other threads may have moved entries to lower indexes.
          i = 0, has_removed = false;
          continue;
        }
        found = *shard.table.At(i);
        shard.table.Erase(shard.table.At(i));
        has_removed = true;
      }
      visit(argument, found.key, found.value);  // the next entry may have moved to index i
    }
  }
}

SharedBlocks::Shard& SharedBlocks::ShardOf(uint64_t block) { return shards_[ShardIndexOf(block)]; }

void SharedBlocks::Reset() {
  for (Shard& shard : shards_) {
    shard.allocation_counts.Clear();
    shard.lock.Reset();
  }
}

bool SharedBlocks::Join(uint64_t block) {
  Shard& shard = ShardOf(block);
  const SpinGuard lock(&shard.lock);
  bool added = false;
  auto* entry = shard.allocation_counts.Add(block, &added);
  if (entry == nullptr) return true;
  ++entry->value;
  return added;
}

bool SharedBlocks::Leave(uint64_t block) {
  Shard& shard = ShardOf(block);
  const SpinGuard lock(&shard.lock);
  auto* entry = shard.allocation_counts.Find(block);
  if (entry == nullptr) return true;  // Join had no memory for the table
  if (--entry->value != 0) return false;
  shard.allocation_counts.Erase(entry);
  return true;
}

}  // namespace tessera::limiter
