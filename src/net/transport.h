// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. Connected byte streams (TCP, unix, TLS over either), and how to open
// them. Hides Asio and OpenSSL's streams. Everything runs on the IoThread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/net/address.h"
#include "src/net/io_thread.h"
#include "src/net/tls.h"

namespace tessera::net {

// Has at most one Read and one Write at a time. A pending operation keeps the transport alive. The
// callback of an operation runs exactly once; with CANCELLED if Close came first.
class Transport {
 public:
  // `bytes` is valid during the call. OK with empty bytes: the peer closed its side properly.
  using OnRead = std::function<void(Status status, std::string_view bytes)>;
  using OnDone = std::function<void(Status status)>;

  virtual ~Transport() = default;
  virtual void Read(OnRead on_read) = 0;
  // Writes head, then body; does not copy a long body.
  virtual void Write(std::string head, std::string body, OnDone on_done) = 0;
  // Writes head, the shared body, which must not change, and tail.
  virtual void WriteShared(std::string head, std::shared_ptr<const std::string> body,
                           std::string tail, OnDone on_done) = 0;
  void Write(std::string bytes, OnDone on_done) { Write(std::move(bytes), {}, std::move(on_done)); }
  virtual void Close() = 0;
  // Whether the peer has closed, or sent data on, an idle connection. Does not block.
  virtual bool IsStale() = 0;
  // When the peer's certificate expires; nothing without a certificate.
  virtual std::optional<WallTime> PeerCertificateExpiry() { return std::nullopt; }
  // The peer's IP address without the port; "" on a unix socket. An IPv4-mapped IPv6 address is
  // returned as IPv4 ("10.0.0.7").
  virtual std::string PeerAddress() { return ""; }
  // The protocol that TLS has negotiated (ALPN), such as "h2"; "": none.
  virtual std::string_view NegotiatedProtocol() { return {}; }
  // When the system last accepted bytes to write, which shows that the peer has received earlier
  // bytes.
  virtual std::chrono::steady_clock::time_point written_at() const = 0;
};

using TransportPtr = std::shared_ptr<Transport>;
using OnTransport = std::function<void(Result<TransportPtr>)>;

// A running attempt to connect, or to start TLS. Dropping the pointer does not cancel it.
class Attempt {
 public:
  virtual ~Attempt() = default;
  // The callback is not called afterwards.
  virtual void Cancel() = 0;
};

struct Destination {
  Address address;
  std::optional<Proxy> proxy;       // opens a tunnel to `address`
  std::shared_ptr<ssl_ctx_st> tls;  // null: plain
  std::string server_name;          // expected in the certificate, instead of the address's host
};

// Looks up the host (or the proxy's host) and tries its addresses, each 250 ms after the previous
// address, or as soon as the attempt at that address fails. The first complete connection,
// including tunnel and TLS, is used (RFC 8305). `candidates`: addresses to try in this order
// instead of the lookup. UNAVAILABLE: refused, unreachable, not found, rejected by the proxy.
// UNAUTHENTICATED: the certificate is not accepted. INVALID_ARGUMENT: the server's name is not
// valid in a certificate, or the path of a unix socket is too long.
std::shared_ptr<Attempt> Connect(IoThread& io, Destination destination,
                                 const std::vector<Address>& candidates, OnTransport on_done);

// Starts TLS on a connection that has carried no data yet.
std::shared_ptr<Attempt> ClientHandshake(TransportPtr plain, std::shared_ptr<ssl_ctx_st> tls,
                                         const std::string& server_name, OnTransport on_done);
// If the peer speaks plain HTTP, `on_plain_http` gets its unencrypted connection, without the bytes
// that the peer has sent, and can answer with an explanation.
std::shared_ptr<Attempt> ServerHandshake(TransportPtr plain, std::shared_ptr<ssl_ctx_st> tls,
                                         OnTransport on_done,
                                         std::function<void(TransportPtr)> on_plain_http);

// Bound and listening after Open.
class Listener {
 public:
  static Result<std::shared_ptr<Listener>> Open(IoThread& io, const Address& address);

  virtual ~Listener() = default;
  // Accepts one connection; call again for the next. `on_accept` is not called after Close.
  virtual void Accept(OnTransport on_accept) = 0;
  virtual void Close() = 0;
  // The bound address, with the port that the system has chosen.
  virtual const Address& address() const = 0;
};

}  // namespace tessera::net
