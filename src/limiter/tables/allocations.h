// SPDX-License-Identifier: Apache-2.0
// The allocations of this process and their charges, by device pointer, so that a free releases
// exactly the bytes that its allocation was charged.
//
// The table has shards, each with a spin lock that is held for a few instructions and never across
// a driver call. Neighbors in device memory are neighbors in the table, because programs often
// allocate them in sequence. Threads: any. Cost: about 10 ns for each call.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/limiter/region/spin_lock.h"
#include "src/limiter/tables/table.h"

namespace tessera::limiter {

// The struct has 8 bytes, so that a table of a million allocations stays small.
struct Allocation {
  static Allocation InOwnBlocks(uint64_t blocks, int gpu, uint64_t context) {
    return {.blocks_or_pool = blocks, .gpu = uint64_t(gpu), .context = context};
  }
  static Allocation InSharedBlock(int gpu, uint64_t context) {
    return {.gpu = uint64_t(gpu), .context = context};
  }
  static Allocation InPool(int pool, int gpu) {
    return {.blocks_or_pool = uint64_t(pool), .in_pool = 1, .gpu = uint64_t(gpu)};
  }

  // Index of the pool (pools.h). REQUIRES in_pool.
  int pool() const { return int(blocks_or_pool); }
  // Number of blocks that are charged for this allocation alone; 0: it is in a block of
  // SharedBlocks. REQUIRES !in_pool.
  uint64_t own_blocks() const { return blocks_or_pool; }

  uint64_t blocks_or_pool : 24 = 0;  // own_blocks() or pool()
  uint64_t is_restored : 1 = 0;      // added by Restore
  uint64_t in_pool : 1 = 0;          // memory of a pool
  uint64_t gpu : 5 = 0;              // index in the limits
  uint64_t context : 33 = 0;         // id (contexts.h) of the context whose end frees the
                                     // allocation; 0: none
};
static_assert(sizeof(Allocation) == 8);

uint32_t HashOfPointer(uint64_t pointer);
inline constexpr size_t kAllocationShards = 64;

class Allocations {
 public:
  // Removes all entries and resets all locks, in a child after fork, which has no other threads
  // yet.
  void Reset();
  // kReplaced: `*replaced` is the older entry of the pointer, whose memory a library has freed by
  // calling the driver directly. kNoMemory: there is no memory for the table.
  enum class Insertion { kAdded, kReplaced, kNoMemory };
  Insertion Insert(uint64_t pointer, const Allocation& allocation, Allocation* replaced);
  // Called before the driver frees the pointer, because another thread may get the same pointer at
  // once. False: the table has no such pointer.
  bool Remove(uint64_t pointer, Allocation* removed);
  // Called after Remove if the driver has refused to free. If two threads free a pointer at once,
  // one thread removes the entry, and the driver may free the memory for the other thread. False:
  // the driver has freed the memory for another thread; the caller ends the charge.
  bool Restore(uint64_t pointer, const Allocation& allocation);
  // Called when the driver has freed a pointer that Remove did not find. True: removes the entry,
  // which another thread has restored; the caller ends the charge.
  bool RemoveRestored(uint64_t pointer, Allocation* removed);
  // Removes all allocations of a context, and calls `visit` for each of them, without a lock held.
  void RemoveContext(uint64_t context, void (*visit)(void*, uint64_t pointer, const Allocation&),
                     void* argument);

 private:
  static constexpr uint32_t kMaxFreedPointers = 4;
  struct Shard {
    SpinLock lock;
    Table<Allocation, HashOfPointer> table;
    // The last pointers that the driver freed without an entry and has not allocated since.
    uint64_t freed_pointers[kMaxFreedPointers];
    uint32_t freed_pointer_count;
    bool RemoveFreed(uint64_t pointer);
  };

  Shard& ShardOf(uint64_t pointer);

  Shard shards_[kAllocationShards] = {};
};

// The blocks that several small allocations share, by address. A block is charged while it has an
// allocation. An allocation for which the table has no memory is charged a block of its own.
// Threads: any. Cost: as for Allocations.
class SharedBlocks {
 public:
  // Like Allocations::Reset.
  void Reset();
  // Adds an allocation to a block. True: the caller charges a block, because the allocation is the
  // first, or there is no memory for the table.
  bool Join(uint64_t block);
  // Removes an allocation from a block, after Join. True: the caller releases a block. For each
  // block, Leave returns true as often as Join did, in any order of its allocations.
  bool Leave(uint64_t block);

 private:
  struct Shard {
    SpinLock lock;
    Table<uint64_t, HashOfPointer> allocation_counts;
  };

  Shard& ShardOf(uint64_t block);

  Shard shards_[kAllocationShards] = {};
};

}  // namespace tessera::limiter
