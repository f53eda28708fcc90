// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 client for one server: it keeps and reuses connections, re-reads rotated
// certificates, and delivers responses as a whole or in pieces. It does not support redirects,
// cookies or gzip, and does not retry by status code (src/kube does).
// It tries the server's addresses at most 250 ms apart and uses the first that answers. Connections
// that are some minutes old are not reused, so that load returns to servers that were down.
//
// Threads: created, used and destroyed on `runner`'s thread; callbacks run there, too, but never
// inside the call that requested them, and never after the HttpCall or the client is destroyed.
// Sockets live on the IoThread. Idle cost: none; one timer closes a kept connection after
// `idle_timeout`.
//
// Errors of both Send and Stream:
//   INVALID_ARGUMENT    the request cannot be sent as HTTP; the response is not HTTP
//   UNAVAILABLE         cannot connect; the connection broke before the response was complete
//   UNAUTHENTICATED     the server's certificate is not accepted
//   DEADLINE_EXCEEDED   one of the Deadlines; the message names it
//   RESOURCE_EXHAUSTED  the body is longer than `max_body`
// Any status code of the server is a response, not an error.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "src/base/status.h"
#include "src/base/task_runner.h"
#include "src/base/weak_ptr.h"
#include "src/net/address.h"
#include "src/net/http.h"
#include "src/net/io_thread.h"
#include "src/net/tls.h"

namespace tessera::net {

// Time limits of a call. Zero: no limit.
struct Deadlines {
  Duration connect = std::chrono::seconds(10);  // name lookup, TCP, TLS
  Duration header = std::chrono::seconds(30);   // from sending until the response's header
  Duration body = std::chrono::seconds(60);     // the whole body
  Duration stall = Duration::zero();            // silence between two pieces of the body
};

// A running request. Its destructor cancels the request and drops the callback.
class [[nodiscard]] HttpCall {
 public:
  struct State;

  HttpCall() = default;
  explicit HttpCall(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~HttpCall() { Cancel(); }
  HttpCall(HttpCall&& other) noexcept : state_(std::move(other.state_)) {}
  HttpCall& operator=(HttpCall&& other) noexcept;

  void Cancel();
  // False once the last callback was called, the request was cancelled or the client destroyed.
  bool active() const;

 private:
  std::shared_ptr<State> state_;
};

// Receives a response in pieces: on_head, any number of on_data, then on_end; an error before the
// header calls only on_end. While on_data runs at most half a MiB is read ahead, so that a slow
// reader slows down the server instead of filling the client's memory. `on_end` may drop its own
// HttpCall.
struct StreamHandler {
  std::function<void(const Response& head)> on_head;
  std::function<void(std::string_view piece)> on_data;
  std::function<void(Status status)> on_end;
};

class HttpClient {
 public:
  struct Options {
    Url server;  // its path precedes every target
    TlsOptions tls;
    std::optional<Proxy> proxy;  // REQUIRES: server.tls
    size_t max_idle_connections = 4;
    Duration idle_timeout = std::chrono::seconds(60);
    // A connection is reused for a random time between three quarters of `max_age` and `max_age`.
    // Zero: no limit.
    Duration max_age = std::chrono::minutes(5);
  };
  struct CallOptions {
    Deadlines deadlines;
    size_t max_body = 64 << 20;  // for Send; streams are unlimited
  };

  HttpClient(IoThread& io, TaskRunner& runner, Options options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // GET, HEAD, PUT and DELETE are sent again on a new connection if a kept connection turns out to
  // be dead before the first byte of a response.
  HttpCall Send(Request request, CallOptions options,
                std::function<void(Result<Response>)> on_done);
  HttpCall Stream(Request request, CallOptions options, StreamHandler handler);

  // Uses this certificate from now on, and closes kept connections.
  void SetCertificate(PemSource certificate, PemSource key);

  const Options& options() const;

 private:
  struct Core;
  HttpCall Start(Request request, CallOptions options, std::shared_ptr<HttpCall::State> state);

  std::unique_ptr<Core> core_;
  WeakPtrFactory<HttpClient> weak_{this};
};

}  // namespace tessera::net
