// SPDX-License-Identifier: Apache-2.0
// Included only in src/net. One request with its response, and the connections that a client keeps
// between requests. Everything runs on the IoThread.
#pragma once

#include <list>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>

#include "src/net/http_client.h"
#include "src/net/http_parser.h"
#include "src/net/transport.h"

namespace tessera::net {

class Exchange;

class ConnectionPool {
 public:
  ConnectionPool(IoThread& io, HttpClient::Options options);

  IoThread& io() { return io_; }
  const HttpClient::Options& options() const { return options_; }
  TlsContextSource& tls() { return tls_; }

  // A connection, and the time from which it is too old for another request.
  struct Connection {
    TransportPtr transport;
    MonotonicTime retire_at{};
  };
  // A kept connection that still looks alive; its transport is null if there is none.
  Connection TakeIdle();
  void KeepIdle(Connection connection);
  // Sets the time from which the new connection is too old for another request.
  Connection MakeConnection(TransportPtr fresh);
  // Connections that used the old certificate are not reused.
  void SetCertificate(PemSource certificate, PemSource key);
  // Owns the exchange from AddRunning to RemoveRunning.
  void AddRunning(std::shared_ptr<Exchange> exchange);
  void RemoveRunning(Exchange* exchange);
  // Closes kept connections and cancels running exchanges. Nothing starts afterwards.
  void Close();
  bool closed() const { return closed_; }
  // Increases with each change of the certificate.
  int certificate_generation() const { return certificate_generation_; }

 private:
  struct IdleConnection {
    IdleConnection(Connection c, IoThread& io) : connection(std::move(c)), expiry(io) {}
    Connection connection;
    Timer expiry;
  };

  IoThread& io_;
  const HttpClient::Options options_;
  TlsContextSource tls_;
  std::list<IdleConnection> idle_;  // least recently used first
  std::minstd_rand random_{std::random_device{}()};
  // Owns the exchanges, so that none ends on another thread or after the IoThread.
  std::unordered_map<Exchange*, std::shared_ptr<Exchange>> running_;
  bool closed_ = false;
  int certificate_generation_ = 0;
};

// The pool owns an exchange while it runs. States: connecting -> waiting for the header -> body ->
// finished.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  struct RequestPlan {
    std::string bytes;  // the serialized request
    HttpParser::MessageKind kind;
    HttpParser::SizeLimits limits;
    Deadlines deadlines;
    bool delivers_pieces;  // a stream: the body goes to on_piece instead of into the response
    bool may_resend;       // on a new connection, if a kept connection was dead
  };
  struct ResponseSink {
    std::function<void(Response head)> on_head;  // streams only
    // Streams only. Resume requests the next piece.
    std::function<void(std::string piece)> on_piece;
    std::function<void(Result<Response>)> on_end;
  };

  Exchange(std::shared_ptr<ConnectionPool> pool, RequestPlan plan, ResponseSink sink);

  void Start();
  void Resume();
  // Prevents further calls into the sink.
  void Cancel();

 private:
  void Connect();
  void SendRequest(ConnectionPool::Connection connection);
  void ReadMore();
  void OnRead(const Status& status, std::string_view bytes);
  void Advance();
  void Deliver();
  bool SkipInterim();
  void OnHeader();
  void OnConnectionBroken(const Status& status);
  void Complete();
  void Finish(Result<Response> result);
  void StartTimer(Timer* timer, Duration delay, std::string_view activity);

  std::shared_ptr<ConnectionPool> pool_;
  RequestPlan plan_;
  ResponseSink sink_;
  Timer phase_timer_;
  Timer stall_timer_;
  std::shared_ptr<Attempt> attempt_;
  TransportPtr transport_;
  MonotonicTime retire_at_{};  // when the connection is too old to be kept
  std::unique_ptr<HttpParser> parser_;
  std::string body_;                // in a stream: the undelivered part
  bool delivering_ = false;         // the reader of a stream processes a piece
  bool paused_ = false;             // until Resume
  int certificate_generation_ = 0;  // the pool's when the connection was opened
  bool reused_ = false;             // the connection has carried an earlier request
  bool request_written_ = false;
  bool peer_ended_ = false;
  bool head_received_ = false;
  bool finished_ = false;
};

}  // namespace tessera::net
