// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. One connection of a server and its requests: HTTP/1.1, or HTTP/2 if TLS
// has negotiated it. Everything runs on the IoThread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "src/net/http2_session.h"
#include "src/net/http_parser.h"
#include "src/net/http_server.h"
#include "src/net/transport.h"

namespace tessera::net {

class ServerConnection : public std::enable_shared_from_this<ServerConnection> {
 public:
  // Passes a complete request on; the response comes through Answer with the same `request_number`,
  // which is unique on the connection.
  using Dispatch = std::function<void(Request request, std::shared_ptr<ServerConnection> from,
                                      uint64_t request_number)>;
  using OnGone = std::function<void()>;

  // Calls `on_body_grew` for each received piece of a body. The server then checks the total size
  // of all bodies and may reject the body of this or of another connection.
  ServerConnection(IoThread& io, const ServerLimits& limits, Dispatch dispatch,
                   std::function<void()> on_body_grew,
                   std::function<void(ServerConnection*)> on_closed);

  // With `tls`, starts with the TLS handshake.
  void Start(TransportPtr transport, std::shared_ptr<ssl_ctx_st> tls);
  // Only the first response to each request counts.
  void Answer(uint64_t request_number, Response response);
  // Calls `on_gone` if the peer closes its side while this request is handled or its stream is
  // open.
  void WatchPeer(uint64_t request_number, OnGone on_gone);
  // Whether a new connection may replace this one: no complete request waits for the handler, and
  // no stream is idle.
  bool evictable() const;
  // Since when the peer has made no progress: the time of its connection, of its last response, or
  // when it last received bytes of a response. Bytes of a request that trickle in are not progress.
  std::chrono::steady_clock::time_point waiting_since() const;
  // Size of the body being read, or of the request being handled.
  size_t body_bytes() const;
  // REQUIRES: a body is being read. Responds with 503 to the incomplete request; with HTTP/2, to
  // the incomplete request that has the largest body.
  void RejectLargestRequest();
  void Close();

 private:
  enum class ConnectionState {
    kReading,
    kHandling,
    kWriting,
    kStreaming,
    kLingering,  // drops the bytes that the peer still sends after a rejection
    kHttp2,      // http2_ has the streams
    kClosed
  };

  void StartHttp2();
  void NextRequest(std::string rest);
  void ReadMore();
  void OnRead(const Status& status, std::string_view bytes);
  void Advance();
  void Reject(const Status& status);
  void Write(Response response, bool with_body, bool keep_alive);
  void OnReadAhead(const Status& status, std::string_view bytes);
  void StartStream(Response response, bool keep_alive);
  void StreamMore();
  void OnStreamed(const Status& status, size_t bytes);
  void EndStream();
  void CheckProgress();
  void Linger();
  void OnLingerRead(const Status& status, size_t count);
  void StartTimer(Duration delay, std::function<void(ServerConnection*)> on_due);

  IoThread& io_;
  const ServerLimits limits_;
  Dispatch dispatch_;
  std::function<void()> on_body_grew_;
  std::function<void(ServerConnection*)> on_closed_;
  Timer timer_;
  std::shared_ptr<Attempt> handshake_;
  TransportPtr transport_;
  std::shared_ptr<Http2Session> http2_;
  std::unique_ptr<HttpParser> parser_;
  ConnectionState state_ = ConnectionState::kReading;
  uint64_t request_number_ = 0;  // number of the current request
  std::chrono::steady_clock::time_point waiting_since_{};
  bool reading_ = false;  // a Read is pending
  bool writing_ = false;  // a Write of a stream is pending
  // Bytes of later requests, received while a request is handled.
  std::string read_ahead_;
  bool peer_ended_ = false;
  OnGone on_gone_;
  std::string peer_;
  std::shared_ptr<StreamSink> stream_;
  bool chunked_ = false;  // framing of the stream
  bool head_only_ = false;
  bool http_1_0_ = false;
  bool keep_alive_ = false;
  bool sent_100_continue_ = false;
  size_t lingered_bytes_ = 0;
  size_t handled_bytes_ = 0;                    // body size of the last dispatched request
  std::optional<WallTime> certificate_expiry_;  // of the client
};

}  // namespace tessera::net
