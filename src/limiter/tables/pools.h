// SPDX-License-Identifier: Apache-2.0
// Memory pools are charged with the bytes that they reserve on the device, not with the bytes that
// the program uses: a pool keeps freed memory, and grows in its own steps. So after every call that
// may change a pool, the limiter reads CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT and charges the
// difference.
//
// The memory of graphs with allocation nodes is also a pool. Each device has one such pool, with
// separate driver functions and no handle. This table uses an odd number made from the device as
// its handle.
//
// Threads: any. No lock is held across a driver call. Find looks through all pools, the oldest
// first, so it is fast for programs with few of them.
#pragma once

#include <atomic>
#include <cstdint>

#include "api/cuda_abi.h"
#include "src/limiter/region/memory_budget.h"
#include "src/limiter/region/spin_lock.h"

namespace tessera::limiter {

class Pools {
 public:
  static cuda::MemPool GraphMemoryOf(cuda::Device device) {
    return reinterpret_cast<cuda::MemPool>(uintptr_t(device) * 2 + 1);
  }
  // Returns the index of the pool, which is added if it is new; -1: out of host memory, or the
  // process has kMaxPools. A pool whose `gpu` is -1 is not charged: its memory is on the host, or
  // on a GPU without a limit.
  int Add(cuda::MemPool pool, int gpu);
  int GpuOf(int index) const { return At(index).gpu; }
  // The index of the pool, or -1 if it was not added.
  int Find(cuda::MemPool pool) const;
  // Reads the bytes that the pool reserves, and charges the difference from the last reading.
  void Refresh(int index, MemoryBudget* budget);
  void RefreshAll(MemoryBudget* budget);
  // Returns the unused memory of all pools of a GPU to the device.
  void TrimAll(int gpu, MemoryBudget* budget);
  // Returns the unused memory of one pool beyond `kept_bytes` to the device.
  cuda::Result Trim(int index, uint64_t kept_bytes, MemoryBudget* budget);
  // Number of trims that have begun. A trim may return memory that was reserved before the trim.
  uint32_t TrimCount(int index) const { return At(index).trims.load(); }
  // Ends the charge of a pool that the driver has destroyed. `call_moment` (moment.h) was taken
  // before the driver call. A pool that was added at the index after `call_moment` stays.
  void Remove(int index, uint64_t call_moment, MemoryBudget* budget);
  void Reset();

  static constexpr int kMaxPools = 1 << 16;

 private:
  static constexpr int kPoolsPerChunk = 256;
  struct Pool {
    std::atomic<cuda::MemPool> handle;
    int gpu;
    std::atomic<uint64_t> added_moment;  // moment of Add
    // Number of readings. Each reading gets its number before the driver is called. A reading that
    // returns after a later one is dropped.
    std::atomic<uint64_t> readings;
    std::atomic<uint32_t> trims;
    SpinLock lock;             // guards the next two fields
    uint64_t charged_reading;  // number of the reading that is charged
    uint64_t charged;          // bytes
  };

  Pool& At(int index) const {
    return chunks_[index / kPoolsPerChunk].load()[index % kPoolsPerChunk];
  }
  // The index of the pool in the first `count` entries, or -1.
  int FindIn(int count, cuda::MemPool pool) const;

  SpinLock lock_;                // held while a pool is added
  std::atomic<int> count_ = {};  // 1 + the highest index that was ever used
  // Each chunk is memory from mmap, which never moves.
  std::atomic<Pool*> chunks_[kMaxPools / kPoolsPerChunk] = {};
};

}  // namespace tessera::limiter
