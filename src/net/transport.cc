// SPDX-License-Identifier: Apache-2.0
#include "src/net/transport.h"

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <cstring>

#include "src/net/io_thread_impl.h"
#include "src/net/openssl.h"

namespace tessera::net {
namespace {

namespace ssl = asio::ssl;
using boost::system::error_code;

// Up to this size a body is copied behind the head. The copy costs less than a second write, which
// would be a TLS record of its own.
constexpr size_t kMaxCopiedBody = 4 << 10;

bool IsOrderlyEnd(const error_code& error) {
  // Many peers skip close_notify; HTTP's own framing detects truncated messages.
  return error == asio::error::eof || error == ssl::error::stream_truncated;
}

// `Stream` is a Socket, or TLS over a Socket.
template <typename Stream>
class StreamTransport : public Transport,
                        public std::enable_shared_from_this<StreamTransport<Stream>> {
 public:
  template <typename... Args>
  explicit StreamTransport(Args&&... args) : stream_(std::forward<Args>(args)...) {}

  void Read(OnRead on_read) override {
    stream_.async_read_some(
        asio::buffer(buffer_), [self = this->shared_from_this(), on_read = std::move(on_read)](
                                   const error_code& error, size_t count) {
          if (error && !IsOrderlyEnd(error)) return on_read(FromErrorCode("read", error), {});
          on_read(Status::Ok(), std::string_view(self->buffer_.data(), error ? 0 : count));
        });
  }

  using Transport::Write;
  void Write(std::string head, std::string body, OnDone on_done) override {
    if (body.size() <= kMaxCopiedBody) head.append(std::exchange(body, {}));
    WriteShared(std::move(head), std::make_shared<const std::string>(std::move(body)), {},
                std::move(on_done));
  }

  void WriteShared(std::string head, std::shared_ptr<const std::string> body, std::string tail,
                   OnDone on_done) override {
    struct WriteBuffers {
      std::string head;
      std::shared_ptr<const std::string> body;
      std::string tail;
    };
    if (body->size() <= kMaxCopiedBody && !tail.empty()) {
      head.append(*body).append(std::exchange(tail, {}));
      body = std::make_shared<const std::string>();
    }
    auto held = std::make_shared<WriteBuffers>(
        WriteBuffers{std::move(head), std::move(body), std::move(tail)});
    const std::array<asio::const_buffer, 3> buffers = {
        asio::buffer(held->head), asio::buffer(*held->body), asio::buffer(held->tail)};
    written_at_ = std::chrono::steady_clock::now();
    // Writes as much at a time as the socket accepts; Asio would write 64 KiB.
    const auto until_all_is_written = [this](const error_code& error, size_t count) {
      if (count > 0) written_at_ = std::chrono::steady_clock::now();
      return error ? 0 : SIZE_MAX;
    };
    asio::async_write(stream_, buffers, until_all_is_written,
                      [self = this->shared_from_this(), held, on_done = std::move(on_done)](
                          const error_code& error, size_t) {
                        on_done(error ? FromErrorCode("write", error) : Status::Ok());
                      });
  }

  void Close() override {
    // close(2) alone keeps the connection while a forked child has a copy of the descriptor.
    error_code ignored;
    socket().shutdown(Socket::shutdown_both, ignored);
    socket().close(ignored);
  }

  bool IsStale() override {
    // 0 bytes mean that the peer has closed. Bytes that no request asked for make the stream
    // unusable; TLS also announces its end by such bytes. EAGAIN means that the connection is alive
    // and silent.
    char byte;
    const int fd = socket().native_handle();
    const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got >= 0 || errno != EAGAIN;
  }

  std::optional<WallTime> PeerCertificateExpiry() override {
    if constexpr (std::is_same_v<Stream, Socket>) {
      return std::nullopt;
    } else {
      const X509Ptr certificate(SSL_get1_peer_certificate(stream_.native_handle()), &X509_free);
      if (!certificate) return std::nullopt;
      const Result<WallTime> ends = TimeOf(X509_get0_notAfter(certificate.get()));
      return ends.ok() ? std::optional(*ends) : std::nullopt;
    }
  }

  std::string PeerAddress() override {
    error_code error;
    const auto peer = socket().remote_endpoint(error);
    if (error || peer.protocol().family() == AF_UNIX) return "";
    asio::ip::tcp::endpoint tcp;
    std::memcpy(tcp.data(), peer.data(), std::min<size_t>(peer.size(), tcp.capacity()));
    asio::ip::address ip = tcp.address();
    if (ip.is_v6() && ip.to_v6().is_v4_mapped()) {
      ip = asio::ip::make_address_v4(asio::ip::v4_mapped, ip.to_v6());
    }
    return ip.to_string();
  }
  std::string_view NegotiatedProtocol() override {
    if constexpr (std::is_same_v<Stream, Socket>) {
      return {};
    } else {
      const unsigned char* name = nullptr;
      unsigned size = 0;
      SSL_get0_alpn_selected(stream_.native_handle(), &name, &size);
      return {reinterpret_cast<const char*>(name), size};
    }
  }
  std::chrono::steady_clock::time_point written_at() const override { return written_at_; }

  auto& socket() { return stream_.lowest_layer(); }
  Stream& stream() { return stream_; }

 private:
  Stream stream_;
  std::chrono::steady_clock::time_point written_at_{};
  std::array<char, 16 << 10> buffer_;
};

using PlainTransport = StreamTransport<Socket>;
using TlsTransport = StreamTransport<ssl::stream<Socket>>;

// ssl::stream needs an ssl::context. Its destructor releases a reference to the SSL_CTX, so one is
// added for it.
ssl::context SslContextOf(const std::shared_ptr<SSL_CTX>& context) {
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

// Checks the result of each step, because without an expected name OpenSSL accepts any certificate
// of the authority.
Status ExpectName(SSL* session, const std::string& name) {
  error_code not_an_address;
  asio::ip::make_address(name, not_an_address);
  X509_VERIFY_PARAM* expected = SSL_get0_param(session);
  // As in Go, only names in subjectAltName count, and a wildcard is a whole label.
  X509_VERIFY_PARAM_set_hostflags(
      expected, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  // The server name extension carries DNS names only (RFC 6066), so no name is sent for an address.
  const bool done = not_an_address
                        ? X509_VERIFY_PARAM_set1_host(expected, name.data(), name.size()) == 1 &&
                              SSL_set_tlsext_host_name(session, name.c_str()) == 1
                        : X509_VERIFY_PARAM_set1_ip_asc(expected, name.c_str()) == 1;
  if (done) return Status::Ok();
  return Error(Code::kInvalidArgument,
               "TLS: \"{}\" cannot be the name of a server: want a DNS name or an IP address: {}",
               name, OpenSslErrorText());
}

// OpenSSL recognizes the methods GET, POST, HEAD and PUT.
bool IsPlainHttp(const error_code& error) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == SSL_R_HTTP_REQUEST;
}

std::shared_ptr<TlsTransport> OverTls(Transport& plain, const std::shared_ptr<SSL_CTX>& tls) {
  ssl::context context = SslContextOf(tls);
  return std::make_shared<TlsTransport>(std::move(static_cast<PlainTransport&>(plain).stream()),
                                        context);
}

class Handshake : public Attempt {
 public:
  Handshake(std::shared_ptr<TlsTransport> transport, OnTransport on_done,
            std::function<void(TransportPtr)> on_plain_http)
      : transport_(std::move(transport)),
        on_done_(std::move(on_done)),
        on_plain_http_(std::move(on_plain_http)) {}

  static std::shared_ptr<Attempt> Start(std::shared_ptr<TlsTransport> transport,
                                        ssl::stream_base::handshake_type side, OnTransport on_done,
                                        std::function<void(TransportPtr)> on_plain_http = nullptr) {
    auto self = std::make_shared<Handshake>(std::move(transport), std::move(on_done),
                                            std::move(on_plain_http));
    self->transport_->stream().async_handshake(side, [self](const error_code& error) {
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
    return self;
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

}  // namespace

TransportPtr MakePlainTransport(Socket socket) {
  return std::make_shared<PlainTransport>(std::move(socket));
}

std::shared_ptr<Attempt> ClientHandshake(TransportPtr plain, std::shared_ptr<SSL_CTX> tls,
                                         const std::string& server_name, OnTransport on_done) {
  auto transport = OverTls(*plain, tls);
  const Status named = ExpectName(transport->stream().native_handle(), server_name);
  if (!named.ok()) {
    transport->Close();
    on_done(named);
    return nullptr;
  }
  return Handshake::Start(std::move(transport), ssl::stream_base::client, std::move(on_done));
}

std::shared_ptr<Attempt> ServerHandshake(TransportPtr plain, std::shared_ptr<SSL_CTX> tls,
                                         OnTransport on_done,
                                         std::function<void(TransportPtr)> on_plain_http) {
  return Handshake::Start(OverTls(*plain, tls), ssl::stream_base::server, std::move(on_done),
                          std::move(on_plain_http));
}

}  // namespace tessera::net
