// SPDX-License-Identifier: Apache-2.0
#include "src/sim/state_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

namespace tessera::sim {
namespace {

// A message of `size` bytes with room for a descriptor.
struct Message {
  Message(void* bytes, size_t size) : part{bytes, size} {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  iovec part;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header = {};
};

}  // namespace

bool IsSocket(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

int ConnectTo(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return errno = ENAMETOOLONG, -1;
  memcpy(address.sun_path, path.c_str(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval limit = {2, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int error = errno;
  close(fd);
  return errno = error, -1;
}

bool SendFile(int socket, const void* bytes, size_t size, int fd) {
  Message message(const_cast<void*>(bytes), size);
  cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(fd));
  memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  return sendmsg(socket, &message.header, MSG_NOSIGNAL) == ssize_t(size);
}

bool ReceiveFile(int socket, void* bytes, size_t size, int* fd) {
  Message message(bytes, size);
  const ssize_t received = recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
  if (received < 0) return false;
  const cmsghdr* rights = CMSG_FIRSTHDR(&message.header);
  if (rights == nullptr || rights->cmsg_type != SCM_RIGHTS) return errno = EPROTO, false;
  memcpy(fd, CMSG_DATA(rights), sizeof(*fd));
  if (received == ssize_t(size)) return true;
  close(*fd);
  return errno = EPROTO, false;
}

}  // namespace tessera::sim
