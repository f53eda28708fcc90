// SPDX-License-Identifier: Apache-2.0
#include "src/limiter/pools.h"

#include "src/limiter/driver.h"

namespace tessera::limiter {
namespace {

// CUmemPool_attribute
constexpr int kReservedCurrent = 5;

bool Read(cuda::MemPool pool, int attribute, uint64_t* value) {
  return driver.cuMemPoolGetAttribute(pool, attribute, value) == cuda::Result::kSuccess;
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
  const uint64_t reading = pool.readings.fetch_add(1) + 1;
  uint64_t reserved = 0;
  if (!Read(pool.handle.load(), kReservedCurrent, &reserved)) return;
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
  for (int i = 0; i < kCapacity; ++i) {
    const cuda::MemPool handle = pools_[i].handle.load();
    if (handle == nullptr || pools_[i].gpu != gpu) continue;
    if (driver.cuMemPoolTrimTo(handle, 0) == cuda::Result::kSuccess) Refresh(i, accounts);
  }
}

void Pools::Remove(int index, Accounts* accounts) {
  Pool& pool = pools_[index];
  const SpinGuard guard(&pool.lock);
  accounts->Release(pool.gpu, pool.charged);
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
