// SPDX-License-Identifier: Apache-2.0
#include "src/net/exchange.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tessera::net {

namespace {

// How many bytes of a stream are read ahead while the reader processes a piece, so that both
// threads work in parallel on a few large pieces. TLS alone would deliver pieces of 16 KiB.
constexpr size_t kReadAheadBytes = 512 << 10;

}  // namespace

ConnectionPool::ConnectionPool(IoThread& io, HttpClient::Options options)
    : io_(io), options_(std::move(options)), tls_(TlsContextSource::Side::kClient, options_.tls) {}

// The connection that was used last is the least likely to have been closed by the server.
ConnectionPool::Connection ConnectionPool::TakeIdle() {
  while (!idle_.empty()) {
    Connection connection = std::move(idle_.back().connection);
    idle_.pop_back();
    if (!connection.transport->IsStale()) return connection;
    connection.transport->Close();
  }
  return {};
}

ConnectionPool::Connection ConnectionPool::MakeConnection(TransportPtr fresh) {
  if (options_.max_age <= Duration::zero()) return {std::move(fresh), MonotonicTime::max()};
  // Connections get random ages, so that clients that connected together do not reconnect together.
  std::uniform_int_distribution<int64_t> age(options_.max_age.count() / 4 * 3,
                                             options_.max_age.count());
  return {std::move(fresh), std::chrono::steady_clock::now() + Duration(age(random_))};
}

void ConnectionPool::KeepIdle(Connection connection) {
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (closed_ || idle_.size() >= options_.max_idle_connections || now >= connection.retire_at) {
    return connection.transport->Close();
  }
  const Duration keep_for = std::min(options_.idle_timeout, connection.retire_at - now);
  idle_.emplace_back(std::move(connection), io_);
  const auto entry = std::prev(idle_.end());
  entry->expiry.Start(keep_for, [this, entry] {
    entry->connection.transport->Close();
    idle_.erase(entry);
  });
}

void ConnectionPool::SetCertificate(PemSource certificate, PemSource key) {
  tls_.SetCertificate(std::move(certificate), std::move(key));
  ++certificate_generation_;
  for (IdleConnection& entry : idle_) entry.connection.transport->Close();
  idle_.clear();
}

void ConnectionPool::AddRunning(std::shared_ptr<Exchange> exchange) {
  Exchange* const key = exchange.get();
  running_.emplace(key, std::move(exchange));
}

void ConnectionPool::RemoveRunning(Exchange* exchange) { running_.erase(exchange); }

void ConnectionPool::Close() {
  closed_ = true;
  for (IdleConnection& entry : idle_) entry.connection.transport->Close();
  idle_.clear();
  while (!running_.empty()) {
    const std::shared_ptr<Exchange> exchange = running_.begin()->second;
    exchange->Cancel();  // removes itself
  }
}

Exchange::Exchange(std::shared_ptr<ConnectionPool> pool, RequestPlan plan, ResponseSink sink)
    : pool_(std::move(pool)),
      plan_(std::move(plan)),
      sink_(std::move(sink)),
      phase_timer_(pool_->io()),
      stall_timer_(pool_->io()) {}

void Exchange::Start() {
  if (finished_ || pool_->closed()) return;
  pool_->AddRunning(shared_from_this());
  certificate_generation_ = pool_->certificate_generation();
  if (auto idle = pool_->TakeIdle(); idle.transport) {
    reused_ = true;
    return SendRequest(std::move(idle));
  }
  Connect();
}

void Exchange::Connect() {
  const auto& options = pool_->options();
  certificate_generation_ = pool_->certificate_generation();
  Destination to{.address = options.server.address,
                 .proxy = options.proxy,
                 .server_name = options.tls.server_name};
  if (options.server.tls) {
    auto context = pool_->tls().Get();
    if (!context.ok()) return Finish(context.status());
    to.tls = *std::move(context);
  }
  StartTimer(&phase_timer_, plan_.deadlines.connect, "connecting");
  attempt_ = net::Connect(pool_->io(), std::move(to), {},
                          [self = shared_from_this()](Result<TransportPtr> result) {
                            self->attempt_.reset();
                            if (self->finished_) return;
                            if (!result.ok()) return self->Finish(result.status());
                            self->SendRequest(self->pool_->MakeConnection(*std::move(result)));
                          });
  if (finished_ && attempt_) std::exchange(attempt_, nullptr)->Cancel();
}

void Exchange::SendRequest(ConnectionPool::Connection connection) {
  transport_ = std::move(connection.transport);
  retire_at_ = connection.retire_at;
  parser_ = std::make_unique<HttpParser>(plan_.kind, plan_.limits);
  request_written_ = false;
  StartTimer(&phase_timer_, plan_.deadlines.header, "waiting for the response header");
  std::string bytes = plan_.may_resend ? plan_.bytes : std::move(plan_.bytes);
  // A failed write does not end the exchange, because the server may have answered early and closed
  // (413, 429). If it has not answered, the read fails as well.
  transport_->Write(std::move(bytes),
                    [self = shared_from_this(), to = transport_.get()](const Status& status) {
                      if (self->transport_.get() == to) self->request_written_ = status.ok();
                    });
  ReadMore();
}

