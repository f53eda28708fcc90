// SPDX-License-Identifier: Apache-2.0
// Memory pools are charged with what they reserve on the device, not with what the program uses of
// them: a pool keeps freed memory, and grows in steps of its own. So after every call that may
// change a pool, the limiter reads CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and charges the difference.
//
// The memory of graphs (nodes that allocate) is a pool, too: one of each device, which has
// functions of its own and no handle. Here its handle is the device, marked by an odd number.
// Threads: any. No lock is held while the driver is asked.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/cuda_abi.h"
#include "src/limiter/accounts.h"
#include "src/limiter/spin_lock.h"

namespace tessera::limiter {

class Pools {
 public:
  static cuda::MemPool GraphMemoryOf(cuda::Device device) {
    return reinterpret_cast<cuda::MemPool>(uintptr_t(device) * 2 + 1);
  }
  // Gives the index of the pool, which is added if it is new; -1: there is no room for it.
  int Add(cuda::MemPool pool, int gpu);
  int GpuOf(int index) const { return pools_[index].gpu; }
  // The index of a pool that was added, or -1.
  int Find(cuda::MemPool pool) const;
  // Reads what the pool reserves, and charges the difference to the last reading.
  void Refresh(int index, Accounts* accounts);
  void RefreshAll(Accounts* accounts);
  // Returns to the device what the pools of a GPU keep unused.
  void Trim(int gpu, Accounts* accounts);
  // Returns to the device what one pool keeps beyond `keep`, by the driver's own call.
  cuda::Result Trim(int index, uint64_t keep, Accounts* accounts);
  // How often that was begun: what was there before may be gone.
  uint32_t TrimsOf(int index) const { return pools_[index].trims.load(); }
  // The pool has been destroyed: its charge ends.
  void Remove(int index, Accounts* accounts);
  void Reset();

 private:
  static constexpr int kCapacity = 256;
  struct Pool {
    std::atomic<cuda::MemPool> handle;
    int gpu;
    // Readings are numbered before they are made. The latest one contains what earlier ones saw, so
    // an earlier one that arrives later is dropped.
    std::atomic<uint64_t> readings;
    std::atomic<uint32_t> trims;
    SpinLock lock;  // of the two below
    uint64_t charged_reading;
    uint64_t charged;
  };

  SpinLock lock_;  // of those who add
  Pool pools_[kCapacity] = {};
};

}  // namespace tessera::limiter
