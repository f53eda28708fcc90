// SPDX-License-Identifier: Apache-2.0
// Reports to a handler that takes long whether the client still waits for the response.
//
// A client that closes only its sending side counts as gone, because it cannot be distinguished
// from a client that has closed the connection. It still gets the response.
//
// Threads: the thread of the server's runner.
#pragma once

#include <functional>
#include <utility>

namespace tessera::net {

class ClientPresence {
 public:
  bool gone() const { return gone_; }
  // Calls `on_gone` once when the client is gone, or immediately if it is gone already. Replaces
  // the callback of an earlier call.
  void OnGone(std::function<void()> on_gone) {
    if (gone_) return on_gone();
    on_gone_ = std::move(on_gone);
  }
  // Called by the server when the client is gone.
  void MarkGone() {
    if (std::exchange(gone_, true)) return;
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }

 private:
  bool gone_ = false;
  std::function<void()> on_gone_;
};

}  // namespace tessera::net
