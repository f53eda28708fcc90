// SPDX-License-Identifier: Apache-2.0
#include "src/agent/supervisor.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "src/base/log.h"
#include "src/base/status.h"

namespace tessera::agent {
namespace {

// The supervisor is the first process of the container's PID namespace. The kernel drops a signal
// that such a process neither handles nor blocks (sig_task_ignored and sig_ignored in
// kernel/signal.c). So the supervisor blocks its signals and receives them with sigwaitinfo.
sigset_t HandledSignals() {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGCHLD}) ::sigaddset(&set, signal);
  return set;
}

bool IsStopSignal(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGQUIT; }

class Supervisor {
 public:
  Supervisor(const std::function<int()>& agent, const SupervisorOptions& options)
      : agent_(agent),
        options_(options),
        wait_(options.first_wait),
        handled_signals_(HandledSignals()) {
    ::sigprocmask(SIG_BLOCK, &handled_signals_, &original_mask_);
  }
  ~Supervisor() { ::sigprocmask(SIG_SETMASK, &original_mask_, nullptr); }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int Run() {
    while (true) {
      Start();
      const int status = WaitForChild();
      if (WIFEXITED(status)) return WEXITSTATUS(status);
      const int signal = WTERMSIG(status);
      if (stopping_) return 128 + signal;
      Log(Severity::kError, "the agent was killed and is started again", {{"signal", signal}});
      BackOff();
      if (stopping_) return 128 + signal;
    }
  }

 private:
  void Start() {
    started_at_ = clock_.Now();
    const pid_t parent = ::getpid();
    child_ = ::fork();
    TESSERA_CHECK(child_ >= 0);
    if (child_ != 0) return;
    ::sigprocmask(SIG_SETMASK, &original_mask_, nullptr);
    // The kernel sends the signal when the thread that called fork ends (prctl(2)), here the only
    // thread of the parent.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    // The parent may have died before the prctl.
    if (::getppid() != parent) ::_exit(1);
    ::_exit(agent_());
  }

  // Forwards signals until the child ends, and returns its wait status.
  int WaitForChild() {
    while (true) {
      if (const std::optional<int> status = Reap()) return *status;
      const int signal = ::sigwaitinfo(&handled_signals_, nullptr);
      if (signal <= 0 || signal == SIGCHLD) continue;
      stopping_ |= IsStopSignal(signal);
      ::kill(child_, signal);
    }
  }

  // Reaps all ended children, orphans included.
  std::optional<int> Reap() {
    std::optional<int> ended;
    int status = 0;
    for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid == child_) ended = status;
    }
    return ended;
  }

  void BackOff() {
    if (clock_.Now() - started_at_ >= options_.stable_after) wait_ = options_.first_wait;
    const MonotonicTime deadline = clock_.Now() + wait_;
    wait_ = std::min(wait_ * 2, options_.longest_wait);
    for (Duration remaining;
         !stopping_ && (remaining = deadline - clock_.Now()) > Duration::zero();) {
      const timespec limit = {.tv_sec = remaining / std::chrono::seconds(1),
                              .tv_nsec = (remaining % std::chrono::seconds(1)).count()};
      stopping_ |= IsStopSignal(::sigtimedwait(&handled_signals_, nullptr, &limit));
    }
  }

  const std::function<int()>& agent_;
  const SupervisorOptions options_;
  const SystemClock clock_;
  Duration wait_;
  sigset_t handled_signals_;
  sigset_t original_mask_;
  MonotonicTime started_at_;
  pid_t child_ = -1;
  bool stopping_ = false;
};

}  // namespace

int Supervise(const std::function<int()>& agent, const SupervisorOptions& options) {
  // The parent gets another name, so that a search for the agent by name finds only the child.
  ::prctl(PR_SET_NAME, "tessera-init");
  const auto renamed_agent = [&agent] {
    ::prctl(PR_SET_NAME, "tessera-agent");
    return agent();
  };
  return Supervisor(renamed_agent, options).Run();
}

}  // namespace tessera::agent
