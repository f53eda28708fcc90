// SPDX-License-Identifier: Apache-2.0
// How requests reach the API server. A client uses HTTP (net::HttpClient); a simulation brings a
// network of its own and runs the same client under virtual time.
//
// Threads: made, used and destroyed on the client's runner; callbacks run there, never inside the
// call that asked for them, and never after the Operation or the transport is gone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "src/base/task_runner.h"
#include "src/kube/config.h"
#include "src/net/http_client.h"
#include "src/net/io_thread.h"

namespace tessera::kube {

// A request under way, its waits included. Dropping it cancels: the callback is not called any more
// (the server may have acted all the same).
class [[nodiscard]] Operation {
 public:
  Operation() = default;
  explicit Operation(std::function<void()> cancel) : cancel_(std::move(cancel)) {}
  ~Operation() { Cancel(); }
  Operation(Operation&& other) noexcept : cancel_(std::exchange(other.cancel_, nullptr)) {}
  Operation& operator=(Operation&& other) noexcept;
  void Cancel();

 private:
  std::function<void()> cancel_;
};

class ApiTransport {
 public:
  using OnResponse = std::function<void(Result<net::Response>)>;

  virtual ~ApiTransport() = default;
  // Errors are those of net/http_client.h: what kept the request from an answer.
  virtual Operation Send(net::Request request, const net::HttpClient::CallOptions& options,
                         OnResponse on_done) = 0;
  virtual Operation Stream(net::Request request, const net::Deadlines& deadlines,
                           net::StreamHandler handler) = 0;
  // The client certificate of connections from now on (PEM).
  virtual void SetCertificate(const std::string& certificate, const std::string& key) = 0;
};

// Over HTTP, to `config.server`.
std::unique_ptr<ApiTransport> MakeHttpTransport(net::IoThread& io, TaskRunner& runner,
                                                const Config& config, size_t max_idle_connections);

}  // namespace tessera::kube
