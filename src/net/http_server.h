// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server for /metrics, /healthz, webhooks and the like. Keep-alive, HEAD, chunked
// requests and 100-continue are understood; not for: routing, compression, streaming answers.
//
// A peer cannot block it: sizes, times and connections are bounded. When all connections are taken,
// the one whose peer has been slowest is closed for the new one: in the TLS handshake, between two
// requests, or not reading its answer. Those that wait for the handler stay. When bodies take too
// much together, the largest that is not complete is refused.
//
// Threads: made, and destroyed, on `runner`'s thread; the handler runs there, one request of a
// connection at a time, and never after the server is gone. Sockets live on the IoThread, which the
// runner must outlive. Idle cost: none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/net/address.h"
#include "src/net/http.h"
#include "src/net/io_thread.h"
#include "src/net/tls.h"

namespace tessera::net {

struct ServerLimits {
  size_t connections = 64;
  size_t header_bytes = 16 << 10;  // more: 431
  size_t body_bytes = 1 << 20;     // more: 413
  // Of all bodies that are being read or handled: 503. 0: four times body_bytes.
  size_t all_bodies_bytes = 0;
  // From the first byte of a request, or from accept, to its last byte: 408 and closed.
  Duration request = std::chrono::seconds(10);
  // Until the handler replies: 503.
  Duration handler = std::chrono::seconds(30);
  // Until the peer has taken the answer.
  Duration write = std::chrono::seconds(30);
  // Between two requests on one connection.
  Duration idle = std::chrono::seconds(60);
};

class HttpServer {
 public:
  // Answers one request: call it once, from any thread, now or later. Later calls do nothing.
  using Reply = std::function<void(Response)>;
  using Handler = std::function<void(const Request& request, Reply reply)>;

  struct Options {
    Address address;  // port 0: the system chooses
    ServerLimits limits;
    std::optional<TlsOptions> tls;
  };

  // Listens when it returns. UNAVAILABLE with the system's words where it cannot; errors of TLS
  // files as in tls.h.
  static Result<std::unique_ptr<HttpServer>> Start(IoThread& io, TaskRunner& runner,
                                                   Options options, Handler handler);
  // Closes all connections; a unix socket's file goes with it.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Another certificate to show, and another authority of clients, from the next connection on;
  // open connections keep theirs. Options that cannot be read close new connections: check them
  // before (certificate.h). REQUIRES: Options::tls.
  void SetTls(TlsOptions tls);

  // With the port that the system chose.
  const Address& address() const;

 private:
  struct Core;
  explicit HttpServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  std::shared_ptr<Core> core_;
};

}  // namespace tessera::net
