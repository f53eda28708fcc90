// SPDX-License-Identifier: Apache-2.0
// For tests and fuzzing: runs an Http2Session on given bytes of a client, without sockets and TLS.
// Threads: any except `io`'s.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/net/http.h"
#include "src/net/http_server.h"
#include "src/net/io_thread.h"

namespace tessera::net::testing {

struct Http2Outcome {
  std::vector<Request> requests;
  std::string early_frames;  // frames of the server until the client has sent all its bytes
  std::string late_frames;   // frames after that
  size_t gone_clients = 0;   // requests whose client has left before the whole response was sent
  int close_count = 0;       // how often the session has reported its end
};

// A connection whose client sends the preface and `bytes` in pieces of `piece_bytes` bytes, and
// then reads the responses and leaves. Every request is answered with status 200 after the last
// piece. Blocks until the connection has ended. REQUIRES: piece_bytes > 0.
Http2Outcome ReplayHttp2(IoThread& io, const ServerLimits& limits, std::string_view bytes,
                         size_t piece_bytes);

}  // namespace tessera::net::testing
