// SPDX-License-Identifier: Apache-2.0
// The contexts of this process that have allocated: of which GPU each is, and an id of its own. The
// driver may give the handle of a destroyed context to a new one; an id is never used again.
// Threads: any. Find takes no lock.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/limiter/spin_lock.h"

namespace tessera::limiter {

class Contexts {
 public:
  struct Known {
    uint64_t id = 0;
    int gpu = -1;
  };

  // False: the handle has not been added.
  bool Find(const void* handle, Known* known) const;
  // Gives the id of the handle, the same one to two threads that add it at once; 0: there is no
  // room.
  uint64_t Add(const void* handle, int gpu);
  // Puts back what Remove gave.
  void Restore(const void* handle, const Known& known);
  // False: it was not there.
  bool Remove(const void* handle, Known* removed);
  void Reset();

 private:
  static constexpr uint32_t kCapacity = 1024;  // a power of two
  struct Entry {
    std::atomic<uintptr_t> handle;  // 0: never used; 1: removed
    std::atomic<uint64_t> id;
    std::atomic<int> gpu;
  };
  static uint32_t Home(uintptr_t handle);
  bool Put(uintptr_t handle, const Known& known);  // REQUIRES lock_
  const Entry* Look(uintptr_t handle) const;

  SpinLock lock_;  // of those who change entries
  uint64_t last_id_ = 0;
  Entry entries_[kCapacity] = {};
};

}  // namespace tessera::limiter
