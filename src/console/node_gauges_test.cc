// SPDX-License-Identifier: Apache-2.0
#include "src/console/node_gauges.h"

#include <gmock/gmock.h>

#include "src/base/strings.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

std::string PageOf(int utilization) {
  return fmt::format(
      "DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",UUID=\"GPU-a\"}} {}\n"
      "DCGM_FI_DEV_GPU_TEMP{{gpu=\"0\",UUID=\"GPU-a\"}} 61\n"
      "DCGM_FI_DEV_GPU_TEMP{{gpu=\"1\",UUID=\"GPU-b\"}} 45\n",
      utilization);
}

TEST(GaugesForNodeMapTest, HasBothValuesOfEachGpu) {
  EXPECT_EQ(GaugesForNodeMap(PageOf(37)), R"({"GPU-a":[37,61],"GPU-b":[null,45]})");
  EXPECT_EQ(GaugesForNodeMap("no metrics"), "{}");
}

// Uses a fake API server: a real one proxies HTTP requests only to pods that a kubelet runs.
class NodeGaugesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    client_ = std::make_unique<kube::Client>(io_, runner_, server_.config(), kube::ClientOptions{});
    gauges_ = std::make_unique<NodeGauges>(*client_);
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      if (request.path().ends_with("/pods")) ++lists_;
      if (request.path().find("/proxy") == std::string_view::npos) return false;
      paths_.emplace_back(request.path());
      if (status_ != 200) {
        reply(net::TextResponse(status_, "no route to host"));
      } else {
        reply(net::TextResponse(200, PageOf(utilization_)));
      }
      return true;
    });
  }

  // Repeats Read until the answer has `text`.
  std::string ReadUntil(const std::vector<std::string>& nodes, std::string_view text) {
    std::string answer;
    for (int i = 0; i < 1500; ++i) {
      answer = gauges_->Read(nodes);
      if (answer.find(text) != std::string::npos) return answer;
      runner_.RunFor(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << "no " << text << " in " << answer;
    return answer;
  }

  net::testing::ShiftedRunner runner_;
  net::IoThread io_;  // the I/O thread posts to runner_ until the thread ends
  kube::testing::FakeApiServer server_{io_, runner_};
  std::unique_ptr<kube::Client> client_;
  std::unique_ptr<NodeGauges> gauges_;
  std::vector<std::string> paths_;
  int lists_ = 0;
  int status_ = 200;
  int utilization_ = 37;
};

TEST_F(NodeGaugesTest, OneReadOfAnAgentServesAllViewers) {
  server_.PutAgent("agent-x", "n1");
  EXPECT_EQ(gauges_->Read({"n1"}), "{}");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(gauges_->Read({"n1"}), "{}");
  const std::string answer = ReadUntil({"n1"}, "GPU-a");
  EXPECT_THAT(answer,
              MatchesRegex(R"(\{"n1":\{"age":[0-9]\.[0-9],"gpus":\{"GPU-a":\[37,61\],.*\}\}\})"));
  runner_.RunFor(3 * NodeGauges::kReadInterval);
  EXPECT_EQ(paths_.size(), 1U);
}

TEST_F(NodeGaugesTest, AKnownAgentIsReadAgainWithoutAList) {
  server_.PutAgent("agent-x", "n1");
  ReadUntil({"n1"}, "[37,");
  const int lists = lists_;
  utilization_ = 80;
  runner_.Advance(NodeGauges::kMaxAge * 2);
  EXPECT_THAT(gauges_->Read({"n1"}), ContainsRegex("\"age\":2[0-9]\\."));
  ReadUntil({"n1"}, "[80,");
  EXPECT_EQ(paths_.size(), 2U);
  EXPECT_EQ(lists_, lists);
}

TEST_F(NodeGaugesTest, TheLastValuesOfAFailedAgentStayWithTheirAgeAndTheReason) {
  server_.PutAgent("agent-x", "n1");
  ReadUntil({"n1"}, "GPU-a");
  status_ = 503;
  runner_.Advance(NodeGauges::kMaxAge * 2);
  const std::string answer = ReadUntil({"n1"}, "error");
  EXPECT_THAT(answer, ContainsRegex("\"age\":2[0-9]\\."));
  EXPECT_THAT(answer, HasSubstr("[37,61]"));
  EXPECT_THAT(answer, HasSubstr("no route to host"));
  // The agent has a new pod.
  status_ = 200;
  runner_.Advance(NodeGauges::kMaxAge * 2);
  EXPECT_THAT(ReadUntil({"n1"}, "\"age\":0."), Not(HasSubstr("error")));
}

TEST_F(NodeGaugesTest, ANodeWithoutAgentIsAnErrorOfThisNodeAlone) {
  server_.PutAgent("agent-x", "n1");
  const std::string answer = ReadUntil({"n1", "n2"}, "no tessera-agent runs on node n2");
  EXPECT_THAT(answer, HasSubstr("GPU-a"));
}

TEST_F(NodeGaugesTest, NodesThatAreNoLongerInViewAreNotRead) {
  server_.PutAgent("agent-x", "n1");
  gauges_->Read({"n1"});
  runner_.Advance(NodeGauges::kMaxAge * 2);
  runner_.RunFor(3 * NodeGauges::kReadInterval);
  EXPECT_TRUE(paths_.empty());
  ReadUntil({"n1"}, "GPU-a");
}

TEST_F(NodeGaugesTest, ReadsAreSpreadOverTime) {
  constexpr int kNodes = 30;
  std::vector<std::string> nodes;
  for (int i = 0; i < kNodes; ++i) nodes.push_back(fmt::format("n{}", i));
  for (const std::string& node : nodes) server_.PutAgent("agent-" + node, node);
  gauges_->Read(nodes);
  runner_.RunFor(5 * NodeGauges::kReadInterval);
  EXPECT_LE(paths_.size(), 6U);
  EXPECT_TRUE(runner_.RunUntil([&] { return paths_.size() == kNodes; }));
}

}  // namespace
}  // namespace tessera::console
