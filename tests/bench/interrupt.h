// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and SIGTERM end a benchmark at its next step, as a failure does, so that it removes the
// mounts, containers, processes and folders that it made. The children of a program in a terminal
// get Ctrl-C, too: a benchmark whose children must finish their work gives them a process group of
// their own. Threads: any.
#pragma once

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tessera::testing {

inline constexpr int kInterruptedExit = 128 + SIGINT;

inline volatile sig_atomic_t interrupt_signal = 0;

// Starts to catch the signals. A second signal ends the program at once.
inline void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { interrupt_signal = signal; };
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
}

inline bool Interrupted() { return interrupt_signal != 0; }

// False if the program was interrupted before the end of `time`.
inline bool SleepUnlessInterrupted(std::chrono::milliseconds time) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + time; !Interrupted() && Clock::now() < end;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    std::this_thread::sleep_for(std::min(left, std::chrono::milliseconds(100)));
  }
  return !Interrupted();
}

}  // namespace tessera::testing
