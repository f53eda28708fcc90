// SPDX-License-Identifier: Apache-2.0
#include "src/net/testing/http2_replay.h"

#include <future>
#include <memory>
#include <utility>

#include "src/net/http2_session.h"
#include "src/net/transport.h"

namespace tessera::net::testing {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Completes reads and writes when the test asks for it, never inside the call that begins them.
class ReplayTransport final : public Transport {
 public:
  explicit ReplayTransport(std::string* sent) : sent_(sent) {}
  void set_sent(std::string* sent) { sent_ = sent; }

  void Deliver(std::string_view bytes) {
    if (on_read_) std::exchange(on_read_, nullptr)(Status::Ok(), bytes);
    CompleteWrites();
  }
  void CompleteWrites() {
    while (on_written_) std::exchange(on_written_, nullptr)(Status::Ok());
  }

  void Read(OnRead on_read) override { on_read_ = std::move(on_read); }
  void Write(std::string head, std::string body, OnDone on_done) override {
    sent_->append(head).append(body);
    on_written_ = std::move(on_done);
  }
  void WriteShared(std::string head, std::shared_ptr<const std::string> body, std::string tail,
                   OnDone on_done) override {
    Write(head + *body + tail, {}, std::move(on_done));
  }
  void Close() override {
    on_read_ = nullptr;
    on_written_ = nullptr;
  }
  bool IsStale() override { return false; }
  std::chrono::steady_clock::time_point written_at() const override {
    return std::chrono::steady_clock::now();
  }

 private:
  std::string* sent_;
  OnRead on_read_;
  OnDone on_written_;
};

Http2Outcome Replay(IoThread& io, const ServerLimits& limits, std::string_view bytes,
                    size_t piece_bytes) {
  Http2Outcome outcome;
  std::vector<uint64_t> streams;
  const auto transport = std::make_shared<ReplayTransport>(&outcome.early_frames);
  std::weak_ptr<Http2Session> weak;
  const auto session = std::make_shared<Http2Session>(
      io, limits, transport,
      Http2Session::Events{.on_request =
                               [&](Request request, uint64_t stream) {
                                 outcome.requests.push_back(std::move(request));
                                 streams.push_back(stream);
                                 weak.lock()->WatchPeer(stream,
                                                        [&outcome] { ++outcome.gone_clients; });
                               },
                           .on_body_grew = [] {},
                           .on_closed = [&outcome] { ++outcome.close_count; }});
  weak = session;
  session->Start();
  const std::string input = std::string(kPreface).append(bytes);
  for (size_t at = 0; at < input.size(); at += piece_bytes) {
    transport->Deliver(std::string_view(input).substr(at, piece_bytes));
  }
  transport->set_sent(&outcome.late_frames);
  for (const uint64_t stream : streams) session->Answer(stream, TextResponse(200, "ok\n"));
  transport->CompleteWrites();
  transport->Deliver("");
  session->Close();
  return outcome;
}

}  // namespace

Http2Outcome ReplayHttp2(IoThread& io, const ServerLimits& limits, std::string_view bytes,
                         size_t piece_bytes) {
  std::promise<Http2Outcome> done;
  io.Post([&] { done.set_value(Replay(io, limits, bytes, piece_bytes)); });
  return done.get_future().get();
}

}  // namespace tessera::net::testing
