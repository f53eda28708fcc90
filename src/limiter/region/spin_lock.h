// SPDX-License-Identifier: Apache-2.0
// A lock that is held for a few instructions, never across a driver or system call. It needs no
// destructor and can be reset in a child after fork. Threads: any.
#pragma once

#include <sched.h>

#include <atomic>

namespace tessera::limiter {

class SpinLock {
 public:
  void Lock() {
    for (int spins = 0; locked_.exchange(true, std::memory_order_acquire); ++spins) {
      // The holder may wait for this CPU.
      if (spins > kSpins) ::sched_yield();
    }
  }
  bool TryLock() { return !locked_.exchange(true, std::memory_order_acquire); }
  void Unlock() { locked_.store(false, std::memory_order_release); }
  // For a child after fork: the thread that held the lock does not exist there.
  void Reset() { locked_.store(false); }

 private:
  static constexpr int kSpins = 100;
  std::atomic<bool> locked_{false};
};

class SpinGuard {
 public:
  explicit SpinGuard(SpinLock* lock) : lock_(lock) { lock_->Lock(); }
  ~SpinGuard() { lock_->Unlock(); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock* const lock_;
};

}  // namespace tessera::limiter
