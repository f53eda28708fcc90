// SPDX-License-Identifier: Apache-2.0
// Charges of this process, by handle, for device memory whose address the limiter does not know:
// arrays, mipmapped arrays, variables of modules and libraries, and stacks and heaps of contexts
// (cuCtxSetLimit).
//
// Without addresses, it is unknown which small objects share a block. So the small objects of a
// context are charged with the sum of their sizes, in whole blocks. Gaps that the driver leaves
// between objects are not charged.
//
// Threads: any. The lock is held for a few instructions, never across a call of the driver.
#pragma once

#include <cstdint>

#include "src/limiter/region/memory_budget.h"
#include "src/limiter/region/spin_lock.h"
#include "src/limiter/tables/contexts.h"
#include "src/limiter/tables/table.h"

namespace tessera::limiter {

class Charges {
 public:
  struct ChargedObject {
    uint64_t bytes = 0;
    uint64_t context = 0;        // id of the context that ends the charge
    int gpu = 0;                 // index in the limits
    uint64_t default_bytes = 0;  // for cuCtxSetLimit: bytes of the driver's default
    uint64_t added_moment = 0;   // moment (moment.h) of Add
  };

  // Charges an object that the driver has created. False: out of host memory; nothing is charged.
  // Ends an older charge with the same handle. An older charge exists if cuCtxSetLimit is called
  // again, if another thread has destroyed the older object but not called End yet, or if a library
  // has destroyed the older object by calling the driver directly.
  bool Add(const void* handle, const Contexts::Info& context, uint64_t bytes, MemoryBudget* budget,
           uint64_t default_bytes = 0);
  // False: the table does not have the handle.
  bool Find(const void* handle, ChargedObject* found);
  // Ends the charge of an object that the driver has destroyed. `call_moment` was taken before the
  // driver call. No effect if the handle is unknown, or was added after `call_moment`.
  void End(const void* handle, uint64_t call_moment, MemoryBudget* budget);
  // Ends all charges of a destroyed context.
  void EndContext(uint64_t id, MemoryBudget* budget);
  // Removes all charges, in a child after fork.
  void Reset();

 private:
  // REQUIRES lock_. False: out of host memory.
  bool Charge(const ChargedObject& object, MemoryBudget* budget);
  void Uncharge(const ChargedObject& object, MemoryBudget* budget);

  SpinLock lock_;
  Table<ChargedObject> entries_ = {};  // by handle
  // Sums of the sizes of small objects.
  Table<uint64_t> small_bytes_by_context_ = {};
};

}  // namespace tessera::limiter
