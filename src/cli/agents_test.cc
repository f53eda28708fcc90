// SPDX-License-Identifier: Apache-2.0
#include "src/cli/agents.h"

#include <gtest/gtest.h>

#include "src/net/http_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::cli {
namespace {

// A fake API server with the agents of some nodes. Its Pod objects have only the fields that are
// read.
class AgentsTest : public ::testing::Test {
 protected:
  AgentsTest() {
    net::HttpServer::Options options;
    options.address = net::ParseAddress("127.0.0.1:0").value();
    server_ = net::HttpServer::Start(
                  io_, runner_, options,
                  [this](const net::Request& request, const net::HttpServer::Reply& reply) {
                    Answer(request, reply);
                  })
                  .value();
    kube::Config config;
    config.server = net::ParseUrl("http://" + server_->address().ToString()).value();
    client_ = std::make_unique<kube::Client>(io_, runner_, config, kube::ClientOptions{});
  }
  void Answer(const net::Request& request, const net::HttpServer::Reply& reply) {
    const std::string pods = "/api/v1/namespaces/tessera-system/pods";
    targets_.push_back(request.target);
    if (request.path() == pods) return reply(Typed(200, list_));
    const auto page = pages_.find(std::string(request.path().substr(pods.size() + 1)));
    if (page == pages_.end()) return reply(net::TextResponse(503, "no endpoints"));
    reply(Typed(200, page->second));
  }
  static net::Response Typed(int status, const std::string& body) {
    net::Response response = net::TextResponse(status, body);
    response.headers.Set("Content-Type", "application/json");
    return response;
  }
  void AddAgent(const std::string& node, bool answers) {
    const std::string pod = "agent-" + node;
    std::string item =
        fmt::format(R"({{"metadata":{{"name":"{}","namespace":"tessera-system","uid":"u",)"
                    R"("resourceVersion":"1"}},"spec":{{"nodeName":"{}","containers":[]}},)"
                    R"("status":{{"phase":"Running"}}}})",
                    pod, node);
    items_ += (items_.empty() ? "" : ",") + item;
    list_ = R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[)" +
            items_ + "]}";
    if (!answers) return;
    pages_[pod + ":9400/proxy/containers"] = fmt::format(
        R"({{"node":"{0}","containers":[{{"namespace":"ns","pod":"p-{0}","container":"c",)"
        R"("uuid":"GPU-1","index":0,"milli":300,"memory":{{"granted":1,"limit":1,"used":1,)"
        R"("unaccounted":0,"peak":1}},"refused":0,"processes":1}}]}})",
        node);
  }
  Result<ClusterUses> Read(const std::string& node = "") {
    AgentReader reader(*client_, std::chrono::seconds(5));
    std::optional<Result<ClusterUses>> uses;
    reader.Read(node, [&](Result<ClusterUses> got) { uses = std::move(got); });
    EXPECT_TRUE(runner_.RunUntil([&] { return uses.has_value(); }, std::chrono::seconds(20)));
    return uses ? *uses : Status(Code::kInternal, "no answer");
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::string items_;
  std::string list_ =
      R"({"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]})";
  std::map<std::string, std::string> pages_;
  std::vector<std::string> targets_;
  std::unique_ptr<net::HttpServer> server_;
  std::unique_ptr<kube::Client> client_;
};

TEST_F(AgentsTest, ReadsEveryAgentThroughTheApiServer) {
  for (int i = 10; i < 60; ++i) AddAgent(fmt::format("n{}", i), i != 30);
  const auto uses = Read();
  ASSERT_TRUE(uses.ok()) << uses.status().ToString();
  ASSERT_EQ(uses->uses.size(), 49u);
  EXPECT_EQ(uses->uses[0].pod, "p-n10");
  EXPECT_EQ(uses->uses[48].node, "n59");
  ASSERT_EQ(uses->problems.size(), 1u);
  EXPECT_EQ(uses->problems.at("n30").code(), Code::kUnavailable);
}

TEST_F(AgentsTest, ListsOnlyTheAgentOfTheNode) {
  AddAgent("n1", true);
  ASSERT_TRUE(Read("n1").ok());
  EXPECT_NE(targets_.front().find("fieldSelector=spec.nodeName%3Dn1"), std::string::npos)
      << targets_.front();
}

TEST_F(AgentsTest, ErrorWithoutAgentsNamesACommand) {
  const auto uses = Read();
  EXPECT_EQ(uses.status().code(), Code::kNotFound);
  EXPECT_NE(uses.status().message().find("kubectl -n tessera-system get pods"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli
