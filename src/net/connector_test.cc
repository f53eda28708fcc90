// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <mutex>
#include <optional>

#include "src/net/http_client.h"
#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"
#include "src/net/transport.h"

namespace tessera::net {
namespace {

using std::chrono::milliseconds;
using testing::RawServer;
using testing::TestCa;

// Accepts no connection although the port is open: its queue is full, so SYNs are dropped, as
// behind a firewall or on a machine that is switched off.
class DeadAddress {
 public:
  explicit DeadAddress(const std::string& host, uint16_t port = 0) {
    listener_.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
    socklen_t length = sizeof(address);
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    TESSERA_CHECK(::bind(listener_.get(), raw, length) == 0);
    TESSERA_CHECK(::listen(listener_.get(), 0) == 0);
    TESSERA_CHECK(::getsockname(listener_.get(), raw, &length) == 0);
    address_ = {.host = host, .port = ntohs(address.sin_port)};
    for (Fd& fd : fill_) {
      fd.Reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      ::connect(fd.get(), raw, length);
    }
  }
  const Address& address() const { return address_; }

 private:
  Fd listener_;
  Fd fill_[4];
  Address address_;
};

class ConnectorTest : public ::testing::Test {
 protected:
  struct Outcome {
    Status status;
    Duration took{};
  };
  // Connects to the first of `candidates` that answers. Reports the result and the time it took.
  Outcome Dial(const Destination& to, const std::vector<Address>& candidates,
               Duration limit = std::chrono::seconds(5)) {
    std::mutex mutex;  // The IoThread writes, the test reads.
    std::optional<Result<TransportPtr>> result;
    std::shared_ptr<Attempt> attempt;
    const MonotonicTime began = runner_.clock().Now();
    io_.Post([&] {
      attempt = Connect(io_, to, candidates, [&](Result<TransportPtr> r) {
        const std::lock_guard lock(mutex);
        result = std::move(r);
      });
    });
    const bool done = runner_.RunUntil(
        [&] {
          const std::lock_guard lock(mutex);
          return result.has_value();
        },
        limit);
    const Duration took = runner_.clock().Now() - began;
    std::atomic<bool> cleaned = false;
    io_.Post([&] {
      if (!done && attempt) attempt->Cancel();
      if (done && result->ok()) (**result)->Close();
      attempt.reset();
      cleaned = true;
    });
    EXPECT_TRUE(runner_.RunUntil([&] { return cleaned.load(); }));
    if (!done) return {Error(Code::kDeadlineExceeded, "no connection"), took};
    return {result->status(), took};
  }

  testing::TestRunner runner_;
  IoThread io_;
};

void Hang(int fd) { RawServer::ReadHeader(fd); }

TEST_F(ConnectorTest, TheNextAddressIsTriedAfterAQuarterOfASecond) {
  const DeadAddress dead("127.0.0.2");
  RawServer server(Hang);
  const Outcome outcome =
      Dial({.address = {.host = "name"}}, {dead.address(), server.url().address});
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_GE(outcome.took, milliseconds(240));
  EXPECT_LT(outcome.took, std::chrono::seconds(3));
}

TEST_F(ConnectorTest, NextAddressIsTriedAtOnceAfterARefusal) {
  Address closed;
  { closed = DeadAddress("127.0.0.2").address(); }
  RawServer server(Hang);
  // A wait of a quarter of a second after each refusal would take five seconds.
  std::vector<Address> candidates(20, closed);
  candidates.push_back(server.url().address);
  const Outcome outcome = Dial({.address = {.host = "name"}}, candidates, std::chrono::seconds(30));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_LT(outcome.took, std::chrono::seconds(3));
}

TEST_F(ConnectorTest, RejectsASocketPathThatIsTooLong) {
  const Address longest{.unix_path = "/" + std::string(106, 'x')};
  const Address too_long{.unix_path = longest.unix_path + "x"};
  EXPECT_EQ(Dial({.address = longest}, {}).status.code(), Code::kUnavailable);  // no such file
  const Status status = Dial({.address = too_long}, {}).status;
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("at most 107 bytes"), std::string::npos) << status.ToString();
  EXPECT_EQ(Dial({.address = {.host = "name"}}, {too_long}).status.code(), Code::kInvalidArgument);
}

TEST_F(ConnectorTest, DoesNotWaitForAServerThatHangsInTheHandshake) {
  RawServer hangs(Hang);  // like a stopped process: the kernel accepts, but no handshake follows
  const TestCa ca;
  const TestCa::Pair pair = ca.Issue("server", {"name"});
  auto server = HttpServer::Start(
      io_, runner_,
      {.address = {.host = "127.0.0.1"},
       .tls = TlsOptions{.certificate = {.text = pair.certificate}, .key = {.text = pair.key}}},
      nullptr);
  ASSERT_TRUE(server.ok());
  TlsContextSource tls(TlsContextSource::Side::kClient, {.ca = {.text = ca.certificate()}});
  const Outcome outcome = Dial({.address = {.host = "name"}, .tls = tls.Get().value()},
                               {hangs.url().address, (*server)->address()});
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
}

TEST_F(ConnectorTest, IfAllAddressesFailTheErrorNamesTheServer) {
  Address closed;
  { closed = DeadAddress("127.0.0.2").address(); }
  const Outcome outcome =
      Dial({.address = {.host = "api.example", .port = 6443}}, {closed, closed});
  EXPECT_EQ(outcome.status.code(), Code::kUnavailable);
  EXPECT_EQ(outcome.status.message(), "api.example:6443: connect: Connection refused");
}

TEST_F(ConnectorTest, CanBeCancelledWhileSeveralAddressesAreTried) {
  const DeadAddress one("127.0.0.2"), two("127.0.0.3");
  const Outcome outcome =
      Dial({.address = {.host = "name"}}, {one.address(), two.address()}, milliseconds(400));
  EXPECT_EQ(outcome.status.code(), Code::kDeadlineExceeded);
}

// A proxy that answers CONNECT with `answer`. If `to` is not 0, then connects the client to this
// port.
class ProxyServer {
 public:
  explicit ProxyServer(std::string answer, uint16_t to = 0)
      : server_([this, answer = std::move(answer), to](int fd) { Serve(fd, answer, to); }) {}
  Address address() const { return server_.url().address; }
  std::string request() {
    const std::lock_guard lock(mutex_);
    return request_;
  }

