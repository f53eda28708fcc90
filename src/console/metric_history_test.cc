// SPDX-License-Identifier: Apache-2.0
#include "src/console/metric_history.h"

#include <gmock/gmock.h>

#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kAnswer = R"({"status":"success","data":{"resultType":"matrix","result":[
  {"metric":{"UUID":"GPU-a"},"values":[[1000,"37.25"],[1060,"NaN"],[1180.2,"100"],[9999,"1"]]},
  {"metric":{},"values":[[1000,"5"]]}]}})";

TEST(AddCurvesTest, ValuesAreAtTheirTimesAndGapsAreNull) {
  Json gpus = Json::MakeObject();
  ASSERT_TRUE(AddCurves(kAnswer, "utilization", 1000, 60, 4, &gpus).ok());
  ASSERT_TRUE(AddCurves(kAnswer, "power", 1060, 60, 2, &gpus).ok());
  EXPECT_EQ(gpus.Serialize(),
            R"({"GPU-a":{"utilization":[37.25,null,null,100],"power":[null,null]}})");
}

TEST(AddCurvesTest, InvalidAnswersAreErrors) {
  Json gpus = Json::MakeObject();
  const Status rejected =
      AddCurves(R"({"status":"error","error":"bad step"})", "power", 0, 60, 4, &gpus);
  EXPECT_EQ(rejected.message(), "Prometheus rejects the query: bad step");
  EXPECT_FALSE(AddCurves("<html>", "power", 0, 60, 4, &gpus).ok());
  EXPECT_FALSE(AddCurves(R"({"status":"success"})", "power", 0, 60, 4, &gpus).ok());
  EXPECT_EQ(gpus.Serialize(), "{}");
}

constexpr const char* kNoCurves =
    R"({"status":"success","data":{"resultType":"matrix","result":[]}})";

class MetricHistoryTest : public ::testing::Test {
 protected:
  void Start(int status, const std::string& body) {
    server_ = *net::HttpServer::Start(
        io_, runner_, {.address = {.host = "127.0.0.1"}},
        [this, status, body](const net::Request& request, const net::HttpServer::Reply& reply) {
          queries_.push_back(request.Query("query").value_or(""));
          authorization_ = request.headers.Get("Authorization");
          reply({status, {}, body});
        });
    options_.client.server.address = server_->address();
    history_ = std::make_unique<MetricHistory>(io_, runner_, options_);
  }
  Result<Json> Read(const std::vector<std::string>& uuids) {
    std::optional<Result<Json>> answer;
    history_->Read(uuids, std::chrono::hours(1),
                   [&](Result<Json> got) { answer = std::move(got); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return *std::move(answer);
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::vector<std::string> queries_;
  std::string authorization_;  // of the last request
  PrometheusOptions options_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<MetricHistory> history_;
};

TEST_F(MetricHistoryTest, QueriesOnlyTheGpusOfTheNode) {
  Start(200, kNoCurves);
  const Result<Json> answer = Read({"GPU-a", "GPU-b\"} or vector(1) #", "GPU-c"});
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_EQ(answer->IntAt("step").value_or(0), 15);
  EXPECT_EQ(answer->Find("gpus")->Serialize(), "{}");
  EXPECT_THAT(queries_, SizeIs(4));
  EXPECT_THAT(queries_, Each(AllOf(HasSubstr("{UUID=~\"GPU-a|GPU-c\"})[15s:15s]"),
                                   Not(HasSubstr("vector")))));
}

TEST_F(MetricHistoryTest, AnErrorOfPrometheusIsReported) {
  Start(503, "starting");
  const Result<Json> answer = Read({"GPU-a"});
  EXPECT_EQ(answer.status().code(), Code::kUnavailable);
  EXPECT_EQ(answer.status().message(), "cannot read from Prometheus: status 503");
  // The failed read does not affect the next read.
  EXPECT_FALSE(Read({"GPU-a"}).ok());
}

TEST_F(MetricHistoryTest, SendsTheTokenThatTheFileHasNow) {
  Start(200, kNoCurves);
  ASSERT_TRUE(Read({"GPU-a"}).ok());
  EXPECT_EQ(authorization_, "");
  const TempDir folder;
  options_.token_file = folder.path() + "/token";
  ASSERT_TRUE(WriteFileAtomically(options_.token_file, "first\n", 0600).ok());
  Start(200, kNoCurves);
  ASSERT_TRUE(Read({"GPU-a"}).ok());
  EXPECT_EQ(authorization_, "Bearer first");
  ASSERT_TRUE(WriteFileAtomically(options_.token_file, "second\n", 0600).ok());
  ASSERT_TRUE(Read({"GPU-a"}).ok());
  EXPECT_EQ(authorization_, "Bearer second");
}

TEST_F(MetricHistoryTest, SendsUserAndPasswordOfASecret) {
  const TempDir folder;
  options_.basic_auth_dir = folder.path();
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/username", "tessera", 0600).ok());
  ASSERT_TRUE(WriteFileAtomically(folder.path() + "/password", "a:b c", 0600).ok());
  Start(200, kNoCurves);
  ASSERT_TRUE(Read({"GPU-a"}).ok());
  EXPECT_EQ(authorization_, "Basic dGVzc2VyYTphOmIgYw==");
}

TEST_F(MetricHistoryTest, AnUnusableCredentialIsAnErrorThatNamesTheFlag) {
  const TempDir folder;
  options_.token_file = folder.path() + "/token";
  Start(200, kNoCurves);
  // Not UNAUTHENTICATED or PERMISSION_DENIED, which the page would show as errors of the user.
  EXPECT_EQ(Read({"GPU-a"}).status().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(WriteFileAtomically(options_.token_file, "a\nX-Other: b", 0600).ok());
  EXPECT_THAT(Read({"GPU-a"}).status().message(),
              AllOf(HasSubstr("--prometheus-token-file: "),
                    HasSubstr("must contain exactly one line of text")));
  EXPECT_TRUE(queries_.empty());
}

TEST_F(MetricHistoryTest, ARejectedCredentialIsAnErrorOfTheInstallation) {
  Start(401, "Unauthorized\n");
  const Status status = Read({"GPU-a"}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("status 401: check --prometheus-token-file"));
}

}  // namespace
}  // namespace tessera::console
