// SPDX-License-Identifier: Apache-2.0
#include "src/net/http_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <optional>

#include "src/net/testing/loopback.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;
using testing::RawServer;

class HttpClientTest : public ::testing::Test {
 protected:
  void Serve(RawServer::Script script) {
    client_.reset();
    server_ = std::make_unique<RawServer>(std::move(script));
    client_ = std::make_unique<HttpClient>(io_, runner_, HttpClient::Options{server_->url(), {}});
  }
  Result<Response> Send(Request request = {}, HttpClient::CallOptions options = {}) {
    std::optional<Result<Response>> answer;
    const HttpCall call =
        client_->Send(std::move(request), options, [&](Result<Response> r) { answer = r; });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    if (!answer) return Error(Code::kUnknown, "no answer");
    return *answer;
  }
  Code CodeOf(Request request = {}, HttpClient::CallOptions options = {}) {
    return Send(std::move(request), options).status().code();
  }

  testing::TestRunner runner_;
  IoThread io_;
  std::unique_ptr<RawServer> server_;
  std::unique_ptr<HttpClient> client_;
};

constexpr std::string_view kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

void ServeOk(int fd) {
  while (!RawServer::ReadHeader(fd).empty()) RawServer::Write(fd, kOk);
}

TEST_F(HttpClientTest, KeepsAndReusesItsConnection) {
  Serve(ServeOk);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Send().value().body, "ok");
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpClientTest, AnOldConnectionIsNotUsedAgain) {
  Serve(ServeOk);
  client_ = std::make_unique<HttpClient>(
      io_, runner_, HttpClient::Options{.server = server_->url(), .max_age = milliseconds(2000)});
  EXPECT_EQ(Send().value().body, "ok");
  EXPECT_EQ(Send().value().body, "ok");
  EXPECT_EQ(server_->connections(), 1);
  // Idle connections are closed in time, and old busy ones are not kept.
  runner_.RunFor(milliseconds(2100));
  EXPECT_EQ(Send({.method = "POST"}).value().body, "ok");
  EXPECT_EQ(server_->connections(), 2);
}

TEST_F(HttpClientTest, AConnectionThatReachesItsMaxAgeDuringARequestIsClosed) {
  Serve([](int fd) {
    while (!RawServer::ReadHeader(fd).empty()) {
      std::this_thread::sleep_for(milliseconds(60));
      RawServer::Write(fd, kOk);
    }
  });
  client_ = std::make_unique<HttpClient>(
      io_, runner_, HttpClient::Options{.server = server_->url(), .max_age = milliseconds(50)});
  EXPECT_EQ(Send().value().body, "ok");
  EXPECT_EQ(Send().value().body, "ok");
  EXPECT_EQ(server_->connections(), 2);
}

TEST_F(HttpClientTest, ReadsChunksAfterAnInterimResponse) {
  Serve([](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd,
                     "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\nA: b\r\n"
                     "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
    RawServer::Write(fd, "2\r\nde\r\n0\r\n\r\n");
  });
  const auto answer = Send();
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->headers.Get("a"), "b");
  EXPECT_EQ(answer->body, "abcde");
}

TEST_F(HttpClientTest, AKeptConnectionThatDiedIsReplacedForGet) {
  std::atomic<int> connection = 0;
  Serve([&](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, kOk);
    // The first connection dies during the second request, before a byte of a response.
    if (++connection == 1) RawServer::ReadHeader(fd);
  });
  EXPECT_TRUE(Send().ok());
  EXPECT_TRUE(Send().ok());
  EXPECT_EQ(server_->connections(), 2);
}

TEST_F(HttpClientTest, APostIsNotSentTwice) {
  std::atomic<int> seen = 0;
  Serve([&](int fd) {
    RawServer::ReadHeader(fd);
    if (++seen == 1) RawServer::Write(fd, kOk);
    if (seen == 1) seen += RawServer::ReadHeader(fd).empty() ? 0 : 1;
  });
  EXPECT_TRUE(Send().ok());
  EXPECT_EQ(CodeOf({.method = "POST"}), Code::kUnavailable);
  EXPECT_EQ(seen, 2);
}

