// SPDX-License-Identifier: Apache-2.0
// Inside the room: connected byte streams (TCP, unix, TLS over either) and how to get one. Hides
// Asio and OpenSSL's streams. Everything happens on the IoThread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/base/clock.h"
#include "src/base/status.h"
#include "src/net/address.h"
#include "src/net/io_thread.h"
#include "src/net/tls.h"

namespace tessera::net {

// At most one Read and one Write at a time. A pending operation keeps the transport alive and its
// callback runs exactly once; after Close with CANCELLED.
class Transport {
 public:
  // `bytes` is valid during the call. OK with empty bytes: the peer closed its side in order.
  using OnRead = std::function<void(Status status, std::string_view bytes)>;
  using OnDone = std::function<void(Status status)>;

  virtual ~Transport() = default;
  virtual void Read(OnRead on_read) = 0;
  // One after the other; long ones are not copied.
  virtual void Write(std::string head, std::string body, OnDone on_done) = 0;
  void Write(std::string bytes, OnDone on_done) { Write(std::move(bytes), {}, std::move(on_done)); }
  virtual void Close() = 0;
  // Whether an idle connection was closed, or spoken on, by the peer. Does not block.
  virtual bool Stale() = 0;
  // When the certificate ends that the peer showed; nothing without one.
  virtual std::optional<WallTime> PeerCertificateEnds() { return std::nullopt; }
};

using TransportPtr = std::shared_ptr<Transport>;
using OnTransport = std::function<void(Result<TransportPtr>)>;

// Something under way that can be given up. Dropping the pointer does not cancel.
class Attempt {
 public:
  virtual ~Attempt() = default;
  // The callback is not called any more.
  virtual void Cancel() = 0;
};

// Looks the host up, tries its addresses in turn and, with `tls`, shakes hands as `server_name`.
// UNAVAILABLE: refused, unreachable, not found. UNAUTHENTICATED: the certificate does not hold.
std::shared_ptr<Attempt> Connect(IoThread& io, const Address& address,
                                 std::shared_ptr<ssl_ctx_st> tls, const std::string& server_name,
                                 OnTransport on_done);

// The server's side of the handshake on an accepted connection. A peer that speaks plain HTTP
// instead comes to `on_plain_http`, unencrypted and without the bytes that it has sent, so that it
// can be told.
std::shared_ptr<Attempt> ShakeHands(IoThread& io, TransportPtr plain,
                                    std::shared_ptr<ssl_ctx_st> tls, OnTransport on_done,
                                    std::function<void(TransportPtr)> on_plain_http);

// Bound and listening when made.
class Listener {
 public:
  static Result<std::shared_ptr<Listener>> Open(IoThread& io, const Address& address);

  virtual ~Listener() = default;
  // One connection; call again for the next. Not called after Close.
  virtual void Accept(OnTransport on_accept) = 0;
  virtual void Close() = 0;
  // With the port that the system chose.
  virtual const Address& address() const = 0;
};

}  // namespace tessera::net
