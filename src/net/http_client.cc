// SPDX-License-Identifier: Apache-2.0
#include "src/net/http_client.h"

#include <cstdint>
#include <utility>

#include "src/net/exchange.h"

namespace tessera::net {

// Used on the runner's thread only, except for `exchange`, `runner` and `io`, which are constant
// while the request runs.
struct HttpCall::State {
  IoThread* io = nullptr;
  TaskRunner* runner = nullptr;
  WeakPtr<HttpClient> client;
  std::weak_ptr<Exchange> exchange;
  bool finished = false;                          // answered or cancelled
  std::function<void(Result<Response>)> on_done;  // for Send
  StreamHandler stream;                           // for Stream

  bool IsDetached() const { return finished || !client; }
  void Detach() {
    finished = true;
    on_done = nullptr;
    stream = {};
  }
};

namespace {

using StatePtr = std::shared_ptr<HttpCall::State>;

void End(const StatePtr& state, Result<Response> result) {
  if (state->IsDetached()) return;
  const auto on_done = std::move(state->on_done);
  const auto on_end = std::move(state->stream.on_end);
  state->Detach();
  if (on_done) return on_done(std::move(result));
  on_end(result.status());
}

// Passes the exchange's results from the IoThread to the runner.
Exchange::ResponseSink MakeSink(const StatePtr& state) {
  Exchange::ResponseSink sink;
  sink.on_head = [state](Response head) {
    state->runner->Post([state, head = std::move(head)] {
      if (!state->IsDetached()) state->stream.on_head(head);
    });
  };
  sink.on_piece = [state](std::string piece) {
    state->runner->Post([state, piece = std::move(piece)] {
      if (state->IsDetached()) return;
      state->stream.on_data(piece);
      if (state->IsDetached()) return;
      state->io->Post([weak = state->exchange] {
        if (const auto exchange = weak.lock()) exchange->Resume();
      });
    });
  };
  sink.on_end = [state](Result<Response> result) {
    state->runner->Post(
        [state, result = std::move(result)]() mutable { End(state, std::move(result)); });
  };
  return sink;
}

}  // namespace

HttpCall& HttpCall::operator=(HttpCall&& other) noexcept {
  if (this == &other) return *this;
  Cancel();
  state_ = std::move(other.state_);
  return *this;
}

void HttpCall::Cancel() {
  const StatePtr state = std::move(state_);
  if (!state || state->finished) return;
  state->Detach();
  if (!state->client) return;  // The client's destructor has cancelled it.
  state->io->Post([weak = state->exchange] {
    if (const auto exchange = weak.lock()) exchange->Cancel();
  });
}

bool HttpCall::active() const { return state_ && !state_->IsDetached(); }

struct HttpClient::Core {
  TaskRunner& runner;
  std::shared_ptr<ConnectionPool> pool;
};

HttpClient::HttpClient(IoThread& io, TaskRunner& runner, Options options)
    : core_(new Core{runner, std::make_shared<ConnectionPool>(io, std::move(options))}) {}

HttpClient::~HttpClient() {
  core_->pool->io().Post([pool = core_->pool] { pool->Close(); });
}

void HttpClient::SetCertificate(PemSource certificate, PemSource key) {
  core_->pool->io().Post([pool = core_->pool, certificate = std::move(certificate),
                          key = std::move(key)] { pool->SetCertificate(certificate, key); });
}

const HttpClient::Options& HttpClient::options() const { return core_->pool->options(); }

HttpCall HttpClient::Send(Request request, CallOptions options,
                          std::function<void(Result<Response>)> on_done) {
  auto state = std::make_shared<HttpCall::State>();
  state->on_done = std::move(on_done);
  return Start(std::move(request), options, std::move(state));
}

HttpCall HttpClient::Stream(Request request, CallOptions options, StreamHandler handler) {
  auto state = std::make_shared<HttpCall::State>();
  state->stream = std::move(handler);
  options.max_body = SIZE_MAX;
  return Start(std::move(request), options, std::move(state));
}

HttpCall HttpClient::Start(Request request, CallOptions options, StatePtr state) {
  IoThread& io = core_->pool->io();
  state->io = &io;
  state->runner = &core_->runner;
  state->client = weak_.Get();
  request.target = this->options().server.path + request.target;
  if (!request.headers.Has("Host")) {
    request.headers.Set("Host", this->options().server.HostField());
  }
  auto bytes = SerializeRequest(request);
  if (!bytes.ok()) {
    core_->runner.Post([state, status = bytes.status()] { End(state, status); });
    return HttpCall(state);
  }
  const std::string& method = request.method;
  Exchange::RequestPlan plan{
      .bytes = *std::move(bytes),
      .kind = method == "HEAD" ? HttpParser::MessageKind::kResponseToHead
                               : HttpParser::MessageKind::kResponse,
      .limits = {.max_header_bytes = 64 << 10, .max_body_bytes = options.max_body},
      .deadlines = options.deadlines,
      .delivers_pieces = state->stream.on_end != nullptr,
      .may_resend = method == "GET" || method == "HEAD" || method == "PUT" || method == "DELETE",
  };
  auto exchange = std::make_shared<Exchange>(core_->pool, std::move(plan), MakeSink(state));
  state->exchange = exchange;
  io.Post([exchange = std::move(exchange)] { exchange->Start(); });
  return HttpCall(std::move(state));
}

}  // namespace tessera::net
