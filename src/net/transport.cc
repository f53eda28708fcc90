// SPDX-License-Identifier: Apache-2.0
#include "src/net/transport.h"

#include <netinet/tcp.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>

#include "src/net/openssl.h"
#include "src/net/socket_transport.h"

namespace tessera::net {
namespace {

namespace ssl = asio::ssl;
using boost::system::error_code;

// Copying it costs less than a second piece does, which TLS would make a record of its own.
constexpr size_t kShort = 4 << 10;

bool IsOrderlyEnd(const error_code& error) {
  // Many peers skip close_notify; HTTP's own framing tells whether a message was cut.
  return error == asio::error::eof || error == ssl::error::stream_truncated;
}

// `Stream` is a Socket, or TLS over one.
template <typename Stream>
class StreamTransport : public Transport,
                        public std::enable_shared_from_this<StreamTransport<Stream>> {
 public:
  template <typename... Args>
  explicit StreamTransport(Args&&... args) : stream_(std::forward<Args>(args)...) {}

  void Read(OnRead on_read) override {
    stream_.async_read_some(
        asio::buffer(buffer_),
        [self = this->shared_from_this(), on_read = std::move(on_read)](const error_code& error,
                                                                        size_t count) {
          if (error && !IsOrderlyEnd(error)) return on_read(FromErrorCode("read", error), {});
          on_read(Status::Ok(), std::string_view(self->buffer_.data(), error ? 0 : count));
        });
  }

  using Transport::Write;
  void Write(std::string head, std::string body, OnDone on_done) override {
    if (body.size() <= kShort) head.append(std::exchange(body, {}));
    auto held =
        std::make_shared<std::pair<std::string, std::string>>(std::move(head), std::move(body));
    const std::array<asio::const_buffer, 2> buffers = {asio::buffer(held->first),
                                                       asio::buffer(held->second)};
    // As much at a time as the socket takes; Asio would take 64 KiB.
    const auto all = [](const error_code& error, size_t) { return error ? 0 : SIZE_MAX; };
    asio::async_write(stream_, buffers, all,
                      [self = this->shared_from_this(), held, on_done = std::move(on_done)](
                          const error_code& error, size_t) {
                        on_done(error ? FromErrorCode("write", error) : Status::Ok());
                      });
  }

  void Close() override {
    error_code ignored;
    socket().shutdown(Socket::shutdown_both, ignored);
    socket().close(ignored);
  }

  bool Stale() override {
    char byte;
    const int fd = socket().native_handle();
    const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || errno != EAGAIN;
  }

  std::optional<WallTime> PeerCertificateEnds() override {
    if constexpr (std::is_same_v<Stream, Socket>) {
      return std::nullopt;
    } else {
      const X509Ptr shown(SSL_get1_peer_certificate(stream_.native_handle()), &X509_free);
      if (!shown) return std::nullopt;
      const Result<WallTime> ends = TimeOf(X509_get0_notAfter(shown.get()));
      return ends.ok() ? std::optional(*ends) : std::nullopt;
    }
  }

  auto& socket() { return stream_.lowest_layer(); }
  Stream& stream() { return stream_; }

 private:
  Stream stream_;
  std::array<char, 16 << 10> buffer_;
};

using PlainTransport = StreamTransport<Socket>;
using TlsTransport = StreamTransport<ssl::stream<Socket>>;

// ssl::stream wants a context object, which takes a reference of its own.
ssl::context Wrap(const std::shared_ptr<SSL_CTX>& context) {
  SSL_CTX_up_ref(context.get());
  return ssl::context(context.get());
}

Status HandshakeStatus(SSL* session, const error_code& error) {
  const long verdict = SSL_get_verify_result(session);
  if (verdict != X509_V_OK) {
    return Error(Code::kUnauthenticated, "the peer's certificate is not accepted: {}",
                 X509_verify_cert_error_string(verdict));
  }
  return FromErrorCode("TLS handshake", error);
}

void ExpectName(SSL* session, const std::string& name) {
  error_code not_an_address;
  asio::ip::make_address(name, not_an_address);
  X509_VERIFY_PARAM* expected = SSL_get0_param(session);
  if (not_an_address) {
    SSL_set_tlsext_host_name(session, name.c_str());
    X509_VERIFY_PARAM_set1_host(expected, name.c_str(), name.size());
  } else {
    X509_VERIFY_PARAM_set1_ip_asc(expected, name.c_str());
  }
}

// OpenSSL knows the methods GET, POST, HEAD and PUT.
bool IsPlainHttp(const error_code& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
}

class Handshake : public Attempt, public std::enable_shared_from_this<Handshake> {
 public:
  Handshake(std::shared_ptr<TlsTransport> transport, OnTransport on_done,
            std::function<void(TransportPtr)> on_plain_http = nullptr)
      : transport_(std::move(transport)),
        on_done_(std::move(on_done)),
        on_plain_http_(std::move(on_plain_http)) {}

