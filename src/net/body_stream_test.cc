// SPDX-License-Identifier: Apache-2.0
// Streamed responses and absent clients, on real sockets.
#include "src/net/body_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "src/net/http_client.h"
#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;
using testing::RawClient;

BodyStream::Piece PieceOf(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

class BodyStreamTest : public ::testing::Test {
 protected:
  void Start(ServerLimits limits = {}, size_t queue_bytes = 1 << 20) {
    HttpServer::Options options{.address = {.host = "127.0.0.1"}, .limits = limits};
    auto server =
        HttpServer::Start(io_, runner_, options,
                          [this, queue_bytes](const Request& request, HttpServer::Reply reply) {
                            requests_.push_back(request);
                            if (request.target == "/plain")
                              return reply(TextResponse(200, "plain"));
                            if (request.target == "/held") return held_.push_back(std::move(reply));
                            stream_ = std::make_unique<BodyStream>(
                                io_, runner_,
                                BodyStream::Options{.queue_bytes = queue_bytes,
                                                    .on_drained = [this] { ++drained_; },
                                                    .on_closed = [this] { ++closed_; }});
                            Response response{200, {{"Content-Type", "text/event-stream"}}, ""};
                            response.stream = stream_->sink();
                            reply(std::move(response));
                          });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  RawClient Dial() { return RawClient(server_->address()); }
  RawClient Open(const char* target = "/events") {
    RawClient client = Dial();
    const size_t before = requests_.size();
    client.Send(std::string("GET ") + target + " HTTP/1.1\r\n\r\n");
    EXPECT_TRUE(runner_.RunUntil([&] { return requests_.size() > before; }));
    return client;
  }
  // Receives while the runner serves, until the text contains `end`.
  std::string ReceiveUntil(RawClient& client, std::string_view end) {
    std::string got;
    std::atomic<bool> done = false;
    std::thread reader([&] {
      size_t searched = 0;
      while (got.find(end, searched) == std::string::npos) {
        searched = got.size() < end.size() ? 0 : got.size() - end.size();
        const std::string more = client.Receive();
        if (more.empty()) break;
        got += more;
      }
      done = true;
    });
    EXPECT_TRUE(runner_.RunUntil([&] { return done.load(); }));
    reader.join();
    return got;
  }
  std::string ReceiveUntilClose(RawClient& client) {
    return ReceiveUntil(client, "text that the server never sends");
  }

  testing::TestRunner runner_;
  IoThread io_;
  std::vector<Request> requests_;
  std::vector<HttpServer::Reply> held_;
  int drained_ = 0, closed_ = 0;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<BodyStream> stream_;
};

TEST_F(BodyStreamTest, PiecesArriveAsTheyArePushed) {
  Start();
  RawClient client = Open();
  stream_->Push(PieceOf("one"));
  const std::string first = ReceiveUntil(client, "one\r\n");
  EXPECT_NE(first.find("Transfer-Encoding: chunked\r\n"), std::string::npos);
  EXPECT_EQ(first.find("Content-Length"), std::string::npos);
  EXPECT_EQ(first.substr(first.find("\r\n\r\n")), "\r\n\r\n3\r\none\r\n");
  stream_->Push(PieceOf("twelve bytes"));
  EXPECT_EQ(ReceiveUntil(client, "bytes\r\n"), "c\r\ntwelve bytes\r\n");
}

TEST_F(BodyStreamTest, TheConnectionServesAnotherRequestAfterTheStream) {
  Start();
  RawClient client = Open();
  client.Send("GET /plain HTTP/1.1\r\n\r\n");  // arrives while the stream is open
  stream_->Push(PieceOf("x"));
  stream_->Finish();
  const std::string got = ReceiveUntil(client, "plain");
  EXPECT_LT(got.find("1\r\nx\r\n0\r\n\r\n"),
            got.find("HTTP/1.1 200 OK\r\nContent-Type: text/plain"));
  EXPECT_TRUE(runner_.RunUntil([&] { return closed_ == 1; }));
}

TEST_F(BodyStreamTest, AnHttp10ClientGetsTheBodyWithoutChunks) {
  Start();
  RawClient client = Dial();
  client.Send("GET /events HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(runner_.RunUntil([&] { return stream_ != nullptr; }));
  stream_->Push(PieceOf("one"));
  stream_->Finish();
  const std::string got = ReceiveUntilClose(client);
  EXPECT_EQ(got.find("chunked"), std::string::npos);
  EXPECT_EQ(got.substr(got.find("\r\n\r\n")), "\r\n\r\none");
}

TEST_F(BodyStreamTest, HttpClientReadsAStream) {
  Start();
  HttpClient client(io_, runner_, {.server = {.address = server_->address()}});
  std::optional<Result<Response>> answer;
  const HttpCall call =
      client.Send({.target = "/events"}, {}, [&](Result<Response> r) { answer = std::move(r); });
  ASSERT_TRUE(runner_.RunUntil([&] { return stream_ != nullptr; }));
  std::string all;
  for (int i = 0; i < 50; ++i) {
    const std::string text(static_cast<size_t>(i) * 300, static_cast<char>('a' + i % 26));
    all += text;
    EXPECT_TRUE(stream_->Push(PieceOf(text)));
  }
  stream_->Finish();
  ASSERT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
  ASSERT_TRUE(answer->ok()) << answer->status().ToString();
  EXPECT_EQ((*answer)->body, all);
}

TEST_F(BodyStreamTest, ShortPiecesThatWaitAreWrittenTogether) {
  Start({}, 32 << 20);
  RawClient client = Open();
  // Holds up the connection until all of the short pieces wait.
  stream_->Push(PieceOf(std::string(16 << 20, 'y') + "end"));
  runner_.RunFor(milliseconds(100));
  std::string expected = "end\r\n";
  std::string joined;
  for (int i = 0; i < 1000; ++i) {
    const std::string piece = "event " + std::to_string(i) + "\n";
    joined += piece;
    stream_->Push(PieceOf(piece));
  }
  stream_->Push(PieceOf(std::string(16 << 10, 'z')));  // does not fit beside them
  expected += fmt::format("{:x}\r\n{}\r\n4000\r\n", joined.size(), joined);
  const std::string got = ReceiveUntil(client, "zzz\r\n");
  EXPECT_EQ(got.substr(got.find("end\r\n"), expected.size()), expected);
  EXPECT_TRUE(runner_.RunUntil([&] { return stream_->queued_bytes() == 0; }));
}

TEST_F(BodyStreamTest, AFullQueueRejectsPiecesUntilTheClientHasReadAll) {
  Start({}, 100'000);
  RawClient client = Open();
  // More than the kernel's buffers hold.
  const BodyStream::Piece large = PieceOf(std::string(16 << 20, 'y') + "end");
  EXPECT_TRUE(stream_->Push(large));
  runner_.RunFor(milliseconds(100));
  EXPECT_FALSE(stream_->Push(PieceOf("dropped")));
  EXPECT_EQ(stream_->queued_bytes(), large->size());
  EXPECT_EQ(drained_, 0);
  std::string got = ReceiveUntil(client, "end\r\n");
  EXPECT_TRUE(runner_.RunUntil([&] { return drained_ == 1; }));
  EXPECT_TRUE(stream_->Push(PieceOf("snapshot")));
  got += ReceiveUntil(client, "snapshot");
  EXPECT_EQ(got.find("dropped"), std::string::npos);
}

TEST_F(BodyStreamTest, StreamsShareTheirPieces) {
  Start();
  const BodyStream::Piece large = PieceOf(std::string(8 << 20, 'x'));
  std::vector<std::unique_ptr<BodyStream>> streams;
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(Open());
    stream_->Push(large);
    streams.push_back(std::move(stream_));
  }
  runner_.RunFor(milliseconds(100));
  // One reference of the test, and one of each stream.
  EXPECT_TRUE(runner_.RunUntil([&] { return large.use_count() == 6; })) << large.use_count();
}

TEST_F(BodyStreamTest, AClosedClientEndsTheStream) {
  Start();
  {
    RawClient client = Open();
    stream_->Push(PieceOf("one"));
    ReceiveUntil(client, "one");
  }
  EXPECT_TRUE(runner_.RunUntil([&] { return closed_ == 1; }));
  EXPECT_TRUE(stream_->closed());
  EXPECT_FALSE(stream_->Push(PieceOf("two")));
}

TEST_F(BodyStreamTest, AClientThatDoesNotReadEndsTheStreamAfterTheWriteLimit) {
  Start({.write_timeout = milliseconds(500)});
  RawClient client = Open();
  stream_->Push(PieceOf(std::string(16 << 20, 'x')));
  EXPECT_TRUE(runner_.RunUntil([&] { return closed_ == 1; }));
}

TEST_F(BodyStreamTest, AnIdleStreamOutlivesTheLimits) {
  // Long enough for the request and the response's head to arrive on a busy machine.
  constexpr auto kLimit = std::chrono::seconds(2);
  Start({.handler_timeout = kLimit, .write_timeout = kLimit, .idle_timeout = kLimit});
  RawClient client = Open();
  runner_.RunFor(kLimit + milliseconds(500));
  stream_->Push(PieceOf("late"));
  EXPECT_NE(ReceiveUntil(client, "late").find("4\r\nlate"), std::string::npos);
}

TEST_F(BodyStreamTest, IdleStreamsAreNotEvicted) {
  Start({.max_connections = 2});
  RawClient first = Open();
  const auto kept = std::move(stream_);
  RawClient second = Open();
  ReceiveUntil(first, "\r\n\r\n");
  ReceiveUntil(second, "\r\n\r\n");
  runner_.RunFor(milliseconds(50));  // until the server knows that the heads are written
  RawClient probe = Dial();
  probe.Send("GET /plain HTTP/1.1\r\n\r\n");
  runner_.RunFor(milliseconds(100));
  EXPECT_EQ(closed_, 0);
  kept->Push(PieceOf("alive"));
  EXPECT_NE(ReceiveUntil(first, "alive").find("alive"), std::string::npos);
}

TEST_F(BodyStreamTest, DestroyingAnOpenStreamBreaksTheConnection) {
  Start();
  RawClient client = Open();
  stream_->Push(PieceOf("one"));
  ReceiveUntil(client, "one\r\n");
  stream_.reset();
  EXPECT_EQ(ReceiveUntilClose(client).find("0\r\n\r\n"), std::string::npos);
}

TEST_F(BodyStreamTest, DestroyingTheServerClosesStreams) {
  Start();
  RawClient client = Open();
  server_.reset();
  EXPECT_TRUE(runner_.RunUntil([&] { return closed_ == 1; }));
}

TEST_F(BodyStreamTest, AHandlerIsNotifiedThatItsClientIsGone) {
  Start();
  bool gone = false;
  {
    RawClient client = Open("/held");
    requests_[0].presence->OnGone([&] { gone = true; });
    runner_.RunFor(milliseconds(50));
    EXPECT_FALSE(gone);
  }
  EXPECT_TRUE(runner_.RunUntil([&] { return gone; }));
}

TEST_F(BodyStreamTest, AHalfClosedClientStillGetsItsResponses) {
  Start();
  RawClient client = Dial();
  client.Send("GET /held HTTP/1.1\r\n\r\nGET /held HTTP/1.1\r\n\r\n");
  client.ShutdownWrite();
  ASSERT_TRUE(runner_.RunUntil([&] { return held_.size() == 1; }));
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_[0].presence->gone(); }));
  held_[0](TextResponse(200, "still here"));
  ASSERT_TRUE(runner_.RunUntil([&] { return held_.size() == 2; }));
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_[1].presence->gone(); }));
  held_[1](TextResponse(200, "here as well"));
  const std::string got = ReceiveUntilClose(client);
  EXPECT_NE(got.find("still here"), std::string::npos);
  EXPECT_NE(got.find("here as well"), std::string::npos);
}

