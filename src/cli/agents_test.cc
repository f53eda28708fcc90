// SPDX-License-Identifier: Apache-2.0
#include "src/cli/agents.h"

#include <gtest/gtest.h>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::cli {
namespace {

// An API server with the agents of some nodes.
class AgentsTest : public ::testing::Test {
 protected:
  AgentsTest() {
    // A real API server, too, answers 503 for a pod that it cannot reach.
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      const bool unreachable = request.path().find("/proxy/") != std::string_view::npos &&
                               server_.Find(std::string(request.path())) == nullptr;
      if (unreachable) reply(net::TextResponse(503, "no endpoints"));
      return unreachable;
    });
  }
  void AddAgent(const std::string& node, bool answers, bool deleting = false) {
    const std::string name = "agent-" + node + (deleting ? "-old" : "");
    const std::string path = "/api/v1/namespaces/tessera-system/pods/" + name;
    Json agent =
        ParseJson(fmt::format(R"({{"metadata":{{"name":"{1}","namespace":)"
                              R"("tessera-system","uid":"u","labels":{{"app.kubernetes.io/name":)"
                              R"("tessera-agent"}}}},)"
                              R"("spec":{{"nodeName":"{0}","containers":[]}},)"
                              R"("status":{{"phase":"Running"}}}})",
                              node, name))
            .value();
    if (deleting) {
      agent.Find("metadata")->Set("deletionTimestamp", Json::String("2026-01-01T00:00:00Z"));
    }
    server_.Put(path, std::move(agent));
    if (!answers) return;
    server_.Put(
        path + ":9400/proxy/containers",
        ParseJson(fmt::format(R"({{"node":"{0}","containers":[{{"namespace":"ns","pod":"p-{0}",)"
                              R"("container":"c","uuid":"GPU-1","index":0,"milli":300,)"
                              R"("memory":{{"granted":1,"limit":1,"used":1,"unaccounted":0,)"
                              R"("peak":1}},"refused":0,"processes":1}}]}})",
                              node))
            .value());
  }
  Result<ClusterUses> Read(const std::string& node = "") {
    AgentReader reader(client_);
    std::optional<Result<ClusterUses>> uses;
    reader.Read(node, [&](Result<ClusterUses> got) { uses = std::move(got); });
    EXPECT_TRUE(runner_.RunUntil([&] { return uses.has_value(); }, std::chrono::seconds(20)));
    return uses ? *uses : Status(Code::kInternal, "no answer");
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  kube::Client client_{io_, runner_, server_.config(), kube::ClientOptions{}};
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

TEST_F(AgentsTest, ReadsOnlyTheAgentOfTheNode) {
  AddAgent("n1", true);
  AddAgent("n2", true);
  const auto uses = Read("n1");
  ASSERT_TRUE(uses.ok()) << uses.status().ToString();
  ASSERT_EQ(uses->uses.size(), 1u);
  EXPECT_EQ(uses->uses[0].node, "n1");
  EXPECT_EQ(server_.paths().size(), 2u);
}

TEST_F(AgentsTest, SkipsAgentsThatAreBeingDeleted) {
  AddAgent("n1", true);
  AddAgent("n1", true, /*deleting=*/true);
  AddAgent("n2", true);
  AddAgent("n2", false, /*deleting=*/true);
  AddAgent("n3", true, /*deleting=*/true);
  const auto uses = Read();
  ASSERT_TRUE(uses.ok()) << uses.status().ToString();
  EXPECT_EQ(uses->uses.size(), 2u);
  EXPECT_TRUE(uses->problems.empty());
  EXPECT_EQ(uses->agent_nodes, (std::set<std::string>{"n1", "n2"}));
}

TEST_F(AgentsTest, ErrorWithoutAgentsNamesACommand) {
  const auto uses = Read();
  EXPECT_EQ(uses.status().code(), Code::kNotFound);
  EXPECT_NE(uses.status().message().find("kubectl -n tessera-system get pods"), std::string::npos);
}

}  // namespace
}  // namespace tessera::cli