  void Start(ssl::stream_base::handshake_type type) {
    transport_->stream().async_handshake(type, [self = shared_from_this()](const error_code& error) {
      if (!self->on_done_) return;
      const OnTransport on_done = std::exchange(self->on_done_, nullptr);
      if (!error) return on_done(TransportPtr(self->transport_));
      if (self->on_plain_http_ && IsPlainHttp(error)) {
        return self->on_plain_http_(
            MakePlainTransport(std::move(self->transport_->stream().next_layer())));
      }
      const Status status = HandshakeStatus(self->transport_->stream().native_handle(), error);
      self->transport_->Close();
      on_done(status);
    });
  }

  void Cancel() override {
    on_done_ = nullptr;
    transport_->Close();
  }

 private:
  std::shared_ptr<TlsTransport> transport_;
  OnTransport on_done_;
  std::function<void(TransportPtr)> on_plain_http_;
};

class Connector : public Attempt, public std::enable_shared_from_this<Connector> {
 public:
  Connector(IoThread& io, Address address, std::shared_ptr<SSL_CTX> tls, std::string server_name,
            OnTransport on_done)
      : context_(io.impl().context),
        resolver_(context_),
        socket_(context_),
        address_(std::move(address)),
        tls_(std::move(tls)),
        server_name_(std::move(server_name)),
        on_done_(std::move(on_done)) {}

  void Start() {
    if (!address_.unix_path.empty()) {
      endpoints_.emplace_back(asio::local::stream_protocol::endpoint(address_.unix_path));
      return TryNext();
    }
    error_code not_an_address;
    const auto ip = asio::ip::make_address(address_.host, not_an_address);
    if (!not_an_address) {
      endpoints_.emplace_back(asio::ip::tcp::endpoint(ip, address_.port));
      return TryNext();
    }
    // Asio starts a thread for getaddrinfo here, and only here.
    resolver_.async_resolve(
        address_.host, std::to_string(address_.port),
        [self = shared_from_this()](const error_code& error, auto results) {
          if (error) return self->Finish(FromErrorCode("name lookup", error));
          for (const auto& result : results) self->endpoints_.emplace_back(result.endpoint());
          self->TryNext();
        });
  }

  void Cancel() override {
    on_done_ = nullptr;
    resolver_.cancel();
    error_code ignored;
    socket_.close(ignored);
    if (handshake_) handshake_->Cancel();
  }

 private:
  using Resolver = asio::ip::basic_resolver<asio::ip::tcp, asio::io_context::executor_type>;

  void TryNext() {
    if (!on_done_) return;
    if (next_ == endpoints_.size()) return Finish(last_error_);
    error_code ignored;
    socket_.close(ignored);
    socket_.async_connect(endpoints_[next_++],
                          [self = shared_from_this()](const error_code& error) {
                            if (!self->on_done_) return;
                            if (!error) return self->Connected();
                            self->last_error_ = FromErrorCode("connect", error);
                            self->TryNext();
                          });
  }

  void Connected() {
    // Small requests must not wait for the ACK of the one before (no effect on unix sockets).
    const int on = 1;
    ::setsockopt(socket_.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (!tls_) return Finish(MakePlainTransport(std::move(socket_)));
    ssl::context context = Wrap(tls_);
    auto transport = std::make_shared<TlsTransport>(std::move(socket_), context);
    ExpectName(transport->stream().native_handle(),
               server_name_.empty() ? address_.host : server_name_);
    handshake_ = std::make_shared<Handshake>(
        transport, [self = shared_from_this()](Result<TransportPtr> result) {
          self->handshake_.reset();
          self->Finish(std::move(result));
        });
    handshake_->Start(ssl::stream_base::client);
  }

  void Finish(Result<TransportPtr> result) {
    if (!on_done_) return;
    std::exchange(on_done_, nullptr)(std::move(result).Annotate(address_.ToString()));
  }

  asio::io_context& context_;
  Resolver resolver_;
  Socket socket_;
  Address address_;
  std::shared_ptr<SSL_CTX> tls_;
  std::string server_name_;
  OnTransport on_done_;  // Empty once called or cancelled.
  std::vector<asio::generic::stream_protocol::endpoint> endpoints_;
  size_t next_ = 0;
  Status last_error_ = Error(Code::kUnavailable, "the name has no address");
  std::shared_ptr<Handshake> handshake_;
};

}  // namespace

TransportPtr MakePlainTransport(Socket socket) {
  return std::make_shared<PlainTransport>(std::move(socket));
}

std::shared_ptr<Attempt> Connect(IoThread& io, const Address& address,
                                 std::shared_ptr<SSL_CTX> tls, const std::string& server_name,
                                 OnTransport on_done) {
  auto connector = std::make_shared<Connector>(io, address, std::move(tls), server_name,
                                               std::move(on_done));
  connector->Start();
  return connector;
}

std::shared_ptr<Attempt> ShakeHands(IoThread&, TransportPtr plain, std::shared_ptr<SSL_CTX> tls,
                                    OnTransport on_done,
                                    std::function<void(TransportPtr)> on_plain_http) {
  Socket& socket = static_cast<PlainTransport&>(*plain).stream();
  ssl::context context = Wrap(tls);
  auto transport = std::make_shared<TlsTransport>(std::move(socket), context);
  auto handshake = std::make_shared<Handshake>(std::move(transport), std::move(on_done),
                                               std::move(on_plain_http));
  handshake->Start(ssl::stream_base::server);
  return handshake;
}

}  // namespace tessera::net
