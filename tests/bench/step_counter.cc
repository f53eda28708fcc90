// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/step_counter.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tessera {

#if defined(__x86_64__)
namespace {

constexpr long kSyscall = 0x050f;
constexpr long kCpuid = 0xa20f;

[[noreturn]] void Start(const std::vector<std::string>& argv) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  ::execv(arguments[0], arguments.data());
  ::_exit(127);
}

bool HasExecuted(int status) { return status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXEC << 8)); }

}  // namespace

std::optional<StepCount> CountSteps(const std::vector<std::string>& argv) {
  const pid_t child = ::fork();
  if (child == 0) Start(argv);
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return {};
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL);
  StepCount count;
  while (WIFSTOPPED(status) && !HasExecuted(status)) {
    user_regs_struct registers;
    ::ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    const long code = ::ptrace(PTRACE_PEEKTEXT, child, registers.rip, nullptr) & 0xffff;
    ++count.instructions;
    count.system_calls += code == kSyscall ? 1 : 0;
    count.cpuids += code == kCpuid ? 1 : 0;
    ::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr);
    if (::waitpid(child, &status, 0) != child) return {};
  }
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGKILL);
    ::waitpid(child, &status, 0);
  }
  return count;
}

#else

std::optional<StepCount> CountSteps(const std::vector<std::string>&) { return {}; }

#endif

}  // namespace tessera
