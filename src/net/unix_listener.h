// SPDX-License-Identifier: Apache-2.0
// A listening unix socket that can check, by device and inode, whether the file at its path is
// still this socket. Threads: one.
#pragma once

#include <sys/types.h>

#include <string>

#include "src/base/file.h"
#include "src/base/status.h"

namespace tessera::net {

class UnixListener {
 public:
  UnixListener() = default;
  // Removes the file at the path if it is still this socket.
  ~UnixListener() { Close(); }
  UnixListener(const UnixListener&) = delete;
  UnixListener& operator=(const UnixListener&) = delete;

  // Replaces a file at `path`. Binds the socket under another name first, so that it accepts
  // connections as soon as `path` exists.
  Status Listen(const std::string& path, mode_t mode);
  void Close();

  bool valid() const { return fd_.valid(); }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }
  // Whether the file at `path` is this socket.
  bool OwnsPath() const;
  // The next connection, without blocking; invalid if no connection waits.
  Fd Accept() const;

 private:
  Fd fd_;
  std::string path_;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Connects without blocking. UNAVAILABLE with the system's message: no such file, no listener, a
// full backlog.
Result<Fd> ConnectUnix(const std::string& path);

// Removes the file if it is a socket without a listener.
void RemoveSocketWithoutListener(const std::string& path);

}  // namespace tessera::net