TEST_F(HttpClientTest, AConnectionTheServerClosedWhileIdleIsNotUsed) {
  Serve([](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, kOk);
  });
  EXPECT_TRUE(Send().ok());
  // The client sends a POST as well: it saw the end of the connection before it sent anything.
  ASSERT_TRUE(runner_.RunUntil([&] { return CodeOf({.method = "POST"}) == Code::kOk; }));
}

TEST_F(HttpClientTest, NamesTheExceededDeadline) {
  Serve([](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::ReadHeader(fd);  // returns when the client closes the connection
  });
  const auto answer = Send({}, {.deadlines = {.header = milliseconds(50)}});
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  EXPECT_NE(answer.status().message().find("header"), std::string::npos);
}

TEST_F(HttpClientTest, ABodyThatStallsEndsAtItsDeadline) {
  Serve([](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
    RawServer::ReadHeader(fd);
  });
  EXPECT_EQ(CodeOf({}, {.deadlines = {.body = milliseconds(50)}}), Code::kDeadlineExceeded);
  EXPECT_EQ(CodeOf({}, {.deadlines = {.stall = milliseconds(50)}}), Code::kDeadlineExceeded);
}

TEST_F(HttpClientTest, ReportsTruncatedResponses) {
  const auto answered_with = [&](std::string text, size_t max_body = 1000) {
    Serve([text](int fd) {
      RawServer::ReadHeader(fd);
      RawServer::Write(fd, text);
    });
    return CodeOf({}, {.max_body = max_body});
  };
  EXPECT_EQ(answered_with(""), Code::kUnavailable);
  EXPECT_EQ(answered_with("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc"), Code::kUnavailable);
  EXPECT_EQ(answered_with("SSH-2.0-OpenSSH\r\n\r\n"), Code::kInvalidArgument);
  EXPECT_EQ(answered_with("HTTP/1.1 101 Switching Protocols\r\n\r\n"), Code::kInvalidArgument);
  EXPECT_EQ(answered_with("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", 5),
            Code::kResourceExhausted);
}

TEST_F(HttpClientTest, RefusedConnectionNamesTheAddress) {
  Serve(ServeOk);
  const std::string address = server_->url().address.ToString();
  server_.reset();
  const auto answer = Send();
  EXPECT_EQ(answer.status().code(), Code::kUnavailable);
  EXPECT_NE(answer.status().message().find(address), std::string::npos);
}

TEST_F(HttpClientTest, ARequestThatCannotBeSentIsAnError) {
  Serve(ServeOk);
  EXPECT_EQ(CodeOf({.target = "/a b"}), Code::kInvalidArgument);
}

TEST_F(HttpClientTest, AHalfClosedServersResponseIsRead) {
  Serve([](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, kOk);
    ::shutdown(fd, SHUT_WR);
    RawServer::ReadHeader(fd);
  });
  EXPECT_EQ(Send().value().body, "ok");
}

TEST_F(HttpClientTest, AnEarlyRejectionIsReadAlthoughTheWriteFails) {
  Serve([](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, "HTTP/1.1 413 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    ::shutdown(fd, SHUT_WR);
    char sink[65536];
    while (::recv(fd, sink, sizeof(sink), 0) > 0) {
    }
  });
  EXPECT_EQ(Send({.method = "POST", .body = std::string(4 << 20, 'x')}).value().status, 413);
}

