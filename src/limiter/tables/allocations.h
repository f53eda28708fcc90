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

// 8 bytes, so that a table of a million allocations stays small.
struct Allocation {
  // Number of blocks that are charged for this allocation; 0: it shares a block. If `in_pool`: the
  // index of the pool (pools.h). In an entry of JoinBlock: the number of allocations in the block.
  uint64_t blocks : 24 = 0;
  uint64_t is_restored : 1 = 0;  // added by Restore
  uint64_t in_pool : 1 = 0;      // memory of a pool
  uint64_t gpu : 5 = 0;          // index in the limits
  uint64_t context : 33 = 0;     // id of the context whose end frees it (contexts.h); 0: none
};
static_assert(sizeof(Allocation) == 8);

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
  // one of them removes the entry, and the driver may succeed for the other. False: the driver did;
  // the caller ends the charge.
  bool Restore(uint64_t pointer, const Allocation& allocation);
  // Called when the driver has freed a pointer that Remove did not find. True: another thread had
  // restored the entry; it is removed, and the caller ends its charge.
  bool RemoveRestored(uint64_t pointer, Allocation* removed);
  // JoinBlock adds an allocation to a shared block; true: it is the first in the block. LeaveBlock
  // removes an allocation; true: it was the last in the block.
  bool JoinBlock(uint64_t block, int gpu);
  bool LeaveBlock(uint64_t block);
  // Removes all allocations of a context, and calls `visit` for each of them, without a lock held.
  void RemoveContext(uint64_t context, void (*visit)(void*, uint64_t pointer, const Allocation&),
                     void* argument);

 private:
  static uint32_t HashKey(uint64_t pointer);
  static constexpr uint32_t kMaxFreedPointers = 4;
  struct Shard {
    SpinLock lock;
    Table<Allocation, HashKey> table;
    // The last pointers that the driver freed without an entry and has not allocated since.
    uint64_t freed_pointers[kMaxFreedPointers];
    uint32_t freed_pointer_count;
    bool RemoveFreed(uint64_t pointer);
  };
  static constexpr size_t kShards = 64;

  Shard& ShardOf(uint64_t pointer);

  Shard shards_[kShards] = {};
};

}  // namespace tessera::limiter
