// SPDX-License-Identifier: Apache-2.0
// The allocations of this process and their charges, by device pointer, so that a free releases
// exactly the bytes that its allocation was charged.
//
// Hash tables in shards, each with a spin lock that is held for a few instructions and never across
// a driver call. Neighbors in device memory are neighbors in the table, because programs often
// allocate them in sequence. Threads: any. Cost: about 10 ns for each call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/limiter/region/spin_lock.h"
#include "src/limiter/tables/table.h"

namespace tessera::limiter {

// 8 bytes, so that a table of a million allocations stays small.
struct Allocation {
  uint64_t blocks : 24 = 0;      // charged for this allocation alone; 0: it shares a block. In an
                                 // entry of Join: number of allocations in it
  uint64_t is_restored : 1 = 0;  // entered by Restore
  uint64_t in_pool : 1 = 0;      // memory of a pool, whose index (pools.h) is in `blocks`
  uint64_t gpu : 5 = 0;          // index in the limits
  uint64_t context : 33 = 0;     // id of the context that frees it (contexts.h); 0: none
};
static_assert(sizeof(Allocation) == 8);

class Allocations {
 public:
  // Removes all entries and resets all locks, in a child after fork, which has no other threads
  // yet.
  void Reset();
  // kReplaced: `*replaced` was an older entry, whose memory the program has freed by calling the
  // driver directly. kNoMemory: there is no memory for the table.
  enum class Insertion { kAdded, kReplaced, kNoMemory };
  Insertion Insert(uint64_t pointer, const Allocation& allocation, Allocation* replaced);
  // Removes the entry before the driver frees the pointer, which another thread may get at once.
  // False: the table has no such pointer.
  bool Remove(uint64_t pointer, Allocation* removed);
  // If two threads free a pointer at once, one removes the entry, and the driver may free for the
  // other. Restore follows Remove if the driver has refused. False: the driver has freed the memory
  // for another thread; the caller ends the charge.
  bool Restore(uint64_t pointer, const Allocation& allocation);
  // Called when the driver has freed a pointer that Remove did not find. True: another thread has
  // restored the entry, which is removed; the caller ends its charge.
  bool RemoveRestored(uint64_t pointer, Allocation* removed);
  // Join adds an allocation to a shared block; true: it is the first. Leave removes an allocation;
  // true: it was the last.
  bool Join(uint64_t block, int gpu);
  bool Leave(uint64_t block);
  // Removes every allocation of a context, and calls `each` for it without a lock held.
  void RemoveContext(uint64_t context, void (*each)(void*, uint64_t pointer, const Allocation&),
                     void* argument);

 private:
  static uint32_t HashKey(uint64_t pointer);
  static constexpr uint32_t kFreed = 4;
  struct Shard {
    SpinLock lock;
    Table<Allocation, HashKey> table;
    // The last pointers that the driver freed without an entry and has not allocated since.
    uint64_t freed[kFreed];
    uint32_t freed_count;
    bool TakeFreed(uint64_t pointer);
  };
  static constexpr size_t kShards = 64;

  Shard& ShardOf(uint64_t pointer);

  Shard shards_[kShards] = {};
};

}  // namespace tessera::limiter
