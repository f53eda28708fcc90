// SPDX-License-Identifier: Apache-2.0
#include "src/admission/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/admission/testing/reviews.h"
#include "src/formats/base64.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/ledger/testing/objects.h"
#include "src/net/http_client.h"
#include "src/net/testing/loopback.h"

namespace tessera::admission {
namespace {

using testing::CreateOf;
using testing::PodJson;
using testing::ReviewOf;

class AdmissionServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = AdmissionServer::Start(
        io_, client_,
        {.address = {.host = "127.0.0.1"},
         .certificates = {.ns = "ns", .secret = "cert", .certificate = {.names = {"127.0.0.1"}}},
         .record_span = [this](trace::PodSpan span) { spans_.push_back(std::move(span)); }},
        [this] { return ledger_; });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    ASSERT_TRUE(runner_.RunUntil([&] { return server_->ready(); }));
    const Json* secret = store_.Find("/api/v1/namespaces/ns/secrets/cert");
    const std::string bundle =
        Base64Decode(secret->Find("data")->StringAt("ca.crt").value()).value();
    api_ = std::make_unique<net::HttpClient>(
        io_, runner_,
        net::HttpClient::Options{.server = {.tls = true, .address = server_->address()},
                                 .tls = {.ca = {.text = bundle}}});
  }
  net::Response Send(net::Request request) {
    std::optional<Result<net::Response>> answer;
    const net::HttpCall call =
        api_->Send(std::move(request), {}, [&](Result<net::Response> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    EXPECT_TRUE(answer->ok()) << answer->status().ToString();
    return answer->ok() ? **answer : net::Response{.status = 0};
  }
  net::Response Post(std::string_view path, std::string body) {
    return Send({.method = "POST", .target = std::string(path), .body = std::move(body)});
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer store_{io_, runner_};
  kube::Client client_{io_, runner_, store_.config(), {}};
  const ledger::ClusterLedger* ledger_ = nullptr;
  std::vector<trace::PodSpan> spans_;
  std::unique_ptr<AdmissionServer> server_;
  std::unique_ptr<net::HttpClient> api_;
};

TEST_F(AdmissionServerTest, AnswersByThePath) {
  const Json wrong =
      PodJson({{"tencent.com/vcuda-core", "150"}}, {{"tessera.dev/assignment", "x"}});
  const net::Response mutated = Post(kMutatePath, ReviewOf(CreateOf(wrong)));
  EXPECT_EQ(mutated.status, 200);
  EXPECT_NE(mutated.body.find("\"patch\""), std::string::npos);
  const net::Response rejected = Post(kValidatePath, ReviewOf(CreateOf(wrong)));
  EXPECT_EQ(rejected.status, 200);
  EXPECT_NE(rejected.body.find("150 is neither"), std::string::npos);
  EXPECT_EQ(server_->counts().allowed, 1);
  EXPECT_EQ(server_->counts().changed, 1);
  EXPECT_EQ(Post(kMutatePath, ReviewOf(CreateOf(PodJson({})))).status, 200);
  EXPECT_EQ(server_->counts().allowed, 2);
  EXPECT_EQ(server_->counts().changed, 1) << "the second pod was not changed";
  EXPECT_EQ(server_->counts().rejected, 1);
}

TEST_F(AdmissionServerTest, TheValidationOfANewPodIsTraced) {
  Json pod = PodJson({{"tencent.com/vcuda-core", "150"}});
  pod.Find("metadata")->Set("uid", Json::String("uid-a"));
  Post(kMutatePath, ReviewOf(CreateOf(pod)));
  EXPECT_TRUE(spans_.empty()) << "the API server sends no UID to mutating webhooks";
  Post(kValidatePath, ReviewOf(CreateOf(pod)));
  ASSERT_EQ(spans_.size(), 1u);
  EXPECT_EQ(spans_[0].name, "webhook");
  EXPECT_EQ(spans_[0].subject.pod, Uid("uid-a"));
  EXPECT_FALSE(spans_[0].status.ok());
}

TEST_F(AdmissionServerTest, WarnsOfPodsThatFitNoNode) {
  const auto post = [this] {
    return Post(kValidatePath, ReviewOf(CreateOf(PodJson({{"aliyun.com/gpu-mem", "20"}})))).body;
  };
  EXPECT_THAT(post(), ::testing::Not(::testing::HasSubstr("the pod will wait")));
  FakeClock clock;
  const auto ledger = ledger::ClusterLedger::Make({}, &clock).value();
  ledger->SetNode(ledger::testing::GpuNode("small", 1, "16Gi"));
  ledger_ = ledger.get();
  EXPECT_THAT(post(), ::testing::HasSubstr("the pod will wait"));
  ledger->SetNode(ledger::testing::GpuNode("large", 1, "80Gi"));
  // The capacity is computed again after a second.
  runner_.RunFor(std::chrono::milliseconds(1100));
  EXPECT_THAT(post(), ::testing::Not(::testing::HasSubstr("the pod will wait")));
}

TEST_F(AdmissionServerTest, AnswersWithoutTheLedgerAndClosesTheConnection) {
  const std::string review = ReviewOf(CreateOf(PodJson({})));
  for (const std::string_view path : {kMutatePath, kValidatePath}) {
    const net::Response standby = Post(path, review);
    EXPECT_EQ(standby.status, 200);
    EXPECT_EQ(standby.headers.Get("Connection"), "close");
  }
  FakeClock clock;
  const auto ledger = ledger::ClusterLedger::Make({}, &clock).value();
  ledger_ = ledger.get();
  for (const std::string_view path : {kMutatePath, kValidatePath}) {
    const net::Response leader = Post(path, review);
    EXPECT_EQ(leader.status, 200);
    EXPECT_EQ(leader.headers.Get("Connection"), "");
  }
}

TEST_F(AdmissionServerTest, RejectsABodyThatIsNotAReviewWith400AndTheReason) {
  const net::Response response = Post(kValidatePath, R"({"kind":"Pod","apiVersion":"v1"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_NE(response.body.find("AdmissionReview"), std::string::npos);
  EXPECT_EQ(Post(kMutatePath, "").status, 400);
  EXPECT_EQ(server_->counts().unreadable, 2);
}

TEST_F(AdmissionServerTest, OtherPathsGet404AndOtherMethods405) {
  EXPECT_EQ(Post("/", "{}").status, 404);
  const net::Response response = Send({.target = std::string(kValidatePath)});
  EXPECT_EQ(response.status, 405);
  EXPECT_EQ(response.headers.Get("Allow"), "POST");
}

TEST_F(AdmissionServerTest, ABodyBeyondTheLimitIsRejected) {
  EXPECT_EQ(Post(kValidatePath, std::string(kMaxAdmissionBytes + 1, ' ')).status, 413);
  EXPECT_EQ(Post(kValidatePath, ReviewOf(CreateOf(PodJson({})))).status, 200);
}

TEST_F(AdmissionServerTest, AnswersPlainHttpWithAnErrorThatNamesHttps) {
  net::testing::RawClient raw(server_->address());
  raw.Send(
      fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}", kValidatePath));
  const std::string answer = raw.ReceiveUntilClose();
  EXPECT_THAT(answer, ::testing::StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(answer, ::testing::HasSubstr("this port serves HTTPS only: use an https:// URL"));
  EXPECT_THAT(answer, ::testing::Not(::testing::HasSubstr("AdmissionReview")));
  EXPECT_EQ(server_->counts().unreadable, 0) << "the review was not read";
  EXPECT_EQ(Post(kValidatePath, ReviewOf(CreateOf(PodJson({})))).status, 200);
}

TEST_F(AdmissionServerTest, APortInUseFailsTheStart) {
  const auto second = AdmissionServer::Start(
      io_, client_, {.address = server_->address(), .certificates = {.ns = "ns", .secret = "cert"}},
      [] { return nullptr; });
  EXPECT_EQ(second.status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace tessera::admission
