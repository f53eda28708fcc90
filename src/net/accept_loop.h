// SPDX-License-Identifier: Apache-2.0
// Accepts connections of a unix socket. If the process or the machine runs out of descriptors, the
// loop pauses instead of spinning on a socket that stays readable; the connections wait in the
// kernel. Threads: lives on `runner`.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/net/unix_listener.h"

namespace tessera::net {

class AcceptLoop {
 public:
  // The wait after the process or the machine ran out of descriptors.
  static constexpr Duration kRetryWait = std::chrono::milliseconds(100);

  AcceptLoop(TaskRunner* runner, std::function<void(Fd)> on_connection)
      : runner_(runner), on_connection_(std::move(on_connection)) {}
  ~AcceptLoop() { Close(); }
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;

  // Like UnixListener::Listen.
  Status Listen(const std::string& path, mode_t mode);
  void Close();
  // Like UnixListener::OwnsPath.
  bool OwnsPath() const { return listener_.OwnsPath(); }
  // Leaves connections in the kernel until Resume.
  void Pause();
  void Resume();

 private:
  void Watch();
  void Unwatch();
  void Accept();

  TaskRunner* const runner_;
  const std::function<void(Fd)> on_connection_;
  UnixListener listener_;
  bool paused_ = false;  // by the owner
  bool watching_ = false;
  bool error_logged_ = false;
  WeakPtrFactory<AcceptLoop> weak_{this};
};

}  // namespace tessera::net
