// SPDX-License-Identifier: Apache-2.0
#include "src/net/accept_loop.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "src/base/log.h"

namespace tessera::net {
namespace {

bool IsOutOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

Status AcceptLoop::Listen(const std::string& path, mode_t mode) {
  Pause();
  const Status status = listener_.Listen(path, mode);
  Resume();
  return status;
}

void AcceptLoop::Close() {
  Pause();
  listener_.Close();
}

void AcceptLoop::Pause() {
  paused_ = true;
  Unwatch();
}

void AcceptLoop::Resume() {
  paused_ = false;
  Watch();
}

void AcceptLoop::Watch() {
  if (paused_ || watching_ || !listener_.valid()) return;
  watching_ = true;
  runner_->WatchReadable(listener_.fd(), [this] { Accept(); });
}

void AcceptLoop::Unwatch() {
  if (std::exchange(watching_, false)) runner_->Unwatch(listener_.fd());
}

void AcceptLoop::Accept() {
  Fd connection = listener_.Accept();
  const int error = errno;
  if (connection.valid()) {
    error_logged_ = false;
    return on_connection_(std::move(connection));
  }
  // The connection stays in the kernel's queue and the socket readable, so without a pause the loop
  // would spin.
  if (!IsOutOfResources(error)) return;
  if (!std::exchange(error_logged_, true)) {
    Log(Severity::kError, "cannot accept a connection, retrying after a pause",
        {{"socket", listener_.path()}, {"error", std::strerror(error)}});
  }
  Unwatch();
  runner_->PostDelayed(kRetryWait, [this, weak = weak_.Get()] {
    if (weak) Watch();
  });
}

}  // namespace tessera::net
