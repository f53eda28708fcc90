// SPDX-License-Identifier: Apache-2.0
#include <netinet/tcp.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include "src/net/io_thread_impl.h"

namespace tessera::net {
namespace {

using boost::system::error_code;
using Endpoint = asio::generic::stream_protocol::endpoint;

// The Connection Attempt Delay of RFC 8305, section 5.
constexpr Duration kAttemptDelay = std::chrono::milliseconds(250);
constexpr size_t kMaxProxyAnswerBytes = 16 << 10;

// REQUIRES: CheckSocketPath accepts the address. Asio throws for a longer path.
std::optional<Endpoint> EndpointWithoutLookup(const Address& address) {
  if (!address.unix_path.empty()) {
    return Endpoint(asio::local::stream_protocol::endpoint(address.unix_path));
  }
  error_code not_an_address;
  const auto ip = asio::ip::make_address(address.host, not_an_address);
  if (not_an_address) return std::nullopt;
  return Endpoint(asio::ip::tcp::endpoint(ip, address.port));
}

// Has no effect on unix sockets.
void SetTcpOptions(int fd) {
  const auto set = [fd](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof(value));
  };
  // Nagle's algorithm holds back a small segment until the previous one is acknowledged, and Linux
  // may delay that ACK by 40 ms.
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // Ends a silent watch within a minute after the server has disappeared. By default Linux sends
  // the first probe after two hours.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 30);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Alternates address families in the system's order of preference (RFC 8305, section 4).
std::vector<Endpoint> InterleaveFamilies(const std::vector<Endpoint>& sorted) {
  std::vector<Endpoint> first, second, merged;
  for (const Endpoint& endpoint : sorted) {
    const bool preferred = endpoint.protocol().family() == sorted[0].protocol().family();
    (preferred ? first : second).push_back(endpoint);
  }
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i < first.size()) merged.push_back(first[i]);
    if (i < second.size()) merged.push_back(second[i]);
  }
  return merged;
}

// Before the tunnel is open, an error names the proxy, if any.
Status ConnectError(const Destination& to, std::string_view step, const error_code& error) {
  const Status status = FromErrorCode(step, error);
  return to.proxy ? status.Annotate("the proxy " + to.proxy->ToString()) : status;
}

// An attempt at one address: TCP (or a unix socket), the proxy's tunnel, TLS.
class AddressAttempt : public Attempt, public std::enable_shared_from_this<AddressAttempt> {
 public:
  AddressAttempt(asio::io_context& context, const Destination& to, OnTransport on_done)
      : to_(to), socket_(context), on_done_(std::move(on_done)) {}

  void Start(const Endpoint& endpoint) {
    socket_.async_connect(endpoint, [self = shared_from_this()](const error_code& error) {
      if (!self->on_done_) return;
      if (error) return self->Finish(ConnectError(self->to_, "connect", error));
      SetTcpOptions(self->socket_.native_handle());
      self->plain_ = MakePlainTransport(std::move(self->socket_));
      self->to_.proxy ? self->OpenTunnel() : self->StartTls();
    });
  }

  void Cancel() override {
    on_done_ = nullptr;
    error_code ignored;
    socket_.close(ignored);
    if (plain_) plain_->Close();
    if (handshake_) std::exchange(handshake_, nullptr)->Cancel();
  }

 private:
  void OpenTunnel() {
    const std::string target = to_.address.ToString();
    std::string request = fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n", target);
    if (!to_.proxy->authorization.empty()) {
      request += fmt::format("Proxy-Authorization: {}\r\n", to_.proxy->authorization);
    }
    // If the write fails, the read fails, too.
    plain_->Write(request + "\r\n", [](const Status&) {});
    ReadTunnelAnswer();
  }

  void ReadTunnelAnswer() {
    plain_->Read([self = shared_from_this()](const Status& status, std::string_view bytes) {
      if (!self->on_done_) return;
      if (!status.ok()) return self->FailTunnel(status.message());
      self->answer_ += bytes;
      const size_t end = self->answer_.find("\r\n\r\n");
      if (end != std::string::npos) return self->OnTunnelAnswer(end + 4);
      if (bytes.empty()) return self->FailTunnel("it closed the connection");
      if (self->answer_.size() > kMaxProxyAnswerBytes)
        return self->FailTunnel("its response is too long");
      self->ReadTunnelAnswer();
    });
  }

  void OnTunnelAnswer(size_t header_size) {
    const std::string line = answer_.substr(0, answer_.find("\r\n"));
    const bool accepted = line.starts_with("HTTP/1.") && line.substr(8, 2) == " 2";
    if (!accepted) return FailTunnel(line);
    // In TLS the client sends first.
    if (answer_.size() > header_size) return FailTunnel("it sent data before the client did");
    StartTls();
  }

  void FailTunnel(std::string_view why) {
    Finish(Error(Code::kUnavailable, "the proxy {} rejected the tunnel: {}", to_.proxy->ToString(),
                 why));
  }

