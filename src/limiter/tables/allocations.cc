// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/allocations.h"

namespace tessera::limiter {
namespace {

// Eight neighboring allocations share a hash and have adjacent entries. Neighbors are eight
// successive blocks of 2 MiB, or eight successive units of 256 bytes in one block. The driver
// aligns allocations to at least 256 bytes.
constexpr int kNeighbors = 8;

uint64_t BlockOf(uint64_t pointer) { return pointer >> 21; }
uint64_t PartOf(uint64_t pointer) { return pointer >> 8 & 0x1fff; }

uint64_t Hash(uint64_t pointer) {
  return (BlockOf(pointer) / kNeighbors * 0x9e3779b97f4a7c15u + PartOf(pointer) / kNeighbors) *
         0xc2b2ae3d27d4eb4fu;
}

}  // namespace

uint32_t Allocations::HashKey(uint64_t pointer) {
  return uint32_t(Hash(pointer) >> 29) * kNeighbors +
         uint32_t(BlockOf(pointer) + PartOf(pointer)) % kNeighbors;
}

Allocations::Shard& Allocations::ShardOf(uint64_t pointer) { return shards_[Hash(pointer) >> 58]; }
static_assert(sizeof(uint64_t) * 8 - 58 == 6, "64 shards");

void Allocations::Reset() {
  for (Shard& shard : shards_) {
    shard.table.Clear();
    shard.freed_count = 0;
    shard.lock.Reset();
  }
}

bool Allocations::Shard::TakeFreed(uint64_t pointer) {
  for (uint32_t i = 0; i < freed_count; ++i) {
    if (freed[i] != pointer) continue;
    freed[i] = freed[--freed_count];
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
  (void)shard.TakeFreed(pointer);
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
  if (shard.TakeFreed(pointer)) return false;
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
  // Keeps only the last kFreed pointers: no other thread is still freeing an older one.
  (void)shard.TakeFreed(pointer);
  if (shard.freed_count == kFreed) {
    for (uint32_t i = 1; i < kFreed; ++i) shard.freed[i - 1] = shard.freed[i];
    --shard.freed_count;
  }
  shard.freed[shard.freed_count++] = pointer;
  return false;
}

bool Allocations::Join(uint64_t block, int gpu) {
  Shard& shard = ShardOf(block);
  const SpinGuard lock(&shard.lock);
  bool added = false;
  auto* entry = shard.table.Add(block, &added);
  if (entry == nullptr) return true;
  if (added) entry->value.gpu = uint64_t(gpu);
  ++entry->value.blocks;
  return added;
}

bool Allocations::Leave(uint64_t block) {
  Shard& shard = ShardOf(block);
  const SpinGuard lock(&shard.lock);
  auto* entry = shard.table.Find(block);
  if (entry == nullptr || --entry->value.blocks != 0) return false;
  shard.table.Erase(entry);
  return true;
}

void Allocations::RemoveContext(uint64_t context, void (*each)(void*, uint64_t, const Allocation&),
                                void* argument) {
  for (Shard& shard : shards_) {
    for (uint32_t i = 0;; ++i) {
      Table<Allocation, HashKey>::Entry found{};
      {
        const SpinGuard lock(&shard.lock);
        const auto is_other = [context](const auto& entry) {
          return entry.key == 0 || entry.value.context != context;
        };
        while (i < shard.table.capacity() && is_other(*shard.table.At(i))) ++i;
        if (i >= shard.table.capacity()) break;
        found = *shard.table.At(i);
        shard.table.Erase(shard.table.At(i));
      }
      each(argument, found.key, found.value);
      --i;  // another entry may have moved here
    }
  }
}

}  // namespace tessera::limiter
