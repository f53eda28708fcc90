// SPDX-License-Identifier: Apache-2.0
#include "src/base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <thread>

#include "src/base/file.h"

namespace tessera {
namespace {

constexpr size_t kMaxOutput = 1u << 20;

struct Pipe {
  Fd read_end;
  Fd write_end;
};

Result<Pipe> MakePipe() {
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return Status::FromErrno("pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// Reads once. Returns false at the end of the stream.
bool ReadOnce(int fd, std::string* into) {
  std::array<char, 16384> buffer;
  const ssize_t count = ::read(fd, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  const size_t room = kMaxOutput - std::min(kMaxOutput, into->size());
  into->append(buffer.data(), std::min(room, static_cast<size_t>(count)));
  return count > 0;
}

// Reads both streams until they end. Returns false if the deadline passes first.
bool ReadUntilEnd(int out, int err, MonotonicTime deadline, SubprocessResult* result) {
  std::array<pollfd, 2> polls = {pollfd{out, POLLIN, 0}, pollfd{err, POLLIN, 0}};
  const SystemClock clock;
  while (polls[0].fd >= 0 || polls[1].fd >= 0) {
    const auto wait_ms =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - clock.Now()).count();
    if (wait_ms <= 0) return false;
    if (::poll(polls.data(), polls.size(), static_cast<int>(wait_ms)) < 0 && errno != EINTR) break;
    if (polls[0].revents != 0 && !ReadOnce(out, &result->out)) polls[0].fd = -1;
    if (polls[1].revents != 0 && !ReadOnce(err, &result->err)) polls[1].fd = -1;
  }
  return true;
}

// Waits until the program ends, because it can close its output and continue to run. Returns false
// if the deadline passes first. Polls: Linux before 5.3 has no pidfd.
bool WaitUntilEnd(pid_t pid, MonotonicTime deadline, int* wait_status) {
  const SystemClock clock;
  Duration pause = std::chrono::microseconds(100);
  while (true) {
    const pid_t ended = ::waitpid(pid, wait_status, WNOHANG);
    if (ended == pid || (ended < 0 && errno != EINTR)) return true;
    if (clock.Now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(20));
  }
}

// `extra`, and the variables of this program's environment that `extra` does not set.
std::vector<char*> EnvironmentWith(const std::vector<std::string>& extra) {
  std::vector<char*> pointers;
  for (const std::string& entry : extra) pointers.push_back(const_cast<char*>(entry.c_str()));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(extra.begin(), extra.end(), [&](const std::string& e) {
      return !name.empty() && e.starts_with(name);
    });
    if (!replaced) pointers.push_back(*entry);
  }
  pointers.push_back(nullptr);
  return pointers;
}

Result<pid_t> Spawn(const std::vector<std::string>& argv, int out, int err,
                    const std::vector<std::string>& extra_env) {
  std::vector<char*> pointers;
  for (const std::string& arg : argv) pointers.push_back(const_cast<char*>(arg.c_str()));
  pointers.push_back(nullptr);
  const std::vector<char*> environment = EnvironmentWith(extra_env);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  pid_t pid = -1;
  const int error =
      ::posix_spawnp(&pid, pointers[0], &actions, nullptr, pointers.data(), environment.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return Status::FromErrno(argv[0], error);
  return pid;
}

}  // namespace

Result<SubprocessResult> RunProgram(const std::vector<std::string>& argv, Duration timeout,
                                    const std::vector<std::string>& extra_env) {
  TESSERA_CHECK(!argv.empty());
  const SystemClock clock;
  const MonotonicTime deadline = clock.Now() + timeout;
  ASSIGN_OR_RETURN(Pipe out, MakePipe());
  ASSIGN_OR_RETURN(Pipe err, MakePipe());
  ASSIGN_OR_RETURN(const pid_t pid,
                   Spawn(argv, out.write_end.get(), err.write_end.get(), extra_env));
  out.write_end.Reset();
  err.write_end.Reset();

  SubprocessResult result;
  int wait_status = 0;
  const bool ended_in_time =
      ReadUntilEnd(out.read_end.get(), err.read_end.get(), deadline, &result) &&
      WaitUntilEnd(pid, deadline, &wait_status);
  if (!ended_in_time) {
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    return Error(Code::kDeadlineExceeded, "{} did not end in time and was killed; its output: {}{}",
                 argv[0], result.out, result.err);
  }
  result.exit_code =
      WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
  return result;
}

}  // namespace tessera
