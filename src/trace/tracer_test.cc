// SPDX-License-Identifier: Apache-2.0
#include "src/trace/tracer.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <vector>

#include "src/formats/json.h"
#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::trace {
namespace {

using std::chrono::milliseconds;

// The UID in the form in which API servers create it.
const Uid kPod("5a1f0cde-97b4-4c07-8b1e-0d3a52c7e911");
constexpr std::string_view kTrace = "5a1f0cde97b44c078b1e0d3a52c7e911";

// Stands for a collector, because a real one cannot be made to answer with an error.
class TracerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = net::HttpServer::Start(
        io_, runner_, {.address = {.host = "127.0.0.1"}},
        [this](const net::Request& request, const net::HttpServer::Reply& reply) {
          EXPECT_EQ(request.target, "/v1/traces");
          EXPECT_EQ(request.headers.Get("Content-Type"), "application/json");
          bodies_.push_back(ParseJson(request.body).value());
          net::Response response{.status = status_};
          if (!retry_after_.empty()) response.headers.Set("Retry-After", retry_after_);
          request_times_.push_back(runner_.clock().Now());
          reply(std::move(response));
        });
    ASSERT_TRUE(server.ok()) << server.status().ToString();
    server_ = *std::move(server);
    auto tracer = Tracer::Start(io_, runner_, metrics_,
                                {.endpoint = "http://" + server_->address().ToString(),
                                 .service = "tessera-agent",
                                 .node = "n1"});
    ASSERT_TRUE(tracer.ok()) << tracer.status().ToString();
    tracer_ = *std::move(tracer);
  }

  static PodSpan MakeSpan(std::string name, Status status = {}) {
    return {.name = std::move(name),
            .subject = {kPod, "ml", "train", "main"},
            .start = WallTime(milliseconds(1'000)),
            .end = WallTime(milliseconds(1'250)),
            .attributes = {{"tessera.gpus", "GPU-0"}},
            .status = std::move(status)};
  }
  // The spans of a request.
  static const Json::Array& SpansOf(const Json& body) {
    const Json& service = body.Find("resourceSpans")->items().at(0);
    return service.Find("scopeSpans")->items().at(0).Find("spans")->items();
  }
  bool WaitForRequests(size_t count) {
    return runner_.RunUntil([&] { return bodies_.size() >= count; });
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::vector<Json> bodies_;
  std::vector<MonotonicTime> request_times_;
  int status_ = 200;
  std::string retry_after_;
  TraceMetrics metrics_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<Tracer> tracer_;
};

TEST_F(TracerTest, SendsSpansOfAPodAsOneTrace) {
  tracer_->Record(MakeSpan("grant"));
  tracer_->Record(MakeSpan("bind", Status(Code::kAborted, "the node is gone")));
  tracer_->Record(RootSpan({kPod, "ml", "train", ""}, WallTime(milliseconds(500)),
                           WallTime(milliseconds(1'250))));
  ASSERT_TRUE(WaitForRequests(1));
  EXPECT_TRUE(runner_.RunUntil([&] { return metrics_.sent.value() == 3; }));
  const Json& resource = *bodies_[0].Find("resourceSpans")->items().at(0).Find("resource");
  EXPECT_EQ(resource.Find("attributes")->items().at(0).Serialize(),
            R"({"key":"service.name","value":{"stringValue":"tessera-agent"}})");
  const Json::Array& spans = SpansOf(bodies_[0]);
  ASSERT_EQ(spans.size(), 3u);
  for (const Json& span : spans) EXPECT_EQ(span.StringAt("traceId").value(), kTrace);
  EXPECT_EQ(spans[0].StringAt("name").value(), "grant");
  EXPECT_EQ(spans[0].StringAt("startTimeUnixNano").value(), "1000000000");
  EXPECT_EQ(spans[0].StringAt("endTimeUnixNano").value(), "1250000000");
  EXPECT_EQ(spans[0].Find("status"), nullptr);
  EXPECT_EQ(spans[1].Find("status")->Serialize(), R"({"code":2,"message":"the node is gone"})");
  EXPECT_EQ(spans[2].Find("parentSpanId"), nullptr);
  const std::string root = spans[2].StringAt("spanId").value();
  EXPECT_EQ(spans[0].StringAt("parentSpanId").value(), root);
  EXPECT_EQ(spans[1].StringAt("parentSpanId").value(), root);
  EXPECT_NE(spans[0].StringAt("spanId").value(), spans[1].StringAt("spanId").value());
}

TEST_F(TracerTest, ARetriedBatchHasTheSameIds) {
  status_ = 503;
  tracer_->Record(MakeSpan("grant"));
  ASSERT_TRUE(WaitForRequests(1));
  status_ = 200;
  tracer_->Record(MakeSpan("bind"));
  ASSERT_TRUE(WaitForRequests(2));
  EXPECT_TRUE(runner_.RunUntil([&] { return metrics_.sent.value() == 2; }));
  EXPECT_EQ(SpansOf(bodies_[0])[0].Serialize(), SpansOf(bodies_[1])[0].Serialize());
  EXPECT_EQ(metrics_.dropped.value(), 0u);
}

TEST_F(TracerTest, WaitsForRetryAfter) {
  status_ = 429;
  retry_after_ = "2";
  tracer_->Record(MakeSpan("grant"));
  ASSERT_TRUE(WaitForRequests(1));
  status_ = 200;
  tracer_->Record(MakeSpan("bind"));  // does not end the pause
  ASSERT_TRUE(WaitForRequests(2));
  EXPECT_GE(request_times_[1] - request_times_[0], milliseconds(1'900));
  EXPECT_EQ(metrics_.dropped.value(), 0u);
}

TEST_F(TracerTest, SpansThatTheCollectorRejectsAreDroppedAndCounted) {
  // OTLP allows no retry after 500, unlike after 502, 503 and 504.
  const std::vector<int> statuses = {400, 500};
  for (size_t i = 0; i < statuses.size(); ++i) {
    status_ = statuses[i];
    tracer_->Record(MakeSpan("grant"));
    EXPECT_TRUE(runner_.RunUntil([&] { return metrics_.dropped.value() == i + 1; })) << status_;
  }
  status_ = 200;
  tracer_->Record(MakeSpan("bind"));
  ASSERT_TRUE(WaitForRequests(3));
  EXPECT_EQ(SpansOf(bodies_[2]).size(), 1u);
}

TEST_F(TracerTest, TheQueueIsBounded) {
  for (size_t i = 0; i < Tracer::kMaxWaiting + 10; ++i) tracer_->Record(MakeSpan("grant"));
  EXPECT_TRUE(runner_.RunUntil([&] { return metrics_.dropped.value() == 10; }));
  ASSERT_TRUE(WaitForRequests(1));
  EXPECT_EQ(SpansOf(bodies_[0]).size(), Tracer::kMaxBatch);
}

TEST(TracerStartTest, TheErrorForAnInvalidEndpointNamesTheFlag) {
  net::testing::TestRunner runner;
  net::IoThread io;
  TraceMetrics metrics;
  const auto tracer = Tracer::Start(io, runner, metrics, {.endpoint = "collector:4318"});
  EXPECT_EQ(tracer.status().code(), Code::kInvalidArgument);
  EXPECT_NE(tracer.status().message().find("--otlp-endpoint"), std::string::npos);
}

TEST(TraceIdTest, DifferentUidsHaveDifferentIds) {
  EXPECT_EQ(TraceIdOf(kPod), kTrace);
  // UIDs of static pods are hashes of their files, without dashes.
  EXPECT_EQ(TraceIdOf(Uid("5A1F0CDE97B44C078B1E0D3A52C7E911")), kTrace);
  std::set<std::string> ids;
  for (const char* uid : {"", "a", "b", "not-a-uuid", "00000000-0000-0000-0000-000000000000"}) {
    const std::string id = TraceIdOf(Uid(uid));
    EXPECT_EQ(id.size(), 32u);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), id.npos);
    EXPECT_TRUE(ids.insert(id).second) << uid;
  }
}

}  // namespace
}  // namespace tessera::trace