  void StartTls() {
    if (!to_.tls) return Finish(std::exchange(plain_, nullptr));
    const std::string& name = to_.server_name.empty() ? to_.address.host : to_.server_name;
    handshake_ = ClientHandshake(std::exchange(plain_, nullptr), to_.tls, name,
                                 [self = shared_from_this()](Result<TransportPtr> result) {
                                   self->Finish(std::move(result));
                                 });
  }

  void Finish(Result<TransportPtr> result) {
    handshake_.reset();
    if (!result.ok() && plain_) plain_->Close();
    if (on_done_) std::exchange(on_done_, nullptr)(std::move(result));
  }

  const Destination to_;
  Socket socket_;
  TransportPtr plain_;
  std::string answer_;  // the proxy's answer
  std::shared_ptr<Attempt> handshake_;
  OnTransport on_done_;  // Empty once called or cancelled.
};

// An attempt at all addresses of a destination, staggered and in parallel.
class Connector : public Attempt, public std::enable_shared_from_this<Connector> {
 public:
  Connector(IoThread& io, Destination to, OnTransport on_done)
      : context_(io.impl().context),
        resolver_(context_),
        stagger_(io),
        to_(std::move(to)),
        on_done_(std::move(on_done)) {}

  void Start(const std::vector<Address>& candidates) {
    const Address& contacted = to_.proxy ? to_.proxy->address : to_.address;
    Status valid = CheckSocketPath(contacted);
    for (const Address& candidate : candidates) {
      if (valid.ok()) valid = CheckSocketPath(candidate);
    }
    if (!valid.ok()) {
      // Posted, because `on_done` must not be called before Connect returns.
      return asio::post(context_, [self = shared_from_this(), valid] { self->Finish(valid); });
    }
    for (const Address& candidate : candidates) {
      if (auto endpoint = EndpointWithoutLookup(candidate)) endpoints_.push_back(*endpoint);
    }
    if (endpoints_.empty()) {
      if (auto endpoint = EndpointWithoutLookup(contacted)) endpoints_.push_back(*endpoint);
    }
    if (!endpoints_.empty()) return TryNext();
    // Asio starts a thread for getaddrinfo only here.
    resolver_.async_resolve(contacted.host, std::to_string(contacted.port),
                            [self = shared_from_this()](const error_code& error, auto results) {
                              if (error)
                                return self->Finish(ConnectError(self->to_, "name lookup", error));
                              for (const auto& result : results)
                                self->endpoints_.emplace_back(result.endpoint());
                              if (self->endpoints_.empty()) return self->Finish(self->last_error_);
                              self->endpoints_ = InterleaveFamilies(self->endpoints_);
                              self->TryNext();
                            });
  }

  void Cancel() override {
    on_done_ = nullptr;
    resolver_.cancel();
    stagger_.Stop();
    for (const auto& attempt : std::exchange(attempts_, {})) attempt->Cancel();
  }

 private:
  using Resolver = asio::ip::basic_resolver<asio::ip::tcp, asio::io_context::executor_type>;

  void TryNext() {
    if (!on_done_ || next_endpoint_ == endpoints_.size()) return;
    ++running_attempts_;
    const auto attempt = std::make_shared<AddressAttempt>(
        context_, to_, [self = shared_from_this()](Result<TransportPtr> result) {
          self->OnAttemptEnd(std::move(result));
        });
    attempts_.push_back(attempt);
    attempt->Start(endpoints_[next_endpoint_++]);
    if (next_endpoint_ == endpoints_.size()) return;
    stagger_.Start(kAttemptDelay, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->TryNext();
    });
  }

  void OnAttemptEnd(Result<TransportPtr> result) {
    --running_attempts_;
    if (result.ok()) return Finish(std::move(result));
    // A rejected certificate is more informative than a closed port.
    if (last_error_.code() != Code::kUnauthenticated) last_error_ = result.status();
    TryNext();
    if (running_attempts_ == 0) Finish(last_error_);
  }

  void Finish(Result<TransportPtr> result) {
    if (!on_done_) return;
    const OnTransport on_done = std::exchange(on_done_, nullptr);
    Cancel();
    on_done(std::move(result).Annotate(to_.address.ToString()));
  }

  asio::io_context& context_;
  Resolver resolver_;
  Timer stagger_;
  const Destination to_;
  OnTransport on_done_;  // Empty once called or cancelled.
  std::vector<Endpoint> endpoints_;
  size_t next_endpoint_ = 0;
  int running_attempts_ = 0;
  Status last_error_ = Error(Code::kUnavailable, "the name has no address");
  std::vector<std::shared_ptr<AddressAttempt>> attempts_;
};

}  // namespace

std::shared_ptr<Attempt> Connect(IoThread& io, Destination destination,
                                 const std::vector<Address>& candidates, OnTransport on_done) {
  auto connector = std::make_shared<Connector>(io, std::move(destination), std::move(on_done));
  connector->Start(candidates);
  return connector;
}

}  // namespace tessera::net
