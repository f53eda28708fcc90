// SPDX-License-Identifier: Apache-2.0
// Transports requests to the API server. A client uses HTTP (net::HttpClient); a simulation
// provides its own network and runs the same client under virtual time.
//
// Threads: created, used and destroyed on the client's runner. Callbacks run there, never inside
// the call that registered them, and never after the Operation or the transport is destroyed.
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

// A pending request, including the waits between its retries. Destroying it cancels the request:
// the callback is no longer called, but the server may still process the request.
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
  // If no response was received, the error is an error of net/http_client.h.
  virtual Operation Send(net::Request request, const net::HttpClient::CallOptions& options,
                         OnResponse on_done) = 0;
  virtual Operation Stream(net::Request request, const net::Deadlines& deadlines,
                           net::StreamHandler handler) = 0;
  // Sets the client certificate (PEM) of new connections.
  virtual void SetCertificate(const std::string& certificate, const std::string& key) = 0;
};

// The HTTP transport to `config.server`.
std::unique_ptr<ApiTransport> MakeHttpTransport(net::IoThread& io, TaskRunner& runner,
                                                const Config& config, size_t max_idle_connections);

}  // namespace tessera::kube
