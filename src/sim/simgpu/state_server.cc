// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/state_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "src/sim/simgpu/driver_root.h"
#include "src/sim/state_socket.h"

namespace tessera::sim {
namespace {

Result<Fd> Listen(const std::string& path) {
  // The socket has a temporary name until it accepts connections.
  const std::string temporary_path = path + ".new";
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (temporary_path.size() >= sizeof(address.sun_path)) {
    return Error(
        Code::kInvalidArgument,
        "the path of a socket has at most {} characters, and {} has {}: use a shorter --root",
        sizeof(address.sun_path) - 1, temporary_path, temporary_path.size());
  }
  if (const Fd other(ConnectTo(path)); other.valid()) {
    return Error(Code::kAlreadyExists, "another \"simgpu serve\" serves {}", path);
  }
  RETURN_IF_ERROR(MakeDirs(DirName(path)));
  unlink(temporary_path.c_str());
  std::memcpy(address.sun_path, temporary_path.c_str(), temporary_path.size());
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() ||
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      chmod(temporary_path.c_str(), 0666) != 0 || listen(fd.get(), 128) != 0 ||
      rename(temporary_path.c_str(), path.c_str()) != 0) {
    return Status::FromErrno("listen on " + path, errno);
  }
  return fd;
}

// Sends the current files to a client. Both messages fit into the socket's buffer, so a client that
// reads nothing delays no other.
void Serve(const std::string& state_dir, const Fd& client) {
  const Fd state_file(open((state_dir + "/state").c_str(), O_RDWR | O_CLOEXEC));
  const Fd slots(open((state_dir + "/slots").c_str(), O_RDWR | O_CLOEXEC));
  struct stat slots_info;
  if (!state_file.valid() || !slots.valid() || fstat(slots.get(), &slots_info) != 0) return;
  const SlotsFileId files{slots_info.st_dev, slots_info.st_ino};
  const char second_message = 0;
  if (SendFile(client.get(), &files, sizeof(files), state_file.get())) {
    (void)SendFile(client.get(), &second_message, sizeof(second_message), slots.get());
  }
}

}  // namespace

Status ServeState(const std::string& root, const Fd& stop) {
  const std::string state_dir = StateDir(root);
  if (!PathExists(state_dir + "/state")) {
    return Error(Code::kNotFound,
                 "no simulated node at {}: create it with \"simgpu create\", or set --root or "
                 "$SIMGPU_ROOT",
                 root);
  }
  const std::string path = root + kStateSocket;
  ASSIGN_OR_RETURN(const Fd listener, Listen(path));
  pollfd polled[] = {{listener.get(), POLLIN, 0}, {stop.get(), POLLIN, 0}};
  while (polled[1].revents == 0) {
    if (poll(polled, std::size(polled), -1) < 0 && errno != EINTR) break;
    const Fd client(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client.valid()) Serve(state_dir, client);
  }
  unlink(path.c_str());
  return {};
}

}  // namespace tessera::sim
