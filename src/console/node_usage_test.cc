// SPDX-License-Identifier: Apache-2.0
#include "src/console/node_usage.h"

#include <gmock/gmock.h>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kMetrics =
    "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n"
    "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
    "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",device=\"nvidia0\"} 37\n"
    "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\",device=\"nvidia1\"} NaN\n"
    "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",pod=\"p\"} 512\n"
    "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\"} 100\n"
    "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\",UUID=\"GPU-a\",device=\"nvidia0\"} 212.4\n"
    "DCGM_FI_DEV_XID_ERRORS{gpu=\"0\",UUID=\"GPU-a\"} 79\n"
    "tessera_container_gpu_limited{uuid=\"GPU-a\"} 1\n";

TEST(JsonOfGpuGaugesTest, TakesTheGaugesOfEachGpu) {
  EXPECT_EQ(JsonOfGpuGauges(kMetrics).Serialize(),
            R"({"GPU-a":{"utilization":37,"memoryMiB":612,"power":212.4}})");
}

TEST(JsonOfGpuGaugesTest, SkipsLinesThatAreNoGauges) {
  EXPECT_EQ(JsonOfGpuGauges("").Serialize(), "{}");
  EXPECT_EQ(JsonOfGpuGauges("DCGM_FI_DEV_GPU_UTIL 1\nDCGM_FI_DEV_GPU_UTIL{UUID=\"x\"\n"
                            "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 1\nDCGM_FI_DEV_GPU_UTIL} 3{\n")
                .Serialize(),
            "{}");
}

// Uses a fake API server: a real one proxies HTTP requests only to pods that a kubelet runs.
// tests/e2e reads from a real agent.
class NodeUsageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    session_->client =
        std::make_unique<kube::Client>(io_, runner_, server_.config(), kube::ClientOptions{});
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      if (!request.path().starts_with(kAgent)) return false;
      const std::string_view page = request.path().substr(kAgent.size());
      if (page == "/metrics") {
        reply(net::TextResponse(200, std::string(kMetrics)));
      } else if (containers_.empty()) {
        reply(net::TextResponse(503, "no route to host"));
      } else {
        reply(net::TextResponse(200, containers_));
      }
      return true;
    });
  }

  Result<Json> Read() {
    std::optional<Result<Json>> answer;
    reader_.Read(session_, "n1", [&](Result<Json> usage) { answer = std::move(usage); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return answer.value_or(Error(Code::kDeadlineExceeded, "no answer"));
  }

  static constexpr std::string_view kAgent =
      "/api/v1/namespaces/tessera-system/pods/agent-x:9400/proxy";
  net::testing::TestRunner runner_;
  net::IoThread io_;  // the I/O thread posts to runner_ until the thread ends
  kube::testing::FakeApiServer server_{io_, runner_};
  std::shared_ptr<WebSession> session_ = std::make_shared<WebSession>();
  NodeUsageReader reader_{runner_};
  std::string containers_ = R"({"node":"n1","containers":[{"pod":"p"}],"complete":true})";
};

TEST_F(NodeUsageTest, JoinsThePagesOfTheAgent) {
  server_.PutAgent("agent-x", "n1");
  const Result<Json> usage = Read();
  ASSERT_TRUE(usage.ok()) << usage.status().ToString();
  EXPECT_EQ(usage->Find("gpus")->Serialize(), JsonOfGpuGauges(kMetrics).Serialize());
  EXPECT_EQ(usage->Find("containers")->Serialize(), R"([{"pod":"p"}])");
  EXPECT_TRUE(usage->Find("complete")->bool_value());
  EXPECT_TRUE(Read().ok());
}

TEST_F(NodeUsageTest, ANodeWithoutAgentIsNamed) {
  EXPECT_THAT(Read().status().message(), HasSubstr("no tessera-agent runs on node n1"));
}

TEST_F(NodeUsageTest, AnUnreachableAgentOrAnInvalidAnswerIsOneError) {
  server_.PutAgent("agent-x", "n1");
  containers_.clear();
  EXPECT_THAT(Read().status().message(), HasSubstr("cannot read from the node's agent"));
  containers_ = "no JSON";
  EXPECT_THAT(Read().status().message(), HasSubstr("cannot read from the node's agent"));
}

TEST_F(NodeUsageTest, MissingPermissionReturnsTheServersError) {
  server_.PutAgent("agent-x", "n1");
  server_.Refuse("pods", 403);
  EXPECT_EQ(Read().status().code(), Code::kPermissionDenied);
}

}  // namespace
}  // namespace tessera::console
