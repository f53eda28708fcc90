// SPDX-License-Identifier: Apache-2.0
// A small HTTP server for /metrics, /healthz, webhooks and the like. Supports keep-alive, HEAD,
// chunked requests, 100-continue and streamed responses (body_stream.h), and HTTP/2 with
// TlsOptions::http2. It does not route or compress. Request::presence reports to a handler that its
// client is gone.
//
// No peer can block it: sizes, times and connections are bounded. If all connections are taken, a
// new connection replaces the connection whose peer has been slowest: in the TLS handshake, between
// two requests, or in reading its response. Connections that wait for the handler, and idle
// streams, stay. If bodies take too much memory together, the largest incomplete body is rejected.
//
// Threads: created and destroyed on `runner`'s thread; the handler runs there, one request of an
// HTTP/1.1 connection at a time, and never after the server is destroyed. Sockets live on the
// IoThread, which the runner must outlive. Idle cost: none.
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
  size_t max_connections = 64;
  size_t max_header_bytes = 16 << 10;  // more: 431
  size_t max_body_bytes = 1 << 20;     // more: 413
  // Total size of the bodies being read or handled; more: 503. 0: four times max_body_bytes.
  size_t max_total_body_bytes = 0;
  // From accept, or from a request's first byte, to its last byte. Exceeded: 408, then closed.
  Duration request_timeout = std::chrono::seconds(10);
  // From the last byte of a request until the handler replies. Exceeded: 503.
  Duration handler_timeout = std::chrono::seconds(30);
  // How long a peer that has not received the whole response may make no progress. Exceeded:
  // closed.
  Duration write_timeout = std::chrono::seconds(30);
  // Between two requests on one connection. Exceeded: closed.
  Duration idle_timeout = std::chrono::seconds(60);
};

class HttpServer {
 public:
  // Answers one request: call it once, from any thread, at any time. Later calls do nothing.
  using Reply = std::function<void(Response)>;
  using Handler = std::function<void(const Request& request, Reply reply)>;

  struct Options {
    Address address;  // port 0: the system chooses
    ServerLimits limits;
    std::optional<TlsOptions> tls;
  };

  // The server listens when Start returns. UNAVAILABLE with the system's message if it cannot
  // listen; errors of TLS files as in tls.h.
  static Result<std::unique_ptr<HttpServer>> Start(IoThread& io, TaskRunner& runner,
                                                   Options options, Handler handler);
  // Closes all connections and removes the file of a unix socket.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // New connections use these options: another certificate, or other trusted authorities. Open
  // connections keep their options. Check the files first (certificate.h), because with unreadable
  // options new connections are closed. REQUIRES: Options::tls.
  void SetTls(TlsOptions tls);

  // The address to which the server is bound, with the port that the system has chosen.
  const Address& address() const;

 private:
  struct Core;
  explicit HttpServer(std::shared_ptr<Core> core) : core_(std::move(core)) {}

  std::shared_ptr<Core> core_;
};

}  // namespace tessera::net
