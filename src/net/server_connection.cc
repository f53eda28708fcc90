// SPDX-License-Identifier: Apache-2.0
#include "src/net/server_connection.h"

#include <utility>

#include "src/base/strings.h"

namespace tessera::net {
namespace {

// How much a peer may still send after a rejection before the connection is closed. Closing at
// once, with unread bytes, makes the kernel send RST, which can destroy the rejection.
constexpr size_t kLingerBytes = 256 << 10;
constexpr Duration kLingerTime = std::chrono::seconds(1);

int RefusalStatus(const Status& status) {
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
                                   std::function<void()> on_body,
                                   std::function<void(ServerConnection*)> on_closed)
    : limits_(limits),
      dispatch_(std::move(dispatch)),
      on_body_(std::move(on_body)),
      on_closed_(std::move(on_closed)),
      timer_(io) {}

void ServerConnection::Start(TransportPtr transport, std::shared_ptr<ssl_ctx_st> tls) {
  waiting_since_ = std::chrono::steady_clock::now();
  StartTimer(limits_.request, [](ServerConnection* self) { self->Close(); });
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
        self->certificate_ends_ = self->transport_->PeerCertificateEnds();
        self->NextRequest({});
      },
      [self = shared_from_this()](TransportPtr plain) {
        self->handshake_.reset();
        self->transport_ = std::move(plain);
        self->Write(TextResponse(400, "this port speaks HTTPS: ask it by https://\n"), true, false);
      });
}

void ServerConnection::NextRequest(std::string rest) {
  state_ = ConnectionState::kReading;
  waiting_since_ = std::chrono::steady_clock::now();
  continued_ = false;
  parser_ = std::make_unique<HttpParser>(
      HttpParser::MessageKind::kRequest,
      HttpParser::Limits{.header_bytes = limits_.header_bytes, .body_bytes = limits_.body_bytes});
  // The time of the first request counts from accept.
  if (request_number_ > 0) StartTimer(limits_.idle, [](ServerConnection* self) { self->Close(); });
  if (rest.empty()) return ReadMore();
  OnRead(Status::Ok(), rest);
}

void ServerConnection::ReadMore() {
  reading_ = true;
  transport_->Read([self = shared_from_this()](const Status& status, std::string_view bytes) {
    self->reading_ = false;
    if (self->state_ == ConnectionState::kReading) return self->OnRead(status, bytes);
    if (self->state_ == ConnectionState::kLingering) self->OnLingerRead(status, bytes.size());
  });
}

void ServerConnection::OnRead(const Status& status, std::string_view bytes) {
  if (!status.ok() || bytes.empty()) return Close();
  if (!parser_->started()) {
    // Started once per request, so that bytes that trickle in do not extend it.
    StartTimer(limits_.request, [](ServerConnection* self) {
      self->Write(TextResponse(408, "the request took too long\n"), true, false);
    });
  }
  const Status parsed = parser_->Put(bytes);
  if (!parsed.ok()) return Reject(parsed);
  if (parser_->body_waiting() > 0) on_body_();
  if (state_ == ConnectionState::kReading) Advance();
}

std::chrono::steady_clock::time_point ServerConnection::waiting_since() const {
  return state_ == ConnectionState::kWriting ? transport_->written_at() : waiting_since_;
}

size_t ServerConnection::body_bytes() const {
  if (state_ == ConnectionState::kHandling) return handled_bytes_;
  return state_ == ConnectionState::kReading && parser_ ? parser_->body_waiting() : 0;
}

void ServerConnection::RejectBody() {
  (void)parser_->TakeBody();
  Write(TextResponse(503, "too many large requests at a time\n"), true, false);
}

void ServerConnection::Advance() {
  if (parser_->done()) {
    Request request = std::move(parser_->request());
    request.body = parser_->TakeBody();
    request.certificate_ends = certificate_ends_;
    handled_bytes_ = request.body.size();
    head_only_ = request.method == "HEAD";
    keep_alive_ = parser_->keep_alive();
    state_ = ConnectionState::kHandling;
    StartTimer(limits_.handler, [](ServerConnection* self) {
      self->Answer(self->request_number_, TextResponse(503, "no answer in time\n"));
    });
    return dispatch_(std::move(request), shared_from_this(), ++request_number_);
  }
  const bool expects = parser_->header_done() && !continued_ &&
                       ToLower(parser_->request().headers.Get("Expect")) == "100-continue";
  if (!expects) return ReadMore();
  continued_ = true;
  transport_->Write("HTTP/1.1 100 Continue\r\n\r\n", [self = shared_from_this()](const Status& s) {
    if (self->state_ != ConnectionState::kReading) return;
    s.ok() ? self->ReadMore() : self->Close();
  });
}

void ServerConnection::Answer(uint64_t request_number, Response response) {
  if (state_ != ConnectionState::kHandling || request_number != request_number_) return;
  const bool keep_alive = keep_alive_ && !response.close;
  Write(std::move(response), !head_only_, keep_alive);
}

void ServerConnection::Reject(const Status& status) {
  Write(TextResponse(RefusalStatus(status), status.message() + "\n"), true, false);
}

void ServerConnection::Write(Response response, bool with_body, bool keep_alive) {
  state_ = ConnectionState::kWriting;
  StartTimer(limits_.write, [](ServerConnection* self) { self->Close(); });
  std::string head = SerializeResponseHead(response, keep_alive);
  transport_->Write(std::move(head), with_body ? std::move(response.body) : std::string(),
                    [self = shared_from_this(), keep_alive](const Status& status) {
                      if (self->state_ != ConnectionState::kWriting) return;
                      if (!status.ok()) return self->Close();
                      if (!keep_alive) return self->Linger();
                      self->NextRequest(self->parser_->TakeRest());
                    });
}

void ServerConnection::Linger() {
  if (parser_ && parser_->done()) return Close();
  state_ = ConnectionState::kLingering;
  StartTimer(kLingerTime, [](ServerConnection* self) { self->Close(); });
  if (!reading_) ReadMore();
}

void ServerConnection::OnLingerRead(const Status& status, size_t count) {
  lingered_ += count;
  if (!status.ok() || count == 0 || lingered_ > kLingerBytes) return Close();
  ReadMore();
}

void ServerConnection::Close() {
  if (state_ == ConnectionState::kClosed) return;
  state_ = ConnectionState::kClosed;
  const auto self = shared_from_this();  // on_closed drops the server's reference.
  timer_.Stop();
  if (handshake_) std::exchange(handshake_, nullptr)->Cancel();
  if (transport_) transport_->Close();
  std::exchange(on_closed_, nullptr)(this);
}

void ServerConnection::StartTimer(Duration delay, std::function<void(ServerConnection*)> on_due) {
  timer_.Start(delay, [weak = weak_from_this(), on_due = std::move(on_due)] {
    if (const auto self = weak.lock()) on_due(self.get());
  });
}

}  // namespace tessera::net