 private:
  void Serve(int fd, const std::string& answer, uint16_t to) {
    const std::string header = RawServer::ReadHeader(fd);
    {
      const std::lock_guard lock(mutex_);
      request_ = header;
    }
    RawServer::Write(fd, answer);
    if (to == 0) return;
    testing::RawClient other({.host = "127.0.0.1", .port = to});
    std::thread back([&] {
      for (std::string piece = other.Receive(); !piece.empty(); piece = other.Receive()) {
        RawServer::Write(fd, piece);
      }
    });
    char buffer[4096];
    for (ssize_t got = 1; got > 0;) {
      got = ::recv(fd, buffer, sizeof(buffer), 0);
      if (got > 0) other.Send(std::string_view(buffer, static_cast<size_t>(got)));
    }
    ::shutdown(other.fd(), SHUT_RDWR);
    back.join();
  }

  std::mutex mutex_;  // The server's thread writes `request_`.
  std::string request_;
  RawServer server_;
};

class ProxyTest : public ConnectorTest {
 protected:
  ProxyTest() {
    const TestCa::Pair pair = ca_.Issue("server", {"api.example"});
    server_ = HttpServer::Start(io_, runner_,
                                {.address = {.host = "127.0.0.1"},
                                 .tls = TlsOptions{.certificate = {.text = pair.certificate},
                                                   .key = {.text = pair.key}}},
                                [](const Request& request, const HttpServer::Reply& reply) {
                                  reply(TextResponse(200, request.target));
                                })
                  .value();
  }
  Result<Response> GetThrough(const ProxyServer& proxy) { return GetThrough(proxy.address()); }
  Result<Response> GetThrough(const Address& proxy) {
    HttpClient client(io_, runner_,
                      {.server = {.tls = true, .address = {.host = "api.example", .port = 6443}},
                       .tls = {.ca = {.text = ca_.certificate()}},
                       .proxy = Proxy{proxy, "Basic dTpw", "$HTTPS_PROXY"}});
    std::optional<Result<Response>> answer;
    const HttpCall call =
        client.Send({.target = "/version"}, {}, [&](Result<Response> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return answer.value_or(Error(Code::kUnknown, "no answer"));
  }
  TestCa ca_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(ProxyTest, ReachesTheServerThroughATunnel) {
  ProxyServer proxy("HTTP/1.1 200 Connection established\r\n\r\n", server_->address().port);
  const auto answer = GetThrough(proxy);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->body, "/version");
  EXPECT_EQ(proxy.request(),
            "CONNECT api.example:6443 HTTP/1.1\r\nHost: api.example:6443\r\n"
            "Proxy-Authorization: Basic dTpw\r\n\r\n");
}

TEST_F(ProxyTest, NamesAProxyThatRejectsTheTunnelAndItsReason) {
  ProxyServer proxy("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
  const Status status = GetThrough(proxy).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find(
                "the proxy " + proxy.address().ToString() +
                " ($HTTPS_PROXY) rejected the tunnel: HTTP/1.1 407 Proxy Authentication Required"),
            std::string::npos)
      << status.message();
}

TEST_F(ProxyTest, NamesAnUnreachableProxy) {
  const Status refused = GetThrough(Address{.host = "127.0.0.1", .port = 1}).status();
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_NE(refused.message().find("the proxy 127.0.0.1:1 ($HTTPS_PROXY): connect: "),
            std::string::npos)
      << refused.message();
  const Status unknown = GetThrough(Address{.host = "proxy.invalid", .port = 1}).status();
  EXPECT_NE(unknown.message().find("the proxy proxy.invalid:1 ($HTTPS_PROXY): name lookup: "),
            std::string::npos)
      << unknown.message();
}

TEST_F(ProxyTest, ProxyThatAnswersInsteadOfTheServerIsRejected) {
  ProxyServer proxy("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n");
  EXPECT_NE(GetThrough(proxy).status().message().find("sent data before the client"),
            std::string::npos);
}

}  // namespace
}  // namespace tessera::net
