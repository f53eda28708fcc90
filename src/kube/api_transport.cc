// SPDX-License-Identifier: Apache-2.0
#include "src/kube/api_transport.h"

namespace tessera::kube {
namespace {

Operation OperationOf(net::HttpCall call) {
  auto held = std::make_shared<net::HttpCall>(std::move(call));
  return Operation([held] { held->Cancel(); });
}

class HttpTransport final : public ApiTransport {
 public:
  HttpTransport(net::IoThread& io, TaskRunner& runner, net::HttpClient::Options options)
      : http_(io, runner, std::move(options)) {}

  Operation Send(net::Request request, const net::HttpClient::CallOptions& options,
                 OnResponse on_done) override {
    return OperationOf(http_.Send(std::move(request), options, std::move(on_done)));
  }
  Operation Stream(net::Request request, const net::Deadlines& deadlines,
                   net::StreamHandler handler) override {
    return OperationOf(
        http_.Stream(std::move(request), {.deadlines = deadlines}, std::move(handler)));
  }
  void SetCertificate(const std::string& certificate, const std::string& key) override {
    http_.SetCertificate({.text = certificate}, {.text = key});
  }

 private:
  net::HttpClient http_;
};

}  // namespace

Operation& Operation::operator=(Operation&& other) noexcept {
  if (this == &other) return *this;
  Cancel();
  cancel_ = std::exchange(other.cancel_, nullptr);
  return *this;
}

void Operation::Cancel() {
  if (const auto cancel = std::exchange(cancel_, nullptr)) cancel();
}

std::unique_ptr<ApiTransport> MakeHttpTransport(net::IoThread& io, TaskRunner& runner,
                                                const Config& config, size_t max_idle_connections) {
  return std::make_unique<HttpTransport>(
      io, runner,
      net::HttpClient::Options{.server = config.server,
                               .tls = config.tls,
                               .proxy = config.proxy,
                               .max_idle_connections = max_idle_connections});
}

}  // namespace tessera::kube
