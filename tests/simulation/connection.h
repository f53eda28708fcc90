// SPDX-License-Identifier: Apache-2.0
// One process's way to the API server, in place of HTTP: the product's own kube::Client runs over
// it under virtual time. Requests and answers are late or lost each on its own, and a write may
// still take effect seconds after its sender has given it up.
// Threads: one.
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
  // `may_write` says of the process whether it may still write, when its write takes effect. It may
  // be called when the process is gone.
  Connection(World& world, ApiServer& server, Process& process, std::function<bool()> may_write)
      : world_(world), server_(server), process_(process), may_write_(std::move(may_write)) {}

  kube::Operation Send(net::Request request, const net::HttpClient::CallOptions& options,
                       OnResponse on_done) override;
  kube::Operation Stream(net::Request request, const net::Deadlines& deadlines,
                         net::StreamHandler handler) override;
  void SetCertificate(const std::string&, const std::string&) override {}

 private:
  void Answer(const std::weak_ptr<const bool>& request, const OnResponse& on_done,
              Result<net::Response> response, Duration delay);

  World& world_;
  ApiServer& server_;
  Process& process_;
  const std::function<bool()> may_write_;
  const Life life_ = Born();
};

}  // namespace tessera::simulation
