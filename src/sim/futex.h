// SPDX-License-Identifier: Apache-2.0
// Waits on a word of shared memory. The futexes are not private, because their waiters may be in
// other processes, pid namespaces and mounts, which share the inode of the state file.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace tessera::sim {

// Returns when woken, when `*word` is not `expected`, after `timeout_ns`, or spuriously.
inline void FutexWait(std::atomic<uint32_t>* word, uint32_t expected, uint64_t timeout_ns) {
  timespec timeout;
  timeout.tv_sec = time_t(timeout_ns / 1'000'000'000);
  timeout.tv_nsec = long(timeout_ns % 1'000'000'000);
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

inline void FutexWakeAll(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace tessera::sim
