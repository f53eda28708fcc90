// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/connection.h"

#include <utility>

#include "src/base/strings.h"
#include "src/kube/testing/wire_writer.h"

namespace tessera::simulation {

using namespace std::chrono_literals;

void Connection::Respond(const std::weak_ptr<const bool>& request, const OnResponse& on_done,
                         Result<net::Response> response, Duration delay) {
  world_.After(delay, life_, [this, request, on_done, response = std::move(response)] {
    process_.Post([request, on_done, response] {
      // `request` is not locked during the callback, which may drop the request.
      if (!request.expired()) on_done(response);
    });
  });
}

kube::Operation Connection::Send(net::Request request, const net::HttpClient::CallOptions&,
                                 OnResponse on_done) {
  Life held = Born();
  const std::weak_ptr<const bool> waiting = held;
  kube::Operation operation([held = std::move(held)]() mutable { held.reset(); });
  const Status no_response(Code::kUnavailable, "no response from the API server");
  if (server_.down() || server_.LosesNext()) {
    Respond(waiting, on_done, no_response, world_.Between(10ms, 3s));
    return operation;
  }
  const bool response_lost = server_.LosesNext();
  // The write takes effect even if its sender has given up or died.
  const Duration delay = server_.RequestDelay();
  world_.runner().PostDelayed(delay, [this, &server = server_, weak = std::weak_ptr(life_),
                                      term = term_, sent_term = term_(), waiting, on_done,
                                      no_response, response_lost, delay,
                                      request = std::move(request)] {
    const bool may_write = sent_term != 0 && term() == sent_term;
    const Result<net::Response> response = server.down() ? Result<net::Response>(no_response)
                                                         : server.Handle(request, may_write, delay);
    if (weak.expired()) return;
    Respond(waiting, on_done, response_lost ? Result<net::Response>(no_response) : response,
            world_.Between(1ms, response_lost ? Duration(4s) : Duration(20ms)));
  });
  return operation;
}

namespace {

// A watch: initial objects, then changes.
class Stream final : public std::enable_shared_from_this<Stream> {
 public:
  Stream(World& world, ApiServer& server, Process& process, const net::Request& request,
         net::StreamHandler handler)
      : world_(world),
        server_(server),
        process_(process),
        kind_(server.KindOf(request)),
        initial_(request.Query("sendInitialEvents").has_value()),
        version_(static_cast<size_t>(
            ParseInt(request.Query("resourceVersion").value_or("")).value_or(0))),
        handler_(std::move(handler)) {}

  void Start() {
    if (server_.down()) return End(Status(Code::kUnavailable, "connection refused"));
    Later(world_.Between(1ms, 20ms), [this] {
      handler_.on_head(
          {200, {{"Content-Type", "application/vnd.kubernetes.protobuf;stream=watch"}}, ""});
      if (!initial_ && (server_.LosesNext() || version_ == 0)) {
        const auto gone = kube::testing::WireWriter().Bytes(3, "too old").Bytes(4, "Expired");
        return Data(kube::testing::WatchFrame(
            "ERROR", "Status", kube::testing::WireWriter(gone).Varint(6, 410).text()));
      }
      if (initial_) {
        version_ = server_.version();
        std::string all = server_.FramesOfAll(kind_);
        all += server_.BookmarkFrame(kind_, true);
        Data(all);
      }
      Plan();
    });
  }

 private:
  void Plan() {
    Later(server_.WatchDelay(), [this] { Deliver(); });
  }
  void Deliver() {
    if (server_.down()) return Plan();
    if (server_.LosesNext()) return End(Status(Code::kUnavailable, "the connection broke"));
    const size_t until = server_.calm()
                             ? server_.version()
                             : std::min(server_.version(), version_ + 1 + world_.random().Below(8));
    std::string frames;
    while (version_ < until) frames += server_.FrameOf(kind_, version_++);
    if (!frames.empty()) Data(frames);
    Plan();
  }
  void Data(const std::string& bytes) {
    process_.Post([weak = weak_from_this(), bytes] {
      const auto self = weak.lock();
      if (self) self->handler_.on_data(bytes);
    });
  }
  void End(Status status) {
    Later(world_.Between(1ms, 100ms), [this, status] {
      const auto on_end = handler_.on_end;
      on_end(status);
    });
  }
  // Posted to the process, so that events keep their order.
  void Later(Duration delay, std::function<void()> task) {
    process_.PostDelayed(delay, [weak = weak_from_this(), task = std::move(task)] {
      if (const auto self = weak.lock()) task();
    });
  }

  World& world_;
  ApiServer& server_;
  Process& process_;
  const ApiServer::Kind kind_;
  const bool initial_;
  size_t version_;
  const net::StreamHandler handler_;
};

}  // namespace

kube::Operation Connection::Stream(net::Request request, const net::Deadlines&,
                                   net::StreamHandler handler) {
  auto stream =
      std::make_shared<simulation::Stream>(world_, server_, process_, request, std::move(handler));
  // Posted, because callbacks must not run inside the call.
  process_.Post([weak = std::weak_ptr(stream)] {
    if (const auto alive = weak.lock()) alive->Start();
  });
  return kube::Operation([stream = std::move(stream)]() mutable { stream.reset(); });
}

}  // namespace tessera::simulation