void Exchange::ReadMore() {
  if (head_received_)
    StartTimer(&stall_timer_, plan_.deadlines.stall, "waiting for more of the body");
  transport_->Read(
      [self = shared_from_this(), from = transport_](const Status& status, std::string_view bytes) {
        if (!self->finished_ && self->transport_ == from) self->OnRead(status, bytes);
      });
}

void Exchange::OnRead(const Status& status, std::string_view bytes) {
  stall_timer_.Stop();
  if (!status.ok()) return OnConnectionBroken(status);
  if (bytes.empty()) {
    peer_ended_ = true;
    const Status end = parser_->PutEof();
    return end.ok() ? Advance() : OnConnectionBroken(end);
  }
  const Status parsed = parser_->Put(bytes);
  if (!parsed.ok()) return Finish(parsed);
  Advance();
}

// Skips interim responses such as 100 Continue.
bool Exchange::SkipInterim() {
  const int status = parser_->response().status;
  if (status < 100 || status >= 200) return false;
  const std::string rest = parser_->TakeRest();
  parser_ = std::make_unique<HttpParser>(plan_.kind, plan_.limits);
  const Status parsed = parser_->Put(rest);
  if (!parsed.ok()) Finish(parsed);
  return true;
}

void Exchange::OnHeader() {
  if (parser_->response().status == 101) {
    return Finish(Error(Code::kInvalidArgument, "the server switched protocols without a request"));
  }
  head_received_ = true;
  StartTimer(&phase_timer_, plan_.deadlines.body, "reading the body");
  if (plan_.delivers_pieces) sink_.on_head(parser_->response());
}

void Exchange::Advance() {
  while (!finished_ && parser_->header_done() && !head_received_) {
    if (parser_->response().status == 101 || !SkipInterim()) OnHeader();
  }
  if (finished_) return;
  if (parser_->body_waiting() > 0) body_ += parser_->TakeBody();
  if (plan_.delivers_pieces && !delivering_) Deliver();
  if (parser_->done()) return Complete();
  if (peer_ended_)
    return OnConnectionBroken(
        Error(Code::kUnavailable, "connection closed before the response was complete"));
  // Resume continues from here.
  paused_ = plan_.delivers_pieces && body_.size() >= kReadAheadBytes;
  if (!paused_) ReadMore();
}

void Exchange::Deliver() {
  if (body_.empty()) return;
  delivering_ = true;
  sink_.on_piece(std::exchange(body_, {}));
}

void Exchange::Resume() {
  if (finished_) return;
  delivering_ = false;
  Deliver();
  if (std::exchange(paused_, false)) ReadMore();
}

void Exchange::OnConnectionBroken(const Status& status) {
  // A server may close an idle connection while a request is on its way (RFC 9112, section 9.3.1).
  if (reused_ && !parser_->started() && plan_.may_resend) {
    reused_ = false;
    peer_ended_ = false;
    std::exchange(transport_, nullptr)->Close();
    return Connect();
  }
  Finish(status.Annotate(pool_->options().server.address.ToString()));
}

void Exchange::Complete() {
  // After an early answer the rest of the request is still unsent or unread. It would precede the
  // next request, so the connection is not reused.
  const bool may_reuse = request_written_ && !peer_ended_ && parser_->keep_alive() &&
                         certificate_generation_ == pool_->certificate_generation();
  if (may_reuse && parser_->TakeRest().empty()) {
    pool_->KeepIdle({std::exchange(transport_, nullptr), retire_at_});
  }
  Response response = std::move(parser_->response());
  if (!plan_.delivers_pieces) response.body = std::move(body_);
  Finish(std::move(response));
}

void Exchange::Finish(Result<Response> result) {
  const auto self = shared_from_this();
  // Data received before the end or the error is delivered first.
  if (plan_.delivers_pieces && !finished_) Deliver();
  const ResponseSink sink = std::move(sink_);
  Cancel();
  if (sink.on_end) sink.on_end(std::move(result));
}

void Exchange::Cancel() {
  if (finished_) return;
  const auto self = shared_from_this();
  finished_ = true;
  pool_->RemoveRunning(this);
  phase_timer_.Stop();
  stall_timer_.Stop();
  sink_ = {};
  if (attempt_) std::exchange(attempt_, nullptr)->Cancel();
  if (transport_) std::exchange(transport_, nullptr)->Close();
}

void Exchange::StartTimer(Timer* timer, Duration delay, std::string_view activity) {
  if (delay <= Duration::zero()) return timer->Stop();
  timer->Start(delay, [weak = weak_from_this(), delay, activity] {
    const auto self = weak.lock();
    if (!self || self->finished_) return;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(delay).count();
    self->Finish(Error(Code::kDeadlineExceeded, "{}: gave up after {} ms of {}",
                       self->pool_->options().server.address.ToString(), ms, activity));
  });
}

}  // namespace tessera::net