TEST_F(BodyStreamTest, ALateStreamForAGoneClientIsClosed) {
  Start();
  { RawClient client = Open("/held"); }
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_[0].presence->gone(); }));
  runner_.RunFor(milliseconds(50));
  BodyStream late(io_, runner_, {.on_closed = [this] { ++closed_; }});
  Response response;
  response.stream = late.sink();
  held_[0](std::move(response));
  EXPECT_TRUE(runner_.RunUntil([&] { return closed_ == 1; }));
}

TEST_F(BodyStreamTest, RequestsHaveTheAddressOfTheirPeer) {
  Start();
  const RawClient client = Open("/plain");
  EXPECT_EQ(requests_[0].peer, "127.0.0.1");
  auto server = HttpServer::Start(io_, runner_, {.address = ParseAddress(":0").value()},
                                  [&](const Request& request, const HttpServer::Reply& reply) {
                                    requests_.push_back(request);
                                    reply(TextResponse(200, ""));
                                  });
  ASSERT_TRUE(server.ok());
  for (const char* host : {"127.0.0.1", "::1"}) {
    HttpClient client(io_, runner_,
                      {.server = {.address = {.host = host, .port = (*server)->address().port}}});
    const size_t before = requests_.size();
    const HttpCall call = client.Send({}, {}, [](const Result<Response>&) {});
    ASSERT_TRUE(runner_.RunUntil([&] { return requests_.size() > before; }));
    EXPECT_EQ(requests_.back().peer, host);
  }
}

