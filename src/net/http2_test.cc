// SPDX-License-Identifier: Apache-2.0
// HttpServer over HTTP/2, with curl as the client, and with frames that curl does not send.
#include <gmock/gmock.h>
#include <openssl/ssl.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "src/base/file.h"
#include "src/net/body_stream.h"
#include "src/net/http_server.h"
#include "src/net/openssl.h"
#include "src/net/testing/loopback.h"

namespace tessera::net {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Http2Test : public ::testing::Test {
 protected:
  void Start(HttpServer::Handler handler, ServerLimits limits = {}) {
    const testing::TestCa::Pair pair = ca_.Issue("server", {"127.0.0.1"});
    TlsOptions tls{.certificate = {.text = pair.certificate}, .key = {.text = pair.key}};
    tls.http2 = true;
    auto server = HttpServer::Start(
        io_, runner_, {.address = {.host = "127.0.0.1"}, .limits = limits, .tls = tls},
        std::move(handler));
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  // The output of curl: the head and the body of each response.
  std::string Curl(const std::string& arguments) {
    const std::string command =
        fmt::format("curl --silent --insecure --include --http2 --max-time 20 {} 2>&1",
                    fmt::format(fmt::runtime(arguments),
                                fmt::arg("url", "https://" + server_->address().ToString())));
    std::string out;
    std::atomic<bool> done = false;
    std::thread client([&] {
      FILE* pipe = ::popen(command.c_str(), "r");
      char buffer[4096];
      for (size_t count; (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
        out.append(buffer, count);
      }
      ::pclose(pipe);
      done = true;
    });
    EXPECT_TRUE(runner_.RunUntil([&] { return done.load(); }));
    client.join();
    return out;
  }

  testing::TestRunner runner_;
  IoThread io_;
  testing::TestCa ca_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(Http2Test, CurlChoosesHttp2AndGetsTheResponse) {
  Start([](const Request& request, const HttpServer::Reply& reply) {
    Response response = TextResponse(
        200, fmt::format("{} {} {} {} {}", request.method, request.target,
                         request.headers.Get("Host"), request.headers.Get("X-Own"), request.body));
    response.headers.Add("Connection", "keep-alive");  // has no meaning in HTTP/2
    reply(std::move(response));
  });
  const std::string got = Curl("-H 'X-Own: 1' --data hello {url}/a?b=c");
  EXPECT_THAT(got, StartsWith("HTTP/2 200"));
  EXPECT_THAT(got, HasSubstr(fmt::format("POST /a?b=c {} 1 hello", server_->address().ToString())));
  EXPECT_THAT(got, HasSubstr("content-length: "));
  EXPECT_EQ(got.find("keep-alive"), got.npos);
  EXPECT_THAT(Curl("--http1.1 {url}/"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Curl("--head {url}/"), StartsWith("HTTP/2 200"));
}

TEST_F(Http2Test, CookieFieldsOfOneRequestAreJoined) {
  Start([](const Request& request, const HttpServer::Reply& reply) {
    reply(TextResponse(200, std::string(request.headers.Get("Cookie"))));
  });
  EXPECT_THAT(Curl("-H 'Cookie: a=1' -H 'Cookie: b=2' {url}/"), HasSubstr("a=1; b=2"));
}

TEST_F(Http2Test, ALargeBodyArrivesWholeAtAFastAndAtASlowClient) {
  const std::string large(3 << 20, 'x');
  Start([&](const Request&, const HttpServer::Reply& reply) { reply({200, {}, large}); });
  // The body is far longer than the window of a stream and than the queue for the socket.
  EXPECT_THAT(Curl("--output /dev/null --write-out '%{{size_download}}' {url}/"),
              HasSubstr("3145728"));
  EXPECT_THAT(Curl("--limit-rate 4M --output /dev/null --write-out '%{{size_download}}' {url}/"),
              HasSubstr("3145728"));
}

TEST_F(Http2Test, ManyRequestsShareAConnection) {
  int requests = 0;
  std::vector<HttpServer::Reply> held;
  Start([&](const Request&, const HttpServer::Reply& reply) {
    ++requests;
    held.push_back(reply);
    // The server answers no request before all have arrived.
    if (requests < 10) return;
    for (const auto& reply_to : held) reply_to(TextResponse(200, "ok\n"));
  });
  const std::string got =
      Curl("--parallel --parallel-immediate --write-out '%{{num_connects}} ' {url}/[1-10]");
  EXPECT_EQ(requests, 10);
  size_t answers = 0;
  for (size_t at = got.find("HTTP/2 200"); at != got.npos; at = got.find("HTTP/2 200", at + 1)) {
    ++answers;
  }
  EXPECT_EQ(answers, 10U) << got;
}

TEST_F(Http2Test, AStreamedResponseEndsAndReportsAClientThatLeaves) {
  std::unique_ptr<BodyStream> stream;
  bool closed = false, gone = false;
  Start([&](const Request& request, const HttpServer::Reply& reply) {
    closed = gone = false;
    request.presence->OnGone([&] { gone = true; });
    stream = std::make_unique<BodyStream>(io_, runner_,
                                          BodyStream::Options{.on_closed = [&] { closed = true; }});
    Response response{200, {{"Content-Type", "text/event-stream"}}, ""};
    response.stream = stream->sink();
    reply(std::move(response));
    for (int i = 0; i < 3; ++i) {
      stream->Push(std::make_shared<const std::string>(fmt::format("event {}\n", i)));
    }
    if (request.path() == "/finished") stream->Finish();
  });
  const std::string got = Curl("{url}/finished");
  EXPECT_THAT(got, HasSubstr("event 0\nevent 1\nevent 2\n"));
  EXPECT_TRUE(runner_.RunUntil([&] { return closed; }));
  EXPECT_THAT(Curl("--max-time 3 {url}/open"), HasSubstr("event 2\n"));
  EXPECT_TRUE(runner_.RunUntil([&] { return closed && gone; }));
}

TEST_F(Http2Test, HeadersAndBodiesAreBounded) {
  int requests = 0;
  Start(
      [&](const Request&, const HttpServer::Reply& reply) {
        ++requests;
        reply(TextResponse(200, "ok\n"));
      },
      {.max_header_bytes = 4096, .max_body_bytes = 10'000});
  const std::string large(6000, 'h');
  EXPECT_THAT(Curl(fmt::format("-H 'X-Large: {}' {{url}}/", large)), StartsWith("HTTP/2 431"));
  const TempDir dir;
  const std::string file = JoinPath(dir.path(), "body");
  ASSERT_TRUE(WriteFileAtomically(file, std::string(200'000, 'b'), 0600).ok());
  EXPECT_THAT(Curl(fmt::format("-H 'Expect:' --data-binary @{} {{url}}/", file)),
              HasSubstr("HTTP/2 413"));
  EXPECT_EQ(requests, 0);
}

TEST_F(Http2Test, ARequestThatTheHandlerNeverAnswersGets503) {
  std::vector<HttpServer::Reply> held;
  Start([&](const Request&, const HttpServer::Reply& reply) { held.push_back(reply); },
        {.handler_timeout = std::chrono::milliseconds(300)});
  EXPECT_THAT(Curl("{url}/"), StartsWith("HTTP/2 503"));
}

// A client that writes frames itself.
class FrameClient {
 public:
  explicit FrameClient(const Address& address)
      : raw_(address), context_(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free) {
    ::signal(SIGPIPE, SIG_IGN);  // the server closes while this client writes
    const unsigned char protocols[] = "\x02h2";
    SSL_CTX_set_alpn_protos(context_.get(), protocols, sizeof(protocols) - 1);
    ssl_ = SSL_new(context_.get());
    SSL_set_fd(ssl_, raw_.fd());
    connected_ = SSL_connect(ssl_) == 1;
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    Frame(4, 0, 0, "");  // SETTINGS
  }
  ~FrameClient() { SSL_free(ssl_); }

  bool connected() const { return connected_; }
  void Send(std::string_view bytes) {
    if (connected_) (void)SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()));
  }
  void Frame(uint8_t type, uint8_t flags, uint32_t stream, std::string_view payload) {
    std::string frame;
    for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
    frame.push_back(static_cast<char>(type));
    frame.push_back(static_cast<char>(flags));
    for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
    Send(frame.append(payload));
  }
  // A GET of "/" that ends with its header: entries of HPACK's static table, and the authority "a".
  void Get(uint32_t stream) { Frame(1, 5, stream, std::string("\x82\x87\x84\x41\x01\x61", 6)); }
  void Reset(uint32_t stream) { Frame(3, 0, stream, std::string("\0\0\0\x08", 4)); }
  // Until the server closes the connection.
  void ReadToTheEnd() {
    char buffer[4096];
    while (SSL_read(ssl_, buffer, sizeof(buffer)) > 0) {
    }
  }

 private:
  testing::RawClient raw_;
  std::shared_ptr<SSL_CTX> context_;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
};

TEST_F(Http2Test, APeerThatKeepsResettingItsRequestsIsDisconnected) {
  int requests = 0;
  std::vector<HttpServer::Reply> held;  // a handler that never answers
  Start([&](const Request&, const HttpServer::Reply& reply) {
    ++requests;
    held.push_back(reply);
  });
  std::atomic<bool> done = false;
  std::thread client([&] {
    FrameClient frames(server_->address());
    EXPECT_TRUE(frames.connected());
    for (uint32_t i = 0; i < 2000; ++i) {
      frames.Get(2 * i + 1);
      frames.Reset(2 * i + 1);
    }
    frames.ReadToTheEnd();
    done = true;
  });
  EXPECT_TRUE(runner_.RunUntil([&] { return done.load(); }));
  client.join();
  // kMaxStreams open streams, and as many requests whose streams were reset.
  EXPECT_LE(requests, 128);
}

TEST_F(Http2Test, InvalidFramesEndOnlyTheirConnection) {
  Start([](const Request&, const HttpServer::Reply& reply) { reply(TextResponse(200, "ok\n")); });
  std::atomic<bool> done = false;
  std::thread client([&] {
    FrameClient frames(server_->address());
    frames.Frame(1, 5, 1, std::string(100, '\xff'));  // no HPACK
    frames.ReadToTheEnd();
    FrameClient other(server_->address());
    other.Frame(0, 0, 2, "data on a stream that the client cannot open");
    other.ReadToTheEnd();
    done = true;
  });
  EXPECT_TRUE(runner_.RunUntil([&] { return done.load(); }));
  client.join();
  EXPECT_THAT(Curl("{url}/"), StartsWith("HTTP/2 200"));
}

}  // namespace
}  // namespace tessera::net
