// SPDX-License-Identifier: Apache-2.0
// Record locks on bytes of the file `slots` (state.h). Private to the sources of State.
#pragma once

#include <errno.h>
#include <fcntl.h>

#include <mutex>

#include "src/sim/state.h"

namespace tessera::sim {

// Each process locks the byte of its slot. The locks of these later bytes guard changes of the
// state.
inline constexpr uint32_t kClaimByte = kMaxSlots;
inline constexpr uint32_t kChargeByte = kMaxSlots + 1;        // + gpu
inline constexpr uint32_t kMigByte = kChargeByte + kMaxGpus;  // + gpu

inline int SetLock(int fd, uint32_t byte, short type, bool wait) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = off_t(byte);
  lock.l_len = 1;
  while (fcntl(fd, wait ? F_SETLKW : F_SETLK, &lock) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

class State::ByteLock {
 public:
  ByteLock(State* state, uint32_t byte) : fd_(state->slots_fd_), byte_(byte), lock_(state->mutex_) {
    error_ = SetLock(fd_, byte_, F_WRLCK, /*wait=*/true);
  }
  ~ByteLock() {
    if (error_ == 0) SetLock(fd_, byte_, F_UNLCK, /*wait=*/false);
  }
  int error() const { return error_; }

 private:
  const int fd_;
  const uint32_t byte_;
  std::lock_guard<std::mutex> lock_;
  int error_;
};

}  // namespace tessera::sim
