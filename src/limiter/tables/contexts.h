// SPDX-License-Identifier: Apache-2.0
// The contexts of this process that it has created or that have allocated, each with its GPU and a
// unique id. The driver may reuse the handle of a destroyed context; an id is unique. Threads: any.
// Find is lock-free.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/limiter/region/spin_lock.h"

namespace tessera::limiter {

class Contexts {
 public:
  struct Info {
    uint64_t id = 0;
    int gpu = -1;
    bool is_counted = false;  // in ContextMemory
  };

  // False: the table does not have the handle.
  bool Find(const void* handle, Info* info) const;
  // Returns the id of the handle, the same to concurrent callers; 0: the table is full.
  uint64_t Add(const void* handle, int gpu);
  // Add, and marks the context as counted. `*is_new` is false if it was. False: the table is full.
  bool Count(const void* handle, int gpu, bool* is_new);
  // Puts back an entry that Remove returned.
  void Restore(const void* handle, const Info& info);
  bool Remove(const void* handle, Info* removed);
  static constexpr uint32_t kCapacity = 1024;  // a power of two
  // False: there is no context at `i`. REQUIRES: i < kCapacity.
  bool At(uint32_t i, Info* info) const;
  void Reset();

 private:
  struct Entry {
    std::atomic<uintptr_t> handle;  // 0: never used; 1: removed
    std::atomic<uint64_t> id;
    std::atomic<int> gpu;
    std::atomic<bool> is_counted;
  };
  static uint32_t Home(uintptr_t handle);
  bool Put(uintptr_t handle, const Info& info);   // REQUIRES lock_
  uint64_t AddLocked(uintptr_t handle, int gpu);  // REQUIRES lock_
  const Entry* Look(uintptr_t handle) const;

  SpinLock lock_;  // held while entries change
  uint64_t last_id_ = 0;
  Entry entries_[kCapacity] = {};
};

}  // namespace tessera::limiter
