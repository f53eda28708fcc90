// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>

#include "src/net/certificate.h"
#include "src/net/http_client.h"
#include "src/net/http_server.h"
#include "src/net/openssl.h"
#include "src/net/testing/loopback.h"

namespace tessera::net {
namespace {

using testing::TestCa;

class HttpTlsTest : public ::testing::Test {
 protected:
  TlsOptions ServerTls(const TestCa& ca, const std::vector<std::string>& names = {"127.0.0.1"}) {
    const TestCa::Pair pair = ca.Issue("server", names);
    return {.certificate = {.text = pair.certificate}, .key = {.text = pair.key}};
  }
  void Start(TlsOptions tls) {
    auto server =
        HttpServer::Start(io_, runner_, {.address = {.host = "127.0.0.1"}, .tls = std::move(tls)},
                          [this](const Request& request, const HttpServer::Reply& reply) {
                            certificate_expiry_ = request.certificate_expiry;
                            reply(TextResponse(200, "secret"));
                          });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
  }
  Result<Response> Get(HttpClient& client) {
    std::optional<Result<Response>> answer;
    const HttpCall call = client.Send({}, {}, [&](Result<Response> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return *answer;
  }
  HttpClient::Options ClientOptions(TlsOptions tls) {
    return {.server = {.tls = true, .address = server_->address()}, .tls = std::move(tls)};
  }
  Result<Response> GetWith(TlsOptions tls) {
    HttpClient client(io_, runner_, ClientOptions(std::move(tls)));
    return Get(client);
  }

  testing::TestRunner runner_;
  IoThread io_;
  TestCa ca_;
  std::optional<WallTime> certificate_expiry_;  // in the last request
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, AcceptsACertificateOfATrustedAuthority) {
  Start(ServerTls(ca_));
  const auto answer = GetWith({.ca = {.text = ca_.certificate()}});
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->body, "secret");
}

TEST_F(HttpTlsTest, RejectsACertificateOfAnUnknownAuthority) {
  Start(ServerTls(TestCa()));
  EXPECT_EQ(GetWith({.ca = {.text = ca_.certificate()}}).status().code(), Code::kUnauthenticated);
}

TEST_F(HttpTlsTest, RejectsACertificateForAnotherName) {
  Start(ServerTls(ca_, {"10.9.8.7", "other.example"}));
  const TlsOptions tls{.ca = {.text = ca_.certificate()}};
  const Status status = GetWith(tls).status();
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_NE(status.message().find("mismatch"), std::string::npos) << status.ToString();
}

TEST_F(HttpTlsTest, ExpectsTheConfiguredName) {
  Start(ServerTls(ca_, {"api.example"}));
  const PemSource ca{.text = ca_.certificate()};
  EXPECT_TRUE(GetWith({.ca = ca, .server_name = "api.example"}).ok());
  EXPECT_FALSE(GetWith({.ca = ca, .server_name = "other.example"}).ok());
}

TEST_F(HttpTlsTest, TheCommonNameOfACertificateDoesNotCount) {
  const TestCa::Pair pair = ca_.Issue("api.example", {});
  Start({.certificate = {.text = pair.certificate}, .key = {.text = pair.key}});
  const auto answer = GetWith({.ca = {.text = ca_.certificate()}, .server_name = "api.example"});
  EXPECT_EQ(answer.status().code(), Code::kUnauthenticated);
}

TEST_F(HttpTlsTest, AnInvalidExpectedNameIsAnError) {
  Start(ServerTls(ca_, {"api.example"}));
  // OpenSSL rejects the name. If the client ignored this error, it would accept each certificate of
  // the authority.
  const std::string name("api.example\0.evil.example", 24);
  const Status status = GetWith({.ca = {.text = ca_.certificate()}, .server_name = name}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.ToString();
}

// The authority's certificate as if an unknown root had signed it.
std::string AsIntermediate(const std::string& authority) {
  const X509Ptr certificate = NextCertificate(OpenText(authority).get());
  const KeyPtr root(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  X509_NAME* issuer = X509_NAME_new();
  X509_NAME_add_entry_by_txt(issuer, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("root"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), issuer);
  X509_NAME_free(issuer);
  EXPECT_GT(X509_sign(certificate.get(), root.get(), EVP_sha256()), 0);
  const BioPtr out(BIO_new(BIO_s_mem()), &BIO_free);
  PEM_write_bio_X509(out.get(), certificate.get());
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  return std::string(text, static_cast<size_t>(size));
}

TEST_F(HttpTlsTest, TrustsAnIntermediateAuthorityWithoutItsRoot) {
  const std::string intermediate = AsIntermediate(ca_.certificate());
  const TestCa::Pair pair = ca_.Issue("server", {"127.0.0.1"});
  Start({.certificate = {.text = pair.certificate + intermediate}, .key = {.text = pair.key}});
  const auto answer = GetWith({.ca = {.text = intermediate}});
  EXPECT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_FALSE(GetWith({.ca = {.text = AsIntermediate(TestCa().certificate())}}).ok());
}

TEST_F(HttpTlsTest, ANewConnectionReplacesTheOldestHandshake) {
  HttpServer::Options options;
  options.address.host = "127.0.0.1";
  options.tls = ServerTls(ca_);
  options.limits.max_connections = 4;
  auto server = HttpServer::Start(
      io_, runner_, std::move(options),
      [](const Request&, const HttpServer::Reply& reply) { reply(TextResponse(200, "secret")); });
  server_ = *std::move(server);
  std::vector<testing::RawClient> silent;
  for (int i = 0; i < 4; ++i) silent.emplace_back(server_->address());
  runner_.RunFor(std::chrono::milliseconds(50));
  EXPECT_TRUE(GetWith({.ca = {.text = ca_.certificate()}}).ok());
  EXPECT_EQ(silent[0].Receive(), "");  // closed
  char byte;
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(::recv(silent[i].fd(), &byte, 1, MSG_DONTWAIT), -1) << i;
    EXPECT_EQ(errno, EAGAIN) << i;
  }
}

TEST_F(HttpTlsTest, SkipsVerificationOnlyIfConfigured) {
  Start(ServerTls(TestCa()));
  EXPECT_TRUE(GetWith({.skip_verify = true}).ok());
  EXPECT_EQ(GetWith({}).status().code(), Code::kInvalidArgument);
}

TEST_F(HttpTlsTest, AClientPresentsANewCertificateOnNewConnectionsOnly) {
  TlsOptions tls = ServerTls(ca_);
  tls.ca.text = ca_.certificate();
  Start(tls);
  const TestCa strangers;
  const TestCa::Pair stranger = strangers.Issue("agent", {});
  const TestCa::Pair known = ca_.Issue("agent", {});
  HttpClient client(io_, runner_, ClientOptions({.ca = {.text = ca_.certificate()}}));
  client.SetCertificate({.text = known.certificate}, {.text = known.key});
  EXPECT_TRUE(Get(client).ok());
  // The connection that used the first certificate is not reused.
  client.SetCertificate({.text = stranger.certificate}, {.text = stranger.key});
  EXPECT_FALSE(Get(client).ok());
  client.SetCertificate({.text = known.certificate}, {.text = known.key});
  EXPECT_TRUE(Get(client).ok());
}

TEST_F(HttpTlsTest, AServerMayRequireAClientsCertificate) {
  TlsOptions tls = ServerTls(ca_);
  tls.ca.text = ca_.certificate();
  Start(tls);
  const PemSource ca{.text = ca_.certificate()};
  EXPECT_FALSE(GetWith({.ca = ca}).ok());
  const TestCa::Pair client = ca_.Issue("agent", {});
  EXPECT_TRUE(
      GetWith({.ca = ca, .certificate = {.text = client.certificate}, .key = {.text = client.key}})
          .ok());
  const TestCa::Pair stranger = TestCa().Issue("agent", {});
  EXPECT_FALSE(
      GetWith(
          {.ca = ca, .certificate = {.text = stranger.certificate}, .key = {.text = stranger.key}})
          .ok());
}

TEST_F(HttpTlsTest, ReadsAReplacedBundleAgain) {
  const TempDir dir;
  const std::string bundle = JoinPath(dir.path(), "ca.crt");
  ASSERT_TRUE(WriteFileAtomically(bundle, TestCa().certificate(), 0644).ok());
  Start(ServerTls(ca_));
  HttpClient client(io_, runner_, ClientOptions({.ca = {.file = bundle}}));
  EXPECT_EQ(Get(client).status().code(), Code::kUnauthenticated);
  ASSERT_TRUE(WriteFileAtomically(bundle, ca_.certificate(), 0644).ok());
  EXPECT_TRUE(Get(client).ok());
}

TEST_F(HttpTlsTest, AServerPresentsItsRenewedCertificate) {
  const TempDir dir;
  const std::string cert = JoinPath(dir.path(), "tls.crt");
  const std::string key = JoinPath(dir.path(), "tls.key");
  const auto write = [&](const TestCa& ca) {
    const TestCa::Pair pair = ca.Issue("server", {"127.0.0.1"});
    ASSERT_TRUE(WriteFileAtomically(cert, pair.certificate, 0644).ok());
    ASSERT_TRUE(WriteFileAtomically(key, pair.key, 0600).ok());
  };
  write(TestCa());
  Start({.certificate = {.file = cert}, .key = {.file = key}});
  EXPECT_FALSE(GetWith({.ca = {.text = ca_.certificate()}}).ok());
  write(ca_);
  EXPECT_TRUE(GetWith({.ca = {.text = ca_.certificate()}}).ok());
}

TEST_F(HttpTlsTest, NamesAnInvalidBundle) {
  Start(ServerTls(ca_));
  const Status missing = GetWith({.ca = {.file = "/nonexistent/ca.crt"}}).status();
  EXPECT_NE(missing.message().find("/nonexistent/ca.crt"), std::string::npos);
  EXPECT_EQ(GetWith({.ca = {.text = "no pem"}}).status().code(), Code::kInvalidArgument);
}

TEST_F(HttpTlsTest, DistinguishesAnUnreadableKeyFromTheKeyOfAnotherPair) {
  const TestCa::Pair pair = ca_.Issue("agent", {});
  const auto error_of = [&](const std::string& key) {
    return CheckClientPair({.text = pair.certificate}, {.text = key}).message();
  };
  EXPECT_EQ(error_of(pair.key), "");
  EXPECT_NE(error_of("no pem").find("no PEM private key"), std::string::npos);
  const std::string other_key = ca_.Issue("agent", {}).key;
  EXPECT_NE(error_of(other_key).find("does not match certificate"), std::string::npos);
}

TEST_F(HttpTlsTest, PlainHttpGetsAnExplanation) {
  Start(ServerTls(ca_));
  for (const char* method : {"GET", "POST"}) {
    // More bytes than one read takes: unread bytes must not destroy the response.
    HttpClient client(io_, runner_, {.server = {.address = server_->address()}});
    std::optional<Result<Response>> answer;
    const HttpCall call = client.Send({.method = method, .body = std::string(40 << 10, 'x')}, {},
                                      [&](Result<Response> r) { answer = std::move(r); });
    ASSERT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    ASSERT_TRUE(answer->ok()) << answer->status().ToString();
    EXPECT_EQ((**answer).status, 400);
    EXPECT_NE((**answer).body.find("this port serves HTTPS only"), std::string::npos)
        << (**answer).body;
    EXPECT_EQ((**answer).body.find("secret"), std::string::npos);
  }
}

TEST_F(HttpTlsTest, TheRequestHasTheExpiryOfTheClientsCertificate) {
  const TestCa clients;
  TlsOptions tls = ServerTls(ca_);
  tls.ca = {.text = clients.certificate()};
  Start(tls);
  const TestCa::Pair pair = clients.Issue("client", {});
  EXPECT_TRUE(GetWith({.ca = {.text = ca_.certificate()},
                       .certificate = {.text = pair.certificate},
                       .key = {.text = pair.key}})
                  .ok());
  ASSERT_TRUE(certificate_expiry_.has_value());
  EXPECT_EQ(*certificate_expiry_, ValidityOf(pair.certificate)->to);
}

TEST_F(HttpTlsTest, TheAuthorityOfClientsCanBeReplacedWhileTheServerRuns) {
  const TestCa before, after;
  TlsOptions tls = ServerTls(ca_);
  tls.ca = {.text = before.certificate()};
  Start(tls);
  const TestCa::Pair pair = after.Issue("client", {});
  const TlsOptions client{.ca = {.text = ca_.certificate()},
                          .certificate = {.text = pair.certificate},
                          .key = {.text = pair.key}};
  EXPECT_FALSE(GetWith(client).ok());
  tls.ca = {.text = after.certificate()};
  server_->SetTls(tls);
  EXPECT_TRUE(GetWith(client).ok());
}

TEST_F(HttpTlsTest, AServerPresentsANewCertificateOnNewConnectionsOnly) {
  Start(ServerTls(ca_));
  const TestCa next;
  HttpClient old(io_, runner_, ClientOptions({.ca = {.text = ca_.certificate()}}));
  ASSERT_TRUE(Get(old).ok());
  const TlsOptions fresh = ServerTls(next);
  server_->SetTls({.certificate = fresh.certificate, .key = fresh.key});
  EXPECT_TRUE(GetWith({.ca = {.text = next.certificate()}}).ok());
  EXPECT_FALSE(GetWith({.ca = {.text = ca_.certificate()}}).ok());
  EXPECT_TRUE(Get(old).ok()) << "an open connection broke";
}

}  // namespace
}  // namespace tessera::net
