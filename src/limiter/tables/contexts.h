// SPDX-License-Identifier: Apache-2.0
// A table of this process's contexts, each with its GPU and an id. It has the contexts that the
// process has created and those in which it has allocated memory. The driver may reuse the handle
// of a destroyed context, but an id is unique. Ids grow, so they serve as moments (moment.h).
// Threads: any. Find is lock-free.
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
  // The highest id in use so far.
  uint64_t last_id();
  // Adds a context that the driver has created, and marks it as counted. `last_id` is the value of
  // last_id() before the driver call. `*is_new` is false if another thread has counted the context.
  // `*replaced` is an older context with the same handle, which the driver has destroyed; its id is
  // 0 if there is none. False: the table is full.
  bool AddCounted(const void* handle, int gpu, uint64_t last_id, bool* is_new, Info* replaced);
  // Removes a context that the driver has destroyed. `last_id` is the value of last_id() before the
  // driver call. False: the table does not have the handle, or has it with a higher id than
  // `last_id`.
  bool Remove(const void* handle, uint64_t last_id, Info* removed);
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
  static uint32_t HomeIndexOf(uintptr_t handle);
  bool Store(uintptr_t handle, const Info& info);  // REQUIRES lock_
  uint64_t AddLocked(uintptr_t handle, int gpu);   // REQUIRES lock_
  const Entry* FindEntry(uintptr_t handle) const;
  bool RemoveLocked(uintptr_t handle, uint64_t last_id, Info* removed);  // REQUIRES lock_

  SpinLock lock_;  // held while entries change
  uint64_t last_id_ = 0;
  Entry entries_[kCapacity] = {};
};

}  // namespace tessera::limiter
