// SPDX-License-Identifier: Apache-2.0
// The transport of one process to the API server instead of HTTP, so that the product's
// kube::Client runs under virtual time. Requests and responses are delayed and lost independently,
// and a write may take effect seconds after its sender has given up. Threads: one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "src/kube/api_transport.h"
#include "tests/simulation/api_server.h"
#include "tests/simulation/process.h"

namespace tessera::simulation {

class Connection final : public kube::ApiTransport {
 public:
  // `term` returns the term in which the process leads, 0 if it does not. It is called when a write
  // is sent and when it takes effect, possibly after the process has died.
  Connection(World& world, ApiServer& server, Process& process, std::function<int()> term)
      : world_(world), server_(server), process_(process), term_(std::move(term)) {}

  kube::Operation Send(net::Request request, const net::HttpClient::CallOptions& options,
                       OnResponse on_done) override;
  kube::Operation Stream(net::Request request, const net::Deadlines& deadlines,
                         net::StreamHandler handler) override;
  void SetCertificate(const std::string&, const std::string&) override {}

 private:
  void Respond(const std::weak_ptr<const bool>& request, const OnResponse& on_done,
               Result<net::Response> response, Duration delay);

  World& world_;
  ApiServer& server_;
  Process& process_;
  const std::function<int()> term_;
  const Life life_ = Born();
};

}  // namespace tessera::simulation
