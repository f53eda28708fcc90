// SPDX-License-Identifier: Apache-2.0
#include "src/agent/supervisor.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

constexpr SupervisorOptions kFast = {.first_wait = std::chrono::milliseconds(1),
                                     .longest_wait = std::chrono::milliseconds(4)};

// Runs `body` in another process, because Supervise requires one thread, and changes the name and
// the signals of its process.
template <typename Body>
int InProcess(const Body& body) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(body());
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// Counts the starts of the agent in a file, which gets one byte for each start.
size_t CountStart(const std::string& file) {
  const size_t before = ReadFile(file).value_or("").size();
  (void)WriteFileAtomically(file, std::string(before + 1, 'x'), 0600).ok();
  return before + 1;
}

TEST(SupervisorTest, RestartsAProcessKilledByASignalAndReturnsTheExitCode) {
  const TempDir dir;
  const std::string file = JoinPath(dir.path(), "starts");
  const int code = InProcess([&] {
    return Supervise(
        [&] {
          if (CountStart(file) < 4) ::raise(SIGKILL);
          return 7;
        },
        kFast);
  });
  EXPECT_EQ(code, 7);
  EXPECT_EQ(ReadFile(file)->size(), 4u);
}

TEST(SupervisorTest, AnAgentThatExitsIsNotStartedAgain) {
  const TempDir dir;
  const std::string file = JoinPath(dir.path(), "starts");
  EXPECT_EQ(InProcess([&] {
              return Supervise(
                  [&] {
                    CountStart(file);
                    return 78;
                  },
                  kFast);
            }),
            78);
  EXPECT_EQ(ReadFile(file)->size(), 1u);
}

TEST(SupervisorTest, PassesSigtermToTheAgentAndEndsWithIt) {
  const int code = InProcess([] {
    const pid_t supervisor = ::getpid();
    return Supervise(
        [supervisor] {
          sigset_t term;
          ::sigemptyset(&term);
          ::sigaddset(&term, SIGTERM);
          ::sigprocmask(SIG_BLOCK, &term, nullptr);
          ::kill(supervisor, SIGTERM);
          int got = 0;
          ::sigwait(&term, &got);
          return got == SIGTERM ? 3 : 4;
        },
        kFast);
  });
  EXPECT_EQ(code, 3);
}

TEST(SupervisorTest, AnAgentThatCrashesAfterSigtermIsNotStartedAgain) {
  const int code = InProcess([] {
    const pid_t supervisor = ::getpid();
    return Supervise(
        [supervisor] {
          ::kill(supervisor, SIGTERM);
          while (true) ::pause();
          return 0;
        },
        kFast);
  });
  EXPECT_EQ(code, 128 + SIGTERM);
}

}  // namespace
}  // namespace tessera::agent
