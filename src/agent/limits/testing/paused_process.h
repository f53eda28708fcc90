// SPDX-License-Identifier: Apache-2.0
// For tests: a child process that waits until it is killed, at the latest by the destructor.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera::agent {

class PausedProcess {
 public:
  PausedProcess() : pid_(::fork()) {
    if (pid_ != 0) return;
    ::pause();
    ::_exit(0);
  }
  ~PausedProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  PausedProcess(const PausedProcess&) = delete;
  PausedProcess& operator=(const PausedProcess&) = delete;

  pid_t pid() const { return pid_; }
  bool IsAlive() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
  }
  // Waits for the end of the process, and returns the signal that ended it.
  int Signal() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
    return info.si_status;
  }

 private:
  const pid_t pid_;
};

}  // namespace tessera::agent
