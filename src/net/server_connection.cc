// SPDX-License-Identifier: Apache-2.0
#include "src/net/server_connection.h"

#include <utility>

#include "src/base/strings.h"
#include "src/net/stream_sink.h"

namespace tessera::net {
namespace {

// The number of bytes that a peer may still send after a rejection before the connection is closed.
// Closing at once, with unread bytes, makes the kernel send RST, which can destroy the rejection,
// and ends "kubectl port-forward". The bytes are dropped as they arrive.
constexpr size_t kLingerBytes = 64 << 20;
constexpr Duration kLingerTime = std::chrono::seconds(5);

int RejectionStatus(const Status& status) {
  switch (status.code()) {
    case Code::kOutOfRange:
      return 431;
    case Code::kResourceExhausted:
      return 413;
    default:
      return 400;
  }
}

}  // namespace

ServerConnection::ServerConnection(IoThread& io, const ServerLimits& limits, Dispatch dispatch,
                                   std::function<void()> on_body_grew,
                                   std::function<void(ServerConnection*)> on_closed)
    : io_(io),
      limits_(limits),
      dispatch_(std::move(dispatch)),
      on_body_grew_(std::move(on_body_grew)),
      on_closed_(std::move(on_closed)),
      timer_(io) {}

void ServerConnection::Start(TransportPtr transport, std::shared_ptr<ssl_ctx_st> tls) {
  waiting_since_ = std::chrono::steady_clock::now();
  peer_ = transport->PeerAddress();
  StartTimer(limits_.request_timeout, [](ServerConnection* self) { self->Close(); });
  if (!tls) {
    transport_ = std::move(transport);
    return NextRequest({});
  }
  handshake_ = ServerHandshake(
      std::move(transport), std::move(tls),
      [self = shared_from_this()](Result<TransportPtr> result) {
        self->handshake_.reset();
        if (!result.ok()) return self->Close();
        self->transport_ = *std::move(result);
        self->certificate_expiry_ = self->transport_->PeerCertificateExpiry();
        if (self->transport_->NegotiatedProtocol() == "h2") return self->StartHttp2();
        self->NextRequest({});
      },
      [self = shared_from_this()](TransportPtr plain) {
        self->handshake_.reset();
        self->transport_ = std::move(plain);
        self->Write(TextResponse(400, "this port serves HTTPS only: use an https:// URL\n"),
                    /*with_body=*/true,
                    /*keep_alive=*/false);
      });
}

void ServerConnection::StartHttp2() {
  state_ = ConnectionState::kHttp2;
  timer_.Stop();
  std::weak_ptr<ServerConnection> weak = weak_from_this();
  http2_ = std::make_shared<Http2Session>(
      io_, limits_, transport_,
      Http2Session::Events{.on_request =
                               [weak](Request request, uint64_t stream) {
                                 const auto self = weak.lock();
                                 if (!self) return;
                                 request.certificate_expiry = self->certificate_expiry_;
                                 request.peer = self->peer_;
                                 self->dispatch_(std::move(request), self, stream);
                               },
                           .on_body_grew = on_body_grew_,
                           .on_closed =
                               [weak] {
                                 if (const auto self = weak.lock()) self->Close();
                               }});
  http2_->Start();
}

void ServerConnection::WatchPeer(uint64_t request_number, OnGone on_gone) {
  if (http2_) return http2_->WatchPeer(request_number, std::move(on_gone));
  on_gone_ = std::move(on_gone);
}

bool ServerConnection::evictable() const {
  if (http2_) return http2_->evictable();
  return state_ != ConnectionState::kHandling &&
         (state_ != ConnectionState::kStreaming || writing_);
}

void ServerConnection::NextRequest(std::string rest) {
  state_ = ConnectionState::kReading;
  waiting_since_ = std::chrono::steady_clock::now();
  sent_100_continue_ = false;
  on_gone_ = nullptr;
  rest += std::exchange(read_ahead_, {});
  parser_ = std::make_unique<HttpParser>(
      HttpParser::MessageKind::kRequest,
      HttpParser::SizeLimits{.max_header_bytes = limits_.max_header_bytes,
                             .max_body_bytes = limits_.max_body_bytes});
  // The first request has no idle time: its limit counts from accept.
  if (request_number_ > 0)
    StartTimer(limits_.idle_timeout, [](ServerConnection* self) { self->Close(); });
  if (rest.empty()) return ReadMore();
  OnRead(Status::Ok(), rest);
}

void ServerConnection::ReadMore() {
  if (reading_) return;
  if (peer_ended_) return Close();
  reading_ = true;
  transport_->Read([self = shared_from_this()](const Status& status, std::string_view bytes) {
    self->reading_ = false;
    if (self->state_ == ConnectionState::kReading) return self->OnRead(status, bytes);
    if (self->state_ == ConnectionState::kLingering) {
      return self->OnLingerRead(status, bytes.size());
    }
    if (self->state_ != ConnectionState::kClosed) self->OnReadAhead(status, bytes);
  });
}

void ServerConnection::OnRead(const Status& status, std::string_view bytes) {
  if (!status.ok() || bytes.empty()) return Close();
  if (!parser_->started()) {
    // Started once per request, so that a request that arrives byte by byte does not get more time.
    StartTimer(limits_.request_timeout, [](ServerConnection* self) {
      self->Write(TextResponse(408, "the request took too long\n"), /*with_body=*/true,
                  /*keep_alive=*/false);
    });
  }
  const Status parsed = parser_->Put(bytes);
  if (!parsed.ok()) return Reject(parsed);
  if (parser_->body_waiting() > 0) on_body_grew_();
  if (state_ == ConnectionState::kReading) Advance();
}

// Reads at most one buffer ahead, so that pipelined requests take little memory.
void ServerConnection::OnReadAhead(const Status& status, std::string_view bytes) {
  if (!status.ok()) return Close();
  if (!bytes.empty()) {
    read_ahead_.assign(bytes);
    return;
  }
  peer_ended_ = true;
  if (on_gone_) std::exchange(on_gone_, nullptr)();
  // A peer that closes its side during a stream has abandoned the stream.
  if (state_ == ConnectionState::kStreaming) Close();
}

std::chrono::steady_clock::time_point ServerConnection::waiting_since() const {
  if (http2_) return http2_->waiting_since();
  const bool writes = state_ == ConnectionState::kWriting || state_ == ConnectionState::kStreaming;
  return writes ? transport_->written_at() : waiting_since_;
}

size_t ServerConnection::body_bytes() const {
  if (http2_) return http2_->body_bytes();
  if (state_ == ConnectionState::kHandling) return handled_bytes_;
  return state_ == ConnectionState::kReading && parser_ ? parser_->body_waiting() : 0;
}

void ServerConnection::RejectLargestRequest() {
  if (http2_) return http2_->RejectLargestRequest();
  (void)parser_->TakeBody();
  Write(TextResponse(503, "too many large requests at a time\n"), /*with_body=*/true,
        /*keep_alive=*/false);
}

void ServerConnection::Advance() {
  if (parser_->done()) {
    Request request = std::move(parser_->request());
    request.body = parser_->TakeBody();
    request.certificate_expiry = certificate_expiry_;
    request.peer = peer_;
    handled_bytes_ = request.body.size();
    head_only_ = request.method == "HEAD";
    http_1_0_ = request.http_1_0;
    keep_alive_ = parser_->keep_alive();
    state_ = ConnectionState::kHandling;
    StartTimer(limits_.handler_timeout, [](ServerConnection* self) {
      self->Answer(self->request_number_, TextResponse(503, "no answer in time\n"));
    });
    dispatch_(std::move(request), shared_from_this(), ++request_number_);
    if (!peer_ended_) return ReadMore();  // detects that the peer is gone
    // The peer has closed its side after this request. The handler is notified, and the connection
    // stays open for the response.
    if (on_gone_) std::exchange(on_gone_, nullptr)();
    return;
  }
  const bool expects_continue = parser_->header_done() && !sent_100_continue_ &&
                                ToLower(parser_->request().headers.Get("Expect")) == "100-continue";
  if (!expects_continue) return ReadMore();
  sent_100_continue_ = true;
  transport_->Write("HTTP/1.1 100 Continue\r\n\r\n", [self = shared_from_this()](const Status& s) {
    if (self->state_ != ConnectionState::kReading) return;
    s.ok() ? self->ReadMore() : self->Close();
  });
}

void ServerConnection::Answer(uint64_t request_number, Response response) {
  if (http2_) return http2_->Answer(request_number, std::move(response));
  if (state_ != ConnectionState::kHandling || request_number != request_number_) {
    if (response.stream) response.stream->Close();
    return;
  }
  const bool keep_alive = keep_alive_ && !response.close;
  if (response.stream) return StartStream(std::move(response), keep_alive);
  Write(std::move(response), !head_only_, keep_alive);
}

void ServerConnection::Reject(const Status& status) {
  Write(TextResponse(RejectionStatus(status), status.message() + "\n"), /*with_body=*/true,
        /*keep_alive=*/false);
}

void ServerConnection::Write(Response response, bool with_body, bool keep_alive) {
  state_ = ConnectionState::kWriting;
  StartTimer(limits_.write_timeout, &ServerConnection::CheckProgress);
  std::string head = SerializeResponseHead(response, keep_alive);
  transport_->Write(std::move(head), with_body ? std::move(response.body) : std::string(),
                    [self = shared_from_this(), keep_alive](const Status& status) {
                      if (self->state_ != ConnectionState::kWriting) return;
                      if (!status.ok()) return self->Close();
                      if (!keep_alive) return self->Linger();
                      self->NextRequest(self->parser_->TakeRest());
                    });
}

// The deadline counts from the peer's last progress, so that a slow peer gets a long response.
void ServerConnection::CheckProgress() {
  const Duration waited = std::chrono::steady_clock::now() - transport_->written_at();
  if (waited >= limits_.write_timeout) return Close();
  StartTimer(limits_.write_timeout - waited, &ServerConnection::CheckProgress);
}

void ServerConnection::StartStream(Response response, bool keep_alive) {
  state_ = ConnectionState::kStreaming;
  timer_.Stop();
  stream_ = std::move(response.stream);
  chunked_ = !http_1_0_;
  keep_alive_ = keep_alive && chunked_;
  stream_->SetOnChange([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->StreamMore();
  });
  if (peer_ended_) return Close();
  std::string head = SerializeResponseHead(
      response, keep_alive_, chunked_ ? BodyFraming::kChunked : BodyFraming::kUntilClose);
  writing_ = true;
  StartTimer(limits_.write_timeout, &ServerConnection::CheckProgress);
  transport_->Write(std::move(head), [self = shared_from_this()](const Status& status) {
    if (self->head_only_ && self->stream_) self->stream_->Close();
    self->OnStreamed(status, 0);
  });
}

void ServerConnection::StreamMore() {
  if (state_ != ConnectionState::kStreaming || writing_) return;
  if (stream_->closed()) return Close();
  if (stream_->empty()) {
    timer_.Stop();
    if (stream_->finished()) EndStream();
    return;
  }
  writing_ = true;
  StartTimer(limits_.write_timeout, &ServerConnection::CheckProgress);
  BodyStream::Piece piece = stream_->Take();
  const size_t bytes = piece->size();
  std::string head = chunked_ ? fmt::format("{:x}\r\n", bytes) : std::string();
  transport_->WriteShared(std::move(head), std::move(piece), chunked_ ? "\r\n" : "",
                          [self = shared_from_this(), bytes](const Status& status) {
                            self->OnStreamed(status, bytes);
                          });
}

void ServerConnection::OnStreamed(const Status& status, size_t bytes) {
  writing_ = false;
  if (state_ != ConnectionState::kStreaming) return;
  if (!status.ok()) return Close();
  if (bytes > 0) stream_->ReportWritten(bytes);
  StreamMore();
}

void ServerConnection::EndStream() {
  state_ = ConnectionState::kWriting;
  std::exchange(stream_, nullptr)->Close();
  if (!chunked_) return Close();
  StartTimer(limits_.write_timeout, &ServerConnection::CheckProgress);
  transport_->Write("0\r\n\r\n", [self = shared_from_this()](const Status& status) {
    if (self->state_ != ConnectionState::kWriting) return;
    if (!status.ok() || !self->keep_alive_) return self->Close();
    self->NextRequest(self->parser_->TakeRest());
  });
}

void ServerConnection::Linger() {
  if (parser_ && parser_->done()) return Close();
  state_ = ConnectionState::kLingering;
  StartTimer(kLingerTime, [](ServerConnection* self) { self->Close(); });
  ReadMore();
}

void ServerConnection::OnLingerRead(const Status& status, size_t count) {
  lingered_bytes_ += count;
  if (!status.ok() || count == 0 || lingered_bytes_ > kLingerBytes) return Close();
  ReadMore();
}

void ServerConnection::Close() {
  if (state_ == ConnectionState::kClosed) return;
  state_ = ConnectionState::kClosed;
  const auto self = shared_from_this();  // on_closed drops the server's reference.
  timer_.Stop();
  if (handshake_) std::exchange(handshake_, nullptr)->Cancel();
  if (http2_) http2_->Close();
  if (transport_) transport_->Close();
  if (stream_) std::exchange(stream_, nullptr)->Close();
  if (on_gone_) std::exchange(on_gone_, nullptr)();
  std::exchange(on_closed_, nullptr)(this);
}

void ServerConnection::StartTimer(Duration delay, std::function<void(ServerConnection*)> on_due) {
  timer_.Start(delay, [weak = weak_from_this(), on_due = std::move(on_due)] {
    if (const auto self = weak.lock()) on_due(self.get());
  });
}

}  // namespace tessera::net
