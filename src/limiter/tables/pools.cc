// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/pools.h"

#include <sys/mman.h>

#include "src/limiter/loader/driver.h"
#include "src/limiter/tables/moment.h"

namespace tessera::limiter {
namespace {

// CUmemPool_attribute
constexpr int kReservedCurrent = 5;

bool IsGraphMemory(cuda::MemPool pool) { return (reinterpret_cast<uintptr_t>(pool) & 1) != 0; }
cuda::Device DeviceOf(cuda::MemPool pool) {
  return cuda::Device(reinterpret_cast<uintptr_t>(pool) / 2);
}

bool ReadReserved(cuda::MemPool pool, uint64_t* value) {
  const cuda::Result result =
      IsGraphMemory(pool)
          ? driver.cuDeviceGetGraphMemAttribute(DeviceOf(pool), cuda::kGraphMemReserved, value)
          : driver.cuMemPoolGetAttribute(pool, kReservedCurrent, value);
  return result == cuda::Result::kSuccess;
}

}  // namespace

int Pools::FindIn(int count, cuda::MemPool pool) const {
  for (int first = 0; first < count; first += kPoolsPerChunk) {
    const Pool* const chunk = chunks_[first / kPoolsPerChunk].load();
    for (int i = 0; i < kPoolsPerChunk && first + i < count; ++i) {
      if (chunk[i].handle.load() == pool) return first + i;
    }
  }
  return -1;
}

int Pools::Find(cuda::MemPool pool) const {
  return pool == nullptr ? -1 : FindIn(count_.load(), pool);
}

int Pools::Add(cuda::MemPool pool, int gpu) {
  if (const int known = Find(pool); known >= 0) return known;
  const SpinGuard guard(&lock_);
  if (const int known = Find(pool); known >= 0) return known;
  const int count = count_.load();
  int free = FindIn(count, nullptr);
  if (free < 0) free = count;
  if (free == kMaxPools) return -1;
  std::atomic<Pool*>& chunk = chunks_[free / kPoolsPerChunk];
  if (chunk.load() == nullptr) {
    void* memory = ::mmap(nullptr, kPoolsPerChunk * sizeof(Pool), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return -1;
    chunk.store(static_cast<Pool*>(memory));
  }
  At(free).gpu = gpu;
  At(free).added_moment.store(NextMoment());
  At(free).handle.store(pool);
  if (free == count) count_.store(count + 1);
  return free;
}

void Pools::Refresh(int index, MemoryBudget* budget) {
  Pool& pool = At(index);
  if (pool.gpu < 0) return;
  const uint64_t reading = pool.readings.fetch_add(1) + 1;
  uint64_t reserved = 0;
  if (!ReadReserved(pool.handle.load(), &reserved)) return;
  const SpinGuard guard(&pool.lock);
  if (reading < pool.charged_reading) return;
  if (reserved > pool.charged) budget->Add(pool.gpu, reserved - pool.charged);
  if (reserved < pool.charged) budget->Release(pool.gpu, pool.charged - reserved);
  pool.charged = reserved;
  pool.charged_reading = reading;
}

void Pools::RefreshAll(MemoryBudget* budget) {
  for (int i = 0; i < count_.load(); ++i) {
    if (At(i).handle.load() != nullptr) Refresh(i, budget);
  }
}

void Pools::TrimAll(int gpu, MemoryBudget* budget) {
  const RelaxedCapture relaxed;
  for (int i = 0; i < count_.load(); ++i) {
    const cuda::MemPool handle = At(i).handle.load();
    if (handle == nullptr || At(i).gpu != gpu) continue;
    (void)Trim(i, 0, budget);
  }
}

cuda::Result Pools::Trim(int index, uint64_t kept_bytes, MemoryBudget* budget) {
  const cuda::MemPool handle = At(index).handle.load();
  At(index).trims.fetch_add(1);
  const cuda::Result result = IsGraphMemory(handle) ? driver.cuDeviceGraphMemTrim(DeviceOf(handle))
                                                    : driver.cuMemPoolTrimTo(handle, kept_bytes);
  if (result == cuda::Result::kSuccess) Refresh(index, budget);
  return result;
}

void Pools::Remove(int index, uint64_t call_moment, MemoryBudget* budget) {
  Pool& pool = At(index);
  const SpinGuard guard(&pool.lock);
  if (pool.added_moment.load() >= call_moment) return;
  if (pool.charged != 0) budget->Release(pool.gpu, pool.charged);
  pool.charged = 0;
  pool.charged_reading = pool.readings.load();
  pool.handle.store(nullptr);
}

void Pools::Reset() {
  for (int i = 0; i < count_.load(); ++i) {
    Pool& pool = At(i);
    pool.handle.store(nullptr);
    pool.lock.Reset();
    pool.charged = 0;
  }
  lock_.Reset();
}

}  // namespace tessera::limiter