TEST_F(BodyStreamTest, APeerThatReadsSlowlyGetsTheWholeResponse) {
  // Long enough for a peer that a busy machine stops for a while.
  constexpr auto kLimit = std::chrono::seconds(2);
  HttpServer::Options options{.address = {.host = "127.0.0.1"},
                              .limits = {.write_timeout = kLimit}};
  auto server =
      HttpServer::Start(io_, runner_, options, [](const Request&, const HttpServer::Reply& reply) {
        reply(TextResponse(200, std::string(32 << 20, 'x')));
      });
  ASSERT_TRUE(server.ok());
  RawClient client((*server)->address());
  client.Send("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  size_t got = 0;
  std::atomic<bool> done = false;
  const auto began = std::chrono::steady_clock::now();
  std::thread reader([&] {
    // Takes longer than the limit in total, but never waits that long.
    for (;;) {
      const std::string more = client.Receive(1 << 20);
      if (more.empty()) break;
      got += more.size();
      std::this_thread::sleep_for(milliseconds(100));
    }
    done = true;
  });
  EXPECT_TRUE(runner_.RunUntil([&] { return done.load(); }, std::chrono::seconds(60)));
  reader.join();
  EXPECT_GT(got, size_t{32} << 20);
  EXPECT_GT(std::chrono::steady_clock::now() - began, kLimit);
}

}  // namespace
}  // namespace tessera::net
