// SPDX-License-Identifier: Apache-2.0
// The socket of `simgpu serve`, which gives the files of a node to processes in containers that
// have the driver's libraries but no state folder. The socket has the name of NVIDIA's persistence
// daemon, which NVIDIA's container toolkit mounts into containers, read-only.
//
// A client connects and reads two messages (SOCK_SEQPACKET): SlotsFileId with a descriptor of
// `state`, then a byte with a descriptor of `slots`. A process that has a descriptor of `slots`
// skips the second message, because closing another descriptor would drop its locks (state.h).
// Threads: any. Functions that fail set errno.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::sim {

// The path, below a driver root or in a container.
inline constexpr char kStateSocket[] = "/run/nvidia-persistenced/socket";

// Device and inode of `slots`.
struct SlotsFileId {
  uint64_t slots_device, slots_inode;
};

bool IsSocket(const std::string& path);
// A socket that is connected to `path`, or -1 with errno. Calls on it time out after two seconds.
int ConnectTo(const std::string& path);
// Sends `size` bytes and a descriptor, or receives them. False: errno has the reason.
bool SendFile(int socket, const void* bytes, size_t size, int fd);
bool ReceiveFile(int socket, void* bytes, size_t size, int* fd);

}  // namespace tessera::sim