TEST_F(HttpClientTest, StreamsPiecesAsTheyArrive) {
  Serve([](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    RawServer::ReadHeader(fd);
  });
  int status = 0;
  std::string data;
  std::optional<Status> end;
  HttpCall call = client_->Stream({}, {.deadlines = {.body = Duration::zero()}},
                                  {.on_head = [&](const Response& head) { status = head.status; },
                                   .on_data = [&](std::string_view piece) { data += piece; },
                                   .on_end = [&](const Status& s) { end = s; }});
  ASSERT_TRUE(runner_.RunUntil([&] { return data == "one"; }));
  EXPECT_EQ(status, 200);
  EXPECT_TRUE(call.active());
  call.Cancel();
  EXPECT_FALSE(end.has_value());
}

TEST_F(HttpClientTest, ASlowReaderSlowsTheServerInsteadOfFillingMemory) {
  // The server's thread may still send after the test.
  const auto all_sent = std::make_shared<std::atomic<size_t>>(0);
  const std::atomic<size_t>& sent = *all_sent;
  Serve([all_sent](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    const std::string block(64 << 10, 'x');
    while (::send(fd, block.data(), block.size(), MSG_NOSIGNAL) > 0) {
      *all_sent += block.size();
    }
  });
  int pieces = 0;
  HttpCall call = client_->Stream({}, {},
                                  {.on_head = [](const Response&) {},
                                   .on_data = [&](std::string_view) { ++pieces; },
                                   .on_end = [](const Status&) {}});
  // From now on the runner is busy with other work.
  ASSERT_TRUE(runner_.RunUntil([&] { return pieces == 1; }));
  size_t before = 0;
  while (before != sent) {
    before = sent;
    std::this_thread::sleep_for(milliseconds(50));
  }
  EXPECT_LT(sent, size_t{32} << 20);  // the size of the kernel's socket buffers
  EXPECT_EQ(pieces, 1);
  call.Cancel();
}

TEST_F(HttpClientTest, DataForABusyReaderIsDeliveredInOnePiece) {
  constexpr int kChunks = 20;
  std::atomic<bool> go = false, sent = false;
  Serve([&](int fd) {
    RawServer::ReadHeader(fd);
    RawServer::Write(fd, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
    while (!go) std::this_thread::sleep_for(milliseconds(1));
    for (int i = 0; i < kChunks; ++i) {
      RawServer::Write(fd, "1\r\nb\r\n");
      std::this_thread::sleep_for(milliseconds(2));
    }
    sent = true;
    RawServer::Write(fd, "1\r\nc");  // then closes
  });
  int pieces = 0;
  std::string data;
  std::optional<Status> end;
  const HttpCall call = client_->Stream({}, {},
                                        {.on_head = [](const Response&) {},
                                         .on_data =
                                             [&](std::string_view piece) {
                                               ++pieces;
                                               data += piece;
                                             },
                                         .on_end = [&](const Status& s) { end = s; }});
  ASSERT_TRUE(runner_.RunUntil([&] { return data == "a"; }));
  go = true;
  while (!sent) std::this_thread::sleep_for(milliseconds(5));  // the runner is busy
  ASSERT_TRUE(runner_.RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(data, "a" + std::string(kChunks, 'b') + "c");
  EXPECT_LE(pieces, 5);
  EXPECT_EQ(end->code(), Code::kUnavailable);
}

TEST_F(HttpClientTest, ACancelledCallNeverCallsBack) {
  Serve(ServeOk);
  bool called = false;
  for (int i = 0; i < 50; ++i) {
    HttpCall call = client_->Send({}, {}, [&](const Result<Response>&) { called = true; });
    if (i % 2 == 0) call.Cancel();
  }
  EXPECT_TRUE(Send().ok());
  EXPECT_FALSE(called);
}

TEST_F(HttpClientTest, ADestroyedClientCancelsItsCalls) {
  Serve([](int fd) { RawServer::ReadHeader(fd); });
  bool called = false;
  const HttpCall call = client_->Send({}, {}, [&](const Result<Response>&) { called = true; });
  client_.reset();
  runner_.RunFor(milliseconds(50));
  EXPECT_FALSE(called);
  EXPECT_FALSE(call.active());
}

}  // namespace
}  // namespace tessera::net
