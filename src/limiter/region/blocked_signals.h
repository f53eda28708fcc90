// SPDX-License-Identifier: Apache-2.0
// While an object of this class lives, a write of its thread cannot end the program: neither
// SIGPIPE (no reader) nor SIGXFSZ (limit of file size) is delivered. The write fails with EPIPE or
// EFBIG. The kernel sends both signals to the thread that writes, so other threads are not
// affected. Threads: any; each thread has its own object.
#pragma once

#include <errno.h>
#include <signal.h>
#include <time.h>

#include <initializer_list>

namespace tessera::limiter {

class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::sigaddset(&signals, SIGPIPE);
    ::sigaddset(&signals, SIGXFSZ);
    ::sigpending(&pending_);
    // sigprocmask changes the mask of this thread alone on Linux. pthread_sigmask is in libpthread
    // before glibc 2.32.
    ::sigprocmask(SIG_BLOCK, &signals, &mask_);
  }
  // Removes the signals that were sent meanwhile. Signals that were pending before stay pending,
  // and errno is unchanged.
  ~BlockedSignals() {
    const int error = errno;
    for (const int number : {SIGPIPE, SIGXFSZ}) {
      if (::sigismember(&pending_, number)) continue;
      sigset_t signal_set;
      ::sigemptyset(&signal_set);
      ::sigaddset(&signal_set, number);
      constexpr timespec kNoWait{};
      (void)::sigtimedwait(&signal_set, nullptr, &kNoWait);
    }
    ::sigprocmask(SIG_SETMASK, &mask_, nullptr);
    errno = error;
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t pending_;
  sigset_t mask_;
};

}  // namespace tessera::limiter
