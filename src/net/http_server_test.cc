// SPDX-License-Identifier: Apache-2.0
#include "src/net/http_server.h"

#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <algorithm>

#include "src/net/http_client.h"
#include "src/net/testing/loopback.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;
using testing::RawClient;

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServer::Options options = {}) {
    if (options.address.unix_path.empty()) options.address.host = "127.0.0.1";
    auto server = HttpServer::Start(io_, runner_, options,
                                    [this](const Request& request, HttpServer::Reply reply) {
                                      requests_.push_back(request);
                                      handler_(request, std::move(reply));
                                    });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  RawClient Dial() { return RawClient(server_->address()); }
  // Returns the bytes that a raw client receives until the server closes, while the runner serves.
  std::string ReceiveAll(RawClient& client) {
    std::string answer;
    std::atomic<bool> closed = false;
    std::thread reader([&] {
      answer = client.ReceiveUntilClose();
      closed = true;
    });
    EXPECT_TRUE(runner_.RunUntil([&] { return closed.load(); }));
    reader.join();
    return answer;
  }
  std::string SendAndReceiveAll(std::string_view bytes) {
    RawClient client = Dial();
    client.Send(bytes);
    return ReceiveAll(client);
  }

  testing::TestRunner runner_;
  IoThread io_;
  std::vector<Request> requests_;
  std::function<void(const Request&, HttpServer::Reply)> handler_ =
      [](const Request& request, const HttpServer::Reply& reply) {
        reply(TextResponse(200, request.method + " " + request.target + " " + request.body));
      };
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersAndClosesTheConnectionIfTheClientRequestsIt) {
  Start();
  const std::string answer =
      SendAndReceiveAll("GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer.substr(0, 15), "HTTP/1.1 200 OK");
  EXPECT_NE(answer.find("\r\n\r\nGET /metrics "), std::string::npos);
}

TEST_F(HttpServerTest, ClosesTheConnectionIfTheHandlerRequestsIt) {
  handler_ = [](const Request& request, const HttpServer::Reply& reply) {
    Response response = TextResponse(200, request.target);
    response.close = request.target == "/2";
    reply(std::move(response));
  };
  Start();
  const std::string answer =
      SendAndReceiveAll("GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3 HTTP/1.1\r\n\r\n");
  const size_t closes = answer.find("Connection: close");
  EXPECT_LT(answer.find("\r\n\r\n/1"), closes);
  EXPECT_EQ(answer.substr(answer.size() - 2), "/2");
  EXPECT_NE(closes, std::string::npos);
  EXPECT_EQ(requests_.size(), 2U);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Start();
  const std::string answer = SendAndReceiveAll(
      "GET /1 HTTP/1.1\r\n\r\nPOST /2 HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
      "GET /3 HTTP/1.1\r\nConnection: close\r\n\r\n");
  const size_t one = answer.find("GET /1");
  const size_t two = answer.find("POST /2 ab");
  const size_t three = answer.find("GET /3");
  EXPECT_LT(one, two);
  EXPECT_LT(two, three);
  EXPECT_NE(three, std::string::npos);
}

TEST_F(HttpServerTest, HeadGetsTheLengthAndNoBody) {
  Start();
  const std::string answer = SendAndReceiveAll("HEAD /x HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_NE(answer.find("Content-Length: 8\r\n"), std::string::npos);
  EXPECT_EQ(answer.substr(answer.size() - 4), "\r\n\r\n");
}

TEST_F(HttpServerTest, AnHttp10ConnectionIsClosedAfterTheResponse) {
  Start();
  EXPECT_NE(SendAndReceiveAll("GET / HTTP/1.0\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, SendsContinueToAWaitingClient) {
  Start();
  RawClient client = Dial();
  client.Send(
      "POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
      "Connection: close\r\n\r\n");
  EXPECT_EQ(client.Receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  client.Send("ok");
  EXPECT_NE(ReceiveAll(client).find("POST / ok"), std::string::npos);
}

TEST_F(HttpServerTest, RejectsInvalidAndOversizedRequests) {
  Start({.limits = {.max_header_bytes = 512, .max_body_bytes = 100}});
  EXPECT_EQ(SendAndReceiveAll("\x16\x03\x01garbage\r\n\r\n").substr(9, 3), "400");
  EXPECT_EQ(SendAndReceiveAll("GET / HTTP/1.1\r\nX: " + std::string(4000, 'x')).substr(9, 3),
            "431");
  EXPECT_EQ(SendAndReceiveAll("POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n").substr(9, 3),
            "413");
  // The rejection arrives although the peer is still sending.
  for (const size_t size : {99'999, 8'000'000}) {
    EXPECT_EQ(SendAndReceiveAll(fmt::format("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", size) +
                                std::string(size, 'x'))
                  .substr(9, 3),
              "413");
  }
  EXPECT_TRUE(requests_.empty());
}

TEST_F(HttpServerTest, ARequestThatTricklesInEndsAtItsDeadline) {
  Start({.limits = {.request_timeout = milliseconds(100)}});
  RawClient client = Dial();
  std::atomic<bool> stop = false;
  std::thread trickle([&] {
    client.Send("GET / HTTP/1.1\r\n");
    while (!stop) client.Send("X: y\r\n");
  });
  const std::string answer = ReceiveAll(client);
  stop = true;
  trickle.join();
  // The size limit of the header may end the request, too; both limits bound its duration.
  EXPECT_TRUE(answer.empty() || answer.substr(9, 3) == "408" || answer.substr(9, 3) == "431")
      << answer;
}

TEST_F(HttpServerTest, ASilentPeerIsClosed) {
  // Long enough for each request to arrive on a busy machine.
  Start({.limits = {.request_timeout = std::chrono::seconds(2), .idle_timeout = milliseconds(50)}});
  RawClient silent = Dial();
  RawClient slow = Dial();
  slow.Send("GET /");
  EXPECT_EQ(ReceiveAll(silent), "");
  EXPECT_EQ(ReceiveAll(slow).substr(9, 3), "408");
  EXPECT_NE(SendAndReceiveAll("GET / HTTP/1.1\r\n\r\n").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, IdlePeersMakeRoomForNewPeers) {
  Start({.limits = {.max_connections = 4}});
  std::vector<RawClient> idle;
  for (int i = 0; i < 12; ++i) idle.push_back(Dial());
  EXPECT_NE(
      SendAndReceiveAll("GET /probe HTTP/1.1\r\nConnection: close\r\n\r\n").find("GET /probe"),
      std::string::npos);
}

TEST_F(HttpServerTest, BusyConnectionsAreNotEvicted) {
  Start({.limits = {.max_connections = 2}});
  std::vector<HttpServer::Reply> replies;
  handler_ = [&](const Request&, HttpServer::Reply reply) { replies.push_back(std::move(reply)); };
  RawClient first = Dial();
  RawClient second = Dial();
  first.Send("GET /1 HTTP/1.1\r\nConnection: close\r\n\r\n");
  second.Send("GET /2 HTTP/1.1\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(runner_.RunUntil([&] { return replies.size() == 2; }));
  EXPECT_EQ(SendAndReceiveAll("GET /3 HTTP/1.1\r\n\r\n"), "");
  for (const auto& reply : replies) reply(TextResponse(200, "done"));
  EXPECT_NE(ReceiveAll(first).find("done"), std::string::npos);
  EXPECT_NE(ReceiveAll(second).find("done"), std::string::npos);
}

TEST_F(HttpServerTest, PeersThatDoNotReadTheirAnswersMakeRoomForAProbe) {
  Start({.limits = {.max_connections = 16}});
  handler_ = [](const Request& request, const HttpServer::Reply& reply) {
    const bool large = request.target == "/metrics";
    reply(TextResponse(200, large ? std::string(8 << 20, 'x') : "healthy"));
  };
  std::string many;
  for (int i = 0; i < 8; ++i) many += "GET /metrics HTTP/1.1\r\n\r\n";
  std::vector<RawClient> hoarders;
  for (int i = 0; i < 16; ++i) {
    hoarders.push_back(Dial());
    hoarders.back().Send(many);
  }
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_.size() == 16; }));
  runner_.RunFor(milliseconds(100));  // until the kernel's buffers are full
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(
        SendAndReceiveAll("GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n").find("healthy"),
        std::string::npos);
  }
}

TEST_F(HttpServerTest, APeerThatReadsStaysLongerThanAPeerThatDoesNotRead) {
  Start({.limits = {.max_connections = 2}});
  handler_ = [](const Request&, const HttpServer::Reply& reply) {
    reply(TextResponse(200, std::string(32 << 20, 'x')));
  };
  RawClient reads = Dial();
  reads.Send("GET /1 HTTP/1.1\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_.size() == 1; }));
  RawClient stuck = Dial();
  stuck.Send("GET /2 HTTP/1.1\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_.size() == 2; }));
  // The kernel's buffers are full when no byte has arrived for a second.
  int before = 0, waiting = 0;
  runner_.RunFor(milliseconds(50));
  ASSERT_EQ(::ioctl(stuck.fd(), FIONREAD, &waiting), 0);
  do {
    before = waiting;
    runner_.RunFor(std::chrono::seconds(1));
    ASSERT_EQ(::ioctl(stuck.fd(), FIONREAD, &waiting), 0);
  } while (waiting == 0 || waiting != before);
  // The first peer started earlier, but still makes progress.
  size_t got = 0;
  for (int i = 0; i < 200; ++i) got += reads.Receive().size();
  RawClient probe = Dial();
  EXPECT_TRUE(runner_.RunUntil([&] { return requests_[1].presence->gone(); }));
  got += ReceiveAll(reads).size();
  EXPECT_GT(got, size_t{32} << 20);
  EXPECT_LT(ReceiveAll(stuck).size(), size_t{32} << 20);
}

TEST_F(HttpServerTest, BoundsTheSumOfLargeBodiesAndServesSmallBodies) {
  HttpServer::Options options;
  options.limits = {.max_body_bytes = 1'000'000, .max_total_body_bytes = 2'000'000};
  options.limits.request_timeout = std::chrono::seconds(2);
  Start(options);
  std::vector<RawClient> large;
  for (int i = 0; i < 4; ++i) {
    large.push_back(Dial());
    large.back().Send("POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" +
                      std::string(900'000, 'x'));
  }
  EXPECT_NE(SendAndReceiveAll("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: 2\r\n\r\nab")
                .find(" 200 "),
            std::string::npos);
  int refused = 0, late = 0;
  for (RawClient& client : large) {
    const std::string response = ReceiveAll(client);
    refused += response.starts_with("HTTP/1.1 503 ") ? 1 : 0;
    late += response.starts_with("HTTP/1.1 408 ") ? 1 : 0;
  }
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(late, 2);
  EXPECT_EQ(requests_.size(), 1u);
}

TEST_F(HttpServerTest, ARequestThatTheHandlerNeverAnswersGets503) {
  Start({.limits = {.handler_timeout = milliseconds(50)}});
  HttpServer::Reply late;
  handler_ = [&](const Request&, HttpServer::Reply reply) { late = std::move(reply); };
  EXPECT_EQ(SendAndReceiveAll("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").substr(9, 3), "503");
  late(TextResponse(200, "too late"));
}

TEST_F(HttpServerTest, APeerThatDoesNotReadIsClosed) {
  Start({.limits = {.write_timeout = milliseconds(50)}});
  handler_ = [](const Request&, const HttpServer::Reply& reply) {
    reply(TextResponse(200, std::string(32 << 20, 'x')));
  };
  RawClient client = Dial();
  client.Send("GET / HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(runner_.RunUntil([&] { return !requests_.empty(); }));
  // A peer that reads at once may receive everything in time.
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_[0].presence->gone(); }));
  const std::string got = ReceiveAll(client);
  EXPECT_LT(got.size(), size_t{32} << 20);
}

TEST_F(HttpServerTest, ADestroyedServerCallsNoHandler) {
  Start();
  HttpServer::Reply held;
  handler_ = [&](const Request&, HttpServer::Reply reply) { held = std::move(reply); };
  RawClient client = Dial();
  client.Send("GET / HTTP/1.1\r\n\r\n");
  ASSERT_TRUE(runner_.RunUntil([&] { return held != nullptr; }));
  server_.reset();
  held(TextResponse(200, "x"));
  EXPECT_EQ(client.ReceiveUntilClose(), "");
}

TEST_F(HttpServerTest, ListensOnBothFamilies) {
  auto server = HttpServer::Start(
      io_, runner_, {.address = ParseAddress(":0").value()},
      [](const Request&, const HttpServer::Reply& reply) { reply(TextResponse(200, "hi")); });
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  for (const char* host : {"127.0.0.1", "::1"}) {
    HttpClient client(io_, runner_,
                      {.server = {.address = {.host = host, .port = (*server)->address().port}}});
    std::optional<Result<Response>> answer;
    const HttpCall call = client.Send({}, {}, [&](Result<Response> r) { answer = std::move(r); });
    ASSERT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    ASSERT_TRUE(answer->ok()) << answer->status().ToString();
    EXPECT_EQ((*answer)->body, "hi");
  }
}

TEST_F(HttpServerTest, UnixSocketReplacesAStaleFileAndLeavesNone) {
  const TempDir dir;
  const std::string path = JoinPath(dir.path(), "s.sock");
  Start({.address = {.unix_path = path}});
  // A second server replaces the file of the first, as after a crash.
  Start({.address = {.unix_path = path}});
  HttpClient client(io_, runner_, {.server = {.address = {.unix_path = path}}});
  std::optional<Result<Response>> answer;
  const HttpCall call = client.Send({}, {}, [&](Result<Response> r) { answer = std::move(r); });
  ASSERT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
  EXPECT_TRUE(answer->ok()) << answer->status().ToString();
  // After the first server is destroyed, the file of the second server remains.
  EXPECT_TRUE(PathExists(path));
  server_.reset();
  ASSERT_TRUE(runner_.RunUntil([&] { return !PathExists(path); }));
}

TEST_F(HttpServerTest, RejectsASocketPathThatIsTooLong) {
  const auto server = HttpServer::Start(
      io_, runner_, {.address = {.unix_path = "/" + std::string(107, 'x')}}, nullptr);
  EXPECT_EQ(server.status().code(), Code::kInvalidArgument);
  EXPECT_NE(server.status().message().find("at most 107 bytes"), std::string::npos);
}

TEST_F(HttpServerTest, APortInUseIsAnErrorThatNamesIt) {
  Start();
  const auto second = HttpServer::Start(io_, runner_, {.address = server_->address()}, nullptr);
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
  EXPECT_NE(second.status().message().find(server_->address().ToString()), std::string::npos);
}

int64_t VoluntarySwitches() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nvcsw;
}

TEST_F(HttpServerTest, SleepsWhenNothingHappens) {
  Start();
  SendAndReceiveAll("GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  RawClient idle = Dial();
  // Each wake-up of a thread is a voluntary switch: a few for the connection and our own timer. On
  // a busy machine some periods have more of them.
  constexpr int64_t kFew = 8;
  int64_t fewest = kFew + 1;
  for (int i = 0; i < 20 && fewest > kFew; ++i) {
    const int64_t before = VoluntarySwitches();
    runner_.RunFor(milliseconds(300));
    fewest = std::min(fewest, VoluntarySwitches() - before);
  }
  EXPECT_LE(fewest, kFew);
}

}  // namespace
}  // namespace tessera::net
