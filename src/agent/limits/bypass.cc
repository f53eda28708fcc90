// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/bypass.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/strings.h"

namespace tessera::agent {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

// The path in one line of a memory map, which follows address, rights, offset, device and inode.
std::string_view PathOf(std::string_view line) {
  const size_t begin = line.find('/');
  return begin == std::string_view::npos ? "" : line.substr(begin);
}

std::string_view NameOf(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

std::string DescribeBypass(std::string_view maps) {
  std::string_view driver_libcuda, other_libcuda;
  bool has_limits = false, usage_deleted = false;
  for (const std::string_view line : Split(maps, '\n')) {
    const std::string_view path = PathOf(line);
    if (path.find("/tessera/real/libcuda") != std::string_view::npos) {
      driver_libcuda = path;
    } else if (NameOf(path).starts_with("libcuda.so")) {
      other_libcuda = path;
    }
    has_limits |= path.ends_with("/tessera/limits/limits");
    usage_deleted |=
        path.find("/tessera/usage/") != std::string_view::npos && path.ends_with(kDeleted);
  }
  if (usage_deleted) {
    return "the container has deleted its usage file in /dev/tessera/usage, where its processes "
           "record their device memory; restart the container, and do not change that file";
  }
  // At a program's first call, the limiter maps the limits file before any other step that can
  // fail.
  if (has_limits) {
    return "the limiter cannot record this process in the usage file; see the container's log for "
           "the reason";
  }
  if (!driver_libcuda.empty()) {
    return fmt::format(
        "the process calls {} directly and bypasses the limiter; load the library by the name "
        "libcuda.so.1",
        driver_libcuda);
  }
  if (!other_libcuda.empty()) {
    return fmt::format(
        "the process has loaded {}, which is not the node's driver; remove that library from the "
        "image or from its search path",
        other_libcuda);
  }
  return "the process calls the kernel driver without libcuda; use libcuda, or give the pod a "
         "whole GPU";
}

Status KillProcessOf(const ProcessOwner& owner, const std::string& proc_root, int pid) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.valid() && errno == ENOSYS) {
    return Error(Code::kUnimplemented, "pidfd_open: Linux 5.3 or later is needed");
  }
  if (!process.valid()) return Status::FromErrno(fmt::format("process {}", pid), errno);
  // The owner is checked after pidfd_open: the descriptor refers to this process even after its pid
  // is reused.
  if (OwnerOf(proc_root, pid) != owner) {
    return Error(Code::kNotFound, "process {} has ended", pid);
  }
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0) {
    return Status::FromErrno(fmt::format("kill process {}", pid), errno);
  }
  return Status::Ok();
}

}  // namespace tessera::agent
