// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/allocations.h"

#include <sys/mman.h>

namespace tessera::limiter {
namespace {

constexpr uint32_t kFirstCapacity = 128;

// Eight neighbors share a hash and stand side by side: blocks of 2 MiB in a row, or parts of one
// block. The driver aligns what it gives to 256 bytes at least.
constexpr int kNeighbors = 8;

struct Place {
  explicit Place(uint64_t pointer) {
    const uint64_t block = pointer >> 21, part = pointer >> 8 & 0x1fff;
    const uint64_t hash =
        (block / kNeighbors * 0x9e3779b97f4a7c15u + part / kNeighbors) * 0xc2b2ae3d27d4eb4fu;
    shard = uint32_t(hash >> 58);
    slot = uint32_t(hash >> 29) * kNeighbors + uint32_t(block + part) % kNeighbors;
  }
  uint32_t shard;
  uint32_t slot;  // modulo the capacity
};

}  // namespace

void Allocations::Reset() {
  for (Shard& shard : shards_) {
    if (shard.entries != nullptr) ::munmap(shard.entries, shard.capacity * sizeof(Entry));
    shard.entries = nullptr;
    shard.capacity = shard.count = 0;
    shard.lock.Reset();
  }
}

Allocations::Shard& Allocations::ShardOf(uint64_t pointer) { return shards_[Place(pointer).shard]; }
static_assert(sizeof(uint64_t) * 8 - 58 == 6, "64 shards");

Allocations::Entry* Allocations::Find(const Shard& shard, uint64_t pointer) {
  const uint32_t mask = shard.capacity - 1;
  uint32_t i = Place(pointer).slot & mask;
  while (shard.entries[i].pointer != 0 && shard.entries[i].pointer != pointer) i = (i + 1) & mask;
  return &shard.entries[i];
}

bool Allocations::Grow(Shard* shard) {
  const uint32_t capacity = shard->capacity == 0 ? kFirstCapacity : shard->capacity * 2;
  void* memory = ::mmap(nullptr, capacity * sizeof(Entry), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  Entry* const old_entries = shard->entries;
  const uint32_t old_capacity = shard->capacity;
  shard->entries = static_cast<Entry*>(memory);
  shard->capacity = capacity;
  for (uint32_t i = 0; i < old_capacity; ++i) {
    if (old_entries[i].pointer != 0) *Find(*shard, old_entries[i].pointer) = old_entries[i];
  }
  if (old_entries != nullptr) ::munmap(old_entries, old_capacity * sizeof(Entry));
  return true;
}

// Moves later entries of the run up, so that no mark of the removed one has to stay.
void Allocations::Erase(Shard* shard, Entry* entry) {
  const uint32_t mask = shard->capacity - 1;
  auto hole = uint32_t(entry - shard->entries);
  for (uint32_t i = (hole + 1) & mask; shard->entries[i].pointer != 0; i = (i + 1) & mask) {
    const uint32_t home = Place(shard->entries[i].pointer).slot & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    shard->entries[hole] = shard->entries[i];
    hole = i;
  }
  shard->entries[hole].pointer = 0;
  --shard->count;
}

bool Allocations::Insert(uint64_t pointer, const Allocation& allocation) {
  Shard& shard = ShardOf(pointer);
  const SpinGuard lock(&shard.lock);
  if (shard.count * 10 >= shard.capacity * 7 && !Grow(&shard)) return false;
  Entry* entry = Find(shard, pointer);
  if (entry->pointer == 0) ++shard.count;
  *entry = {pointer, allocation};
  return true;
}

bool Allocations::Remove(uint64_t pointer, Allocation* removed) {
  Shard& shard = ShardOf(pointer);
  const SpinGuard lock(&shard.lock);
  if (shard.count == 0) return false;
  Entry* entry = Find(shard, pointer);
  if (entry->pointer == 0) return false;
  *removed = entry->allocation;
  Erase(&shard, entry);
  return true;
}

bool Allocations::Join(uint64_t block, int gpu) {
  Shard& shard = ShardOf(block);
  const SpinGuard lock(&shard.lock);
  if (shard.count * 10 >= shard.capacity * 7 && !Grow(&shard)) return true;
  Entry* entry = Find(shard, block);
  if (entry->pointer != 0) {
    ++entry->allocation.blocks;
    return false;
  }
  ++shard.count;
  *entry = {block, {.blocks = 1, .gpu = uint64_t(gpu)}};
  return true;
}

bool Allocations::Leave(uint64_t block) {
  Shard& shard = ShardOf(block);
  const SpinGuard lock(&shard.lock);
  if (shard.count == 0) return false;
  Entry* entry = Find(shard, block);
  if (entry->pointer == 0 || --entry->allocation.blocks != 0) return false;
  Erase(&shard, entry);
  return true;
}

void Allocations::RemoveContext(uint64_t context, void (*each)(void*, uint64_t, const Allocation&),
                                void* argument) {
  for (Shard& shard : shards_) {
    for (uint32_t i = 0;; ++i) {
      Entry found{};
      {
        const SpinGuard lock(&shard.lock);
        while (i < shard.capacity &&
               (shard.entries[i].pointer == 0 || shard.entries[i].allocation.context != context)) {
          ++i;
        }
        if (i >= shard.capacity) break;
        found = shard.entries[i];
        Erase(&shard, &shard.entries[i]);
      }
      each(argument, found.pointer, found.allocation);
      --i;  // another entry may have moved here
    }
  }
}

}  // namespace tessera::limiter
