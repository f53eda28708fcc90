// SPDX-License-Identifier: Apache-2.0
#include "src/net/unix_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tessera::net {
namespace {

constexpr int kBacklog = 128;

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return Error(Code::kInvalidArgument, "{}: a socket path may have at most {} bytes", path,
                 sizeof(address.sun_path) - 1);
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

Result<Fd> NewSocket() {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::FromErrno("socket", errno);
  return fd;
}

}  // namespace

Status UnixListener::Listen(const std::string& path, mode_t mode) {
  const std::string temporary = path + ".new";
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(temporary));
  ASSIGN_OR_RETURN(Fd fd, NewSocket());
  ::unlink(temporary.c_str());
  // bind(2) fails if the file exists. So the socket gets a new name and is renamed over the old
  // file: connect(2) looks a socket up by its inode (unix_find_bsd in net/unix/af_unix.c).
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Status::FromErrno("bind " + temporary, errno);
  }
  struct stat info {};
  // The umask limits the mode of the file. connect(2) needs write permission on it (unix(7)).
  if (::chmod(temporary.c_str(), mode) != 0 || ::listen(fd.get(), kBacklog) != 0 ||
      ::stat(temporary.c_str(), &info) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    return Status::FromErrno("listening on " + path, error);
  }
  if (path != path_) Close();
  fd_ = std::move(fd);
  path_ = path;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  return Status::Ok();
}

void UnixListener::Close() {
  if (OwnsPath()) ::unlink(path_.c_str());
  fd_.Reset();
  path_.clear();
}

bool UnixListener::OwnsPath() const {
  struct stat info;
  return fd_.valid() && ::lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ &&
         info.st_ino == inode_;
}

Fd UnixListener::Accept() const {
  return Fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

Result<Fd> ConnectUnix(const std::string& path) {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  ASSIGN_OR_RETURN(Fd fd, NewSocket());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Error(Code::kUnavailable, "{}: {}", path, std::strerror(errno));
  }
  return fd;
}

void RemoveSocketWithoutListener(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  const Result<sockaddr_un> address = AddressOf(path);
  const Result<Fd> fd = NewSocket();
  if (!address.ok() || !fd.ok()) return;
  const auto* generic = reinterpret_cast<const sockaddr*>(&*address);
  // ECONNREFUSED: no process listens. A full queue of a process that listens gives EAGAIN, because
  // the socket does not block.
  if (::connect(fd->get(), generic, sizeof(*address)) != 0 && errno == ECONNREFUSED) {
    ::unlink(path.c_str());
  }
}

}  // namespace tessera::net
