// SPDX-License-Identifier: Apache-2.0
#include "src/base/open_at2.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

namespace tessera {

Fd OpenAt2(int folder, const std::string& path, uint64_t flags, uint64_t resolve) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.resolve = resolve;
  long fd = -1;
  do {  // EAGAIN: a rename interfered with the path walk
    fd = ::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof(how));
  } while (fd < 0 && (errno == EAGAIN || errno == EINTR));
  return Fd(static_cast<int>(fd));
}

Result<std::string> PathOfFd(int fd) {
  std::array<char, PATH_MAX> path;
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  const ssize_t length = ::readlink(link.c_str(), path.data(), path.size());
  if (length < 0) return Status::FromErrno(link, errno);
  return std::string(path.data(), static_cast<size_t>(length));
}

}  // namespace tessera
