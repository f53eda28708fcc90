// SPDX-License-Identifier: Apache-2.0
// The libraries (cuLibraryLoadData) of this process whose image states the size of their variables.
// A library belongs to no context: the driver gives its variables memory in each context, when the
// library or the context is created or when the context first uses the library. Each library has a
// unique id, because the driver may use the handle of an unloaded library again.
//
// Threads: any. The lock is held for a few instructions, never across a call of the driver.
#pragma once

#include <atomic>
#include <cstdint>

#include "src/limiter/region/spin_lock.h"
#include "src/limiter/tables/table.h"

namespace tessera::limiter {

class Libraries {
 public:
  struct LoadedLibrary {
    uint64_t id = 0;
    uint64_t bytes = 0;
    uint64_t added_moment = 0;  // moment (moment.h) of Add
  };

  // Returns an id of 31 bits.
  uint64_t NewId();
  // Adds a library that the driver has loaded. `*replaced` is an older library with the same
  // handle, which the driver has unloaded; its id is 0 if there is none. False: out of host memory.
  bool Add(const void* handle, const LoadedLibrary& info, LoadedLibrary* replaced);
  // Removes a library that the driver has unloaded. `call_moment` was taken before the driver call.
  // False: the table does not have the handle, or the handle was added after `call_moment`.
  bool Remove(const void* handle, uint64_t call_moment, LoadedLibrary* removed);
  uint32_t capacity();
  // False: there is no library at `i`. REQUIRES: i < capacity().
  bool At(uint32_t i, LoadedLibrary* info);
  // The key (Charges) of the charge for a library in a context. No handle of the driver has the top
  // bit set.
  static const void* ChargeKey(uint64_t library, uint64_t context) {
    return reinterpret_cast<const void*>(uintptr_t(1) << 63 | library << 31 | (context & kIdMask));
  }
  // Removes all libraries, in a child after fork.
  void Reset();

 private:
  static constexpr uint64_t kIdMask = (uint64_t(1) << 31) - 1;

  SpinLock lock_;
  std::atomic<uint64_t> last_id_ = {};
  Table<LoadedLibrary> entries_ = {};  // by handle
};

}  // namespace tessera::limiter
