// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/tables/pools.h"

#include "src/limiter/loader/driver.h"

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

int Pools::Find(cuda::MemPool pool) const {
  if (pool == nullptr) return -1;
  for (int i = 0; i < kCapacity; ++i) {
    if (pools_[i].handle.load() == pool) return i;
  }
  return -1;
}

int Pools::Add(cuda::MemPool pool, int gpu) {
  if (const int known = Find(pool); known >= 0) return known;
  const SpinGuard guard(&lock_);
  if (const int known = Find(pool); known >= 0) return known;
  for (int i = 0; i < kCapacity; ++i) {
    if (pools_[i].handle.load() != nullptr) continue;
    pools_[i].gpu = gpu;
    pools_[i].handle.store(pool);
    return i;
  }
  return -1;
}

void Pools::Refresh(int index, Accounts* accounts) {
  Pool& pool = pools_[index];
  if (pool.gpu < 0) return;
  const uint64_t reading = pool.readings.fetch_add(1) + 1;
  uint64_t reserved = 0;
  if (!ReadReserved(pool.handle.load(), &reserved)) return;
  const SpinGuard guard(&pool.lock);
  if (reading < pool.charged_reading) return;
  if (reserved > pool.charged) accounts->Add(pool.gpu, reserved - pool.charged);
  if (reserved < pool.charged) accounts->Release(pool.gpu, pool.charged - reserved);
  pool.charged = reserved;
  pool.charged_reading = reading;
}

void Pools::RefreshAll(Accounts* accounts) {
  for (int i = 0; i < kCapacity; ++i) {
    if (pools_[i].handle.load() != nullptr) Refresh(i, accounts);
  }
}

void Pools::Trim(int gpu, Accounts* accounts) {
  const RelaxedCapture relaxed;
  for (int i = 0; i < kCapacity; ++i) {
    const cuda::MemPool handle = pools_[i].handle.load();
    if (handle == nullptr || pools_[i].gpu != gpu) continue;
    (void)Trim(i, 0, accounts);
  }
}

cuda::Result Pools::Trim(int index, uint64_t keep, Accounts* accounts) {
  const cuda::MemPool handle = pools_[index].handle.load();
  pools_[index].trims.fetch_add(1);
  const cuda::Result result = IsGraphMemory(handle) ? driver.cuDeviceGraphMemTrim(DeviceOf(handle))
                                                    : driver.cuMemPoolTrimTo(handle, keep);
  if (result == cuda::Result::kSuccess) Refresh(index, accounts);
  return result;
}

void Pools::Remove(int index, Accounts* accounts) {
  Pool& pool = pools_[index];
  const SpinGuard guard(&pool.lock);
  if (pool.charged != 0) accounts->Release(pool.gpu, pool.charged);
  pool.charged = 0;
  pool.charged_reading = pool.readings.load();
  pool.handle.store(nullptr);
}

void Pools::Reset() {
  for (Pool& pool : pools_) {
    pool.handle.store(nullptr);
    pool.lock.Reset();
    pool.charged = 0;
  }
  lock_.Reset();
}

}  // namespace tessera::limiter
