// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/kernel_module.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

constexpr int kCannotStart = 127;

bool IsPresent(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0;
}

// Runs in a child of a program with threads, so it makes only async-signal-safe calls.
[[noreturn]] void RunModprobe(const char* root, const char* program, const char* module) {
  if (::chroot(root) == 0 && ::chdir("/") == 0) {
    // The agent's environment has credentials and paths that modprobe must not get.
    const char* const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
    const char* const argv[] = {"modprobe", module, nullptr};
    ::execve(program, const_cast<char* const*>(argv), const_cast<char* const*>(env));
  }
  ::_exit(kCannotStart);
}

}  // namespace

Status LoadKernelModule(const std::string& root, const std::string& module) {
  const char* program = nullptr;
  for (const char* path : {"/usr/sbin/modprobe", "/sbin/modprobe"}) {
    // It is often a link to an absolute path that exists only inside the root.
    if (program == nullptr && IsPresent(JoinPath(root, path))) program = path;
  }
  if (program == nullptr) {
    return Error(Code::kNotFound,
                 "{} has no sbin/modprobe: run \"modprobe {}\" on the host, or load it at boot "
                 "(/etc/modules-load.d)",
                 root, module);
  }
  const pid_t child = ::fork();
  if (child < 0) return Status::FromErrno("fork", errno);
  if (child == 0) RunModprobe(root.c_str(), program, module.c_str());
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return Status::Ok();
  return Error(
      Code::kFailedPrecondition,
      "modprobe {} failed in {} (exit code {}): run it on the host to see why; agents need "
      "CAP_SYS_MODULE",
      module, root, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

}  // namespace tessera::agent
