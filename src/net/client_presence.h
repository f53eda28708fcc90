// SPDX-License-Identifier: Apache-2.0
// Whether the client of a request still waits for the response, for handlers that take long.
//
// A client that closes its side of the connection counts as gone: it cannot be distinguished from
// one that has closed the connection. It still gets the response.
//
// Threads: the thread of the server's runner.
#pragma once

#include <functional>
#include <utility>

namespace tessera::net {

class ClientPresence {
 public:
  bool gone() const { return gone_; }
  // Replaces the callback of an earlier call. Called at most once; at once if the client is gone.
  void OnGone(std::function<void()> on_gone) {
    if (gone_) return on_gone();
    on_gone_ = std::move(on_gone);
  }
  // For the server.
  void Leave() {
    if (std::exchange(gone_, true)) return;
    if (on_gone_) std::exchange(on_gone_, nullptr)();
  }

 private:
  bool gone_ = false;
  std::function<void()> on_gone_;
};

}  // namespace tessera::net
