// SPDX-License-Identifier: Apache-2.0
#include "src/console/drain.h"

#include <gmock/gmock.h>

#include <map>

#include "src/formats/json.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::console {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Json PodWith(const std::string& fields) {
  return ParseJson(R"({"metadata":{"name":"p","namespace":"a"},"spec":{},)" + fields + "}").value();
}

TEST(ReasonToStayTest, PodsThatWouldComeBackOrBeLostStay) {
  const std::string owned =
      R"("ownerReferences":[{"kind":"ReplicaSet","name":"r","controller":true}])";
  EXPECT_EQ(ReasonToStay(PodWith(R"("status":{"phase":"Succeeded"})"), true), "ended");
  EXPECT_EQ(ReasonToStay(PodWith(R"("status":{})"), false), "unmanaged");
  EXPECT_EQ(ReasonToStay(PodWith(R"("status":{})"), true), "");
  const Json mirror =
      *ParseJson(R"({"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{}})");
  EXPECT_EQ(ReasonToStay(mirror, true), "static");
  const Json data = *ParseJson(R"({"metadata":{)" + owned +
                               R"(},"spec":{"volumes":[{"name":"c","emptyDir":{}}]}})");
  EXPECT_EQ(ReasonToStay(data, false), "local-data");
  EXPECT_EQ(ReasonToStay(data, true), "");
  const Json daemon = *ParseJson(
      R"({"metadata":{"ownerReferences":[{"kind":"DaemonSet","name":"d","controller":true}]},)"
      R"("spec":{}})");
  EXPECT_EQ(ReasonToStay(daemon, true), "daemonset");
}

// Uses a fake API server, which can reject chosen evictions.
class DrainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    session_->client = std::make_unique<kube::Client>(io_, runner_, server_.config(),
                                                      kube::ClientOptions{.max_attempts = 1});
    server_.Put(
        "/api/v1/nodes/n1",
        *ParseJson(R"({"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"spec":{}})"));
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      if (!request.path().ends_with("/eviction")) return false;
      const std::string path(request.path());
      dry_runs_[path] = request.body.find("dryRun") != std::string::npos;
      const auto found = eviction_statuses_.find(path);
      if (found == eviction_statuses_.end()) {
        reply(Answer(201, R"({"kind":"Status","apiVersion":"v1","status":"Success"})"));
      } else {
        reply(Answer(found->second,
                     fmt::format(R"({{"kind":"Status","apiVersion":"v1","status":"Failure",)"
                                 R"("message":"no","code":{}}})",
                                 found->second)));
      }
      return true;
    });
  }
  static net::Response Answer(int status, const std::string& body) {
    net::Response response = net::TextResponse(status, body);
    response.headers.Set("Content-Type", "application/json");
    return response;
  }

  void PutPod(const std::string& name, const std::string& owner) {
    const std::string owners =
        owner.empty() ? ""
                      : fmt::format(R"(,"ownerReferences":[{{"kind":"{}","name":"o","uid":"o",)"
                                    R"("controller":true}}])",
                                    owner);
    server_.Put("/api/v1/namespaces/a/pods/" + name,
                *ParseJson(fmt::format(
                    R"({{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{}","namespace":"a",)"
                    R"("uid":"{}"{}}},"spec":{{"nodeName":"n1"}},"status":{{"phase":"Running"}}}})",
                    name, name, owners)));
  }
  static std::string PathOf(const std::string& pod) {
    return "/api/v1/namespaces/a/pods/" + pod + "/eviction";
  }

  Result<Json> Run(DrainOptions options) {
    options.node = "n1";
    std::optional<Result<Json>> answer;
    Drain drain(session_, options, [&](Result<Json> got) { answer = std::move(got); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return answer.value_or(Error(Code::kDeadlineExceeded, "no answer"));
  }
  static std::vector<std::string> ResultsOf(const Result<Json>& answer) {
    std::vector<std::string> results;
    if (!answer.ok()) return {answer.status().ToString()};
    for (const Json& pod : answer->Find("pods")->items()) {
      results.push_back(fmt::format("{} {} {}", pod.StringAt("name").value(),
                                    pod.StringAt("result").value(),
                                    pod.StringAt("why").value_or("")));
    }
    return results;
  }
  bool Cordoned() {
    return FindPath(*server_.Find("/api/v1/nodes/n1"), {"spec", "unschedulable"}) != nullptr;
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  std::shared_ptr<WebSession> session_ = std::make_shared<WebSession>();
  std::map<std::string, int> eviction_statuses_;
  std::map<std::string, bool> dry_runs_;
};

TEST_F(DrainTest, ADryRunRequestsEvictionsAndChangesNothing) {
  PutPod("blocked", "ReplicaSet");
  PutPod("lost", "");
  PutPod("web", "ReplicaSet");
  eviction_statuses_[PathOf("blocked")] = 429;
  const Result<Json> answer = Run({.dry_run = true});
  EXPECT_THAT(ResultsOf(answer),
              ElementsAre(HasSubstr("blocked refused"), "lost stays unmanaged", "web evicted "));
  EXPECT_FALSE(Cordoned());
  for (const auto& [path, dry_run] : dry_runs_) EXPECT_TRUE(dry_run) << path;
  EXPECT_EQ(dry_runs_.size(), 2U);
  EXPECT_EQ(answer->Find("pods")->items().at(2).StringAt("owner").value(), "ReplicaSet/o");
}

TEST_F(DrainTest, CordonsBeforeItEvicts) {
  PutPod("agent", "DaemonSet");
  PutPod("lost", "");
  PutPod("web", "ReplicaSet");
  eviction_statuses_[PathOf("web")] = 403;
  const Result<Json> answer = Run({.dry_run = false, .force = true});
  EXPECT_THAT(ResultsOf(answer),
              ElementsAre("agent stays daemonset", "lost evicted ", HasSubstr("web failed")));
  EXPECT_TRUE(Cordoned());
  EXPECT_FALSE(dry_runs_.at(PathOf("lost")));
}

TEST_F(DrainTest, WithoutTheRightToCordonNothingIsEvicted) {
  PutPod("web", "ReplicaSet");
  server_.Refuse("nodes", 403);
  const Result<Json> answer = Run({.dry_run = false});
  EXPECT_EQ(answer.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(answer.status().message(), HasSubstr("cannot cordon the node"));
  EXPECT_THAT(dry_runs_, IsEmpty());
}

}  // namespace
}  // namespace tessera::console
