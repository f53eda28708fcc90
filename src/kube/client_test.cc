// SPDX-License-Identifier: Apache-2.0
#include "src/kube/client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>

#include "src/base/file.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::kube {
namespace {

using net::testing::RawServer;
using std::chrono::milliseconds;
using std::chrono::seconds;

net::Response JsonAnswer(int status, std::string body) {
  return {status, {{"Content-Type", "application/json"}}, std::move(body)};
}

// An API server that sends the queued responses, then 200 with an empty object. A connection that
// breaks within a request needs a server of raw bytes.
class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    StartServer({.host = "127.0.0.1"});
    config_ = server_->config();
  }
  void StartServer(const net::Address& address) {
    server_ = std::make_unique<testing::FakeApiServer>(io_, runner_, address);
    server_->SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      requests_.push_back(request);
      held_reply_ = reply;
      if (hold_replies_) return true;
      net::Response answer = JsonAnswer(200, "{}");
      if (!responses_.empty()) {
        answer = responses_.front();
        responses_.pop_front();
      }
      reply(answer);
      return true;
    });
  }
  Client& client() {
    if (!client_) client_ = std::make_unique<Client>(io_, runner_, config_, options_);
    return *client_;
  }
  Result<Json> Wait(const std::function<Operation(Client::OnObject)>& start) {
    std::optional<Result<Json>> answer;
    const Operation operation = start([&](Result<Json> r) { answer = std::move(r); });
    EXPECT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
    return answer ? *answer : Result<Json>(Error(Code::kUnknown, "no answer"));
  }
  Result<Json> GetNode() {
    return Wait(
        [&](Client::OnObject on_done) { return client().Get(Node("n1"), std::move(on_done)); });
  }
  Result<Json> PatchNode(PatchKind kind, PatchOptions options = {}) {
    const Json body = ParseJson(R"({"metadata":{"labels":{"a":"b"}}})").value();
    return Wait([&](Client::OnObject on_done) {
      return client().Patch(Node("n1"), kind, body, options, std::move(on_done));
    });
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  std::vector<net::Request> requests_;
  std::deque<net::Response> responses_;
  bool hold_replies_ = false;
  net::HttpServer::Reply held_reply_;
  std::unique_ptr<testing::FakeApiServer> server_;
  Config config_;
  ClientOptions options_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, GetsAnObjectWithItsToken) {
  config_.token = "secret";
  responses_ = {JsonAnswer(200, R"({"metadata":{"name":"n1"}})")};
  EXPECT_TRUE(GetNode().ok());
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_[0].target, "/api/v1/nodes/n1");
  EXPECT_EQ(requests_[0].headers.Get("Authorization"), "Bearer secret");
  EXPECT_EQ(requests_[0].headers.Get("User-Agent"), "tessera");
}

TEST_F(ClientTest, ImpersonatesTheConfiguredUser) {
  config_.token = "secret";
  config_.impersonation = {
      .user = "jane", .uid = "7", .groups = {"dev", "ops"}, .extra = {{"acme.com/why", "audit"}}};
  responses_ = {JsonAnswer(503, "{}")};
  EXPECT_TRUE(GetNode().ok());
  ASSERT_EQ(requests_.size(), 2u);  // the second attempt has each header once, too
  std::multimap<std::string, std::string> impersonation;
  for (const auto& [name, value] : requests_[1].headers) {
    if (name.starts_with("Impersonate-")) impersonation.emplace(name, value);
  }
  EXPECT_EQ(impersonation, (std::multimap<std::string, std::string>{
                               {"Impersonate-User", "jane"},
                               {"Impersonate-Uid", "7"},
                               {"Impersonate-Group", "dev"},
                               {"Impersonate-Group", "ops"},
                               {"Impersonate-Extra-acme.com%2Fwhy", "audit"}}));
  EXPECT_EQ(requests_[1].headers.Get("Authorization"), "Bearer secret");
}

TEST_F(ClientTest, SendsThePatchKindAsContentType) {
  EXPECT_TRUE(PatchNode(PatchKind::kJson).ok());
  EXPECT_TRUE(PatchNode(PatchKind::kMerge).ok());
  EXPECT_TRUE(PatchNode(PatchKind::kStrategicMerge).ok());
  EXPECT_TRUE(PatchNode(PatchKind::kApply, {.field_manager = "a b", .force = true}).ok());
  ASSERT_EQ(requests_.size(), 4u);
  EXPECT_EQ(requests_[0].headers.Get("Content-Type"), "application/json-patch+json");
  EXPECT_EQ(requests_[1].headers.Get("Content-Type"), "application/merge-patch+json");
  EXPECT_EQ(requests_[2].headers.Get("Content-Type"), "application/strategic-merge-patch+json");
  EXPECT_EQ(requests_[3].headers.Get("Content-Type"), "application/apply-patch+yaml");
  EXPECT_EQ(requests_[3].target, "/api/v1/nodes/n1?fieldManager=a%20b&force=true");
  EXPECT_EQ(requests_[1].method, "PATCH");
  EXPECT_EQ(requests_[1].body, R"({"metadata":{"labels":{"a":"b"}}})");
}

TEST_F(ClientTest, CreatesReplacesAndDeletes) {
  const Json body = Json::MakeObject();
  Wait([&](auto on_done) { return client().Create(Pod("ns", ""), body, on_done); }).value();
  ObjectRef binding = Pod("ns", "p");
  binding.subresource = "binding";
  Wait([&](auto on_done) {
    return client().Create(binding, body, on_done, {.dry_run = true, .strict = true});
  }).value();
  Wait([&](auto on_done) { return client().Replace(Pod("ns", "p"), body, on_done); }).value();
  Wait([&](auto on_done) {
    return client().Delete(Pod("ns", "p"), {.uid = Uid("u")}, on_done);
  }).value();
  ASSERT_EQ(requests_.size(), 4u);
  EXPECT_EQ(requests_[0].method + requests_[0].target, "POST/api/v1/namespaces/ns/pods");
  EXPECT_EQ(requests_[1].target,
            "/api/v1/namespaces/ns/pods/p/binding?dryRun=All&fieldValidation=Strict");
  EXPECT_EQ(requests_[2].method, "PUT");
  EXPECT_EQ(requests_[3].method, "DELETE");
  EXPECT_NE(requests_[3].body.find(R"("preconditions":{"uid":"u"})"), std::string::npos);
}

TEST_F(ClientTest, EvictsWithTheOptionsOfADeletion) {
  Wait([&](auto on_done) {
    return client().Evict("ns", "p", {.uid = Uid("u"), .dry_run = true}, on_done);
  }).value();
  ASSERT_EQ(requests_.size(), 1u);
  EXPECT_EQ(requests_[0].method + requests_[0].target, "POST/api/v1/namespaces/ns/pods/p/eviction");
  EXPECT_EQ(requests_[0].body,
            R"({"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p",)"
            R"("namespace":"ns"},"deleteOptions":{"apiVersion":"v1","kind":"DeleteOptions",)"
            R"("preconditions":{"uid":"u"},"dryRun":["All"]}})");
}

TEST_F(ClientTest, DeletesWithPropagationAndPreconditions) {
  const ObjectRef object{kDaemonSets, "d", "ns", ""};
  const DeleteOptions options{
      .uid = Uid("u"), .resource_version = "7", .propagation = "Foreground", .dry_run = true};
  Wait([&](auto on_done) { return client().Delete(object, options, on_done); }).value();
  Wait([&](auto on_done) { return client().Delete(object, {}, on_done); }).value();
  EXPECT_EQ(requests_[0].body,
            R"({"apiVersion":"v1","kind":"DeleteOptions","preconditions":)"
            R"({"uid":"u","resourceVersion":"7"},"propagationPolicy":"Foreground",)"
            R"("dryRun":["All"]})");
  EXPECT_EQ(requests_[1].body, R"({"apiVersion":"v1","kind":"DeleteOptions"})");
}

TEST_F(ClientTest, AppliesAnObjectUnderItsOwnName) {
  const Json set = ParseJson(R"({"metadata":{"name":"d","namespace":"ns"}})").value();
  Wait([&](auto on_done) {
    return client().Apply(kDaemonSets, set, {.field_manager = "m", .force = true}, on_done);
  }).value();
  Wait([&](auto on_done) {
    return client().Apply(kDaemonSets, set, {.field_manager = "m"}, on_done, "status");
  }).value();
  ASSERT_EQ(requests_.size(), 2u);
  EXPECT_EQ(requests_[0].method, "PATCH");
  EXPECT_EQ(requests_[0].target,
            "/apis/apps/v1/namespaces/ns/daemonsets/d?fieldManager=m&force=true");
  EXPECT_EQ(requests_[0].headers.Get("Content-Type"), "application/apply-patch+yaml");
  EXPECT_EQ(requests_[0].body, set.Serialize());
  EXPECT_EQ(requests_[1].target, "/apis/apps/v1/namespaces/ns/daemonsets/d/status?fieldManager=m");
}

TEST_F(ClientTest, AppliesNoObjectWithoutNameOrNamespace) {
  const auto apply = [&](const char* text) {
    const Json object = ParseJson(text).value();
    return Wait([&](auto on_done) {
             return client().Apply(kDaemonSets, object, {.field_manager = "m"}, on_done);
           })
        .status();
  };
  EXPECT_EQ(apply(R"({"metadata":{"namespace":"ns"}})").message(),
            "cannot apply an object of daemonsets: metadata.name is missing");
  EXPECT_EQ(apply(R"({"metadata":{"name":"d"}})").code(), Code::kInvalidArgument);
  EXPECT_TRUE(requests_.empty());
}

TEST_F(ClientTest, RequestsMetadataOnly) {
  std::optional<Result<ListPage>> page;
  ListQuery query{.type = kNodes, .encoding = Encoding::kProtobuf, .metadata_only = true};
  responses_ = {JsonAnswer(200, R"({"metadata":{"resourceVersion":"7"},"items":[]})")};
  const Operation operation =
      client().List(query, [&](Result<ListPage> p) { page = std::move(p); });
  ASSERT_TRUE(runner_.RunUntil([&] { return page.has_value(); }));
  EXPECT_EQ(requests_[0].headers.Get("Accept"),
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, "
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
}

TEST_F(ClientTest, ListsPageByPage) {
  responses_ = {
      JsonAnswer(200, R"({"metadata":{"resourceVersion":"7","continue":"t+1"},"items":[{},{}]})"),
      JsonAnswer(200, R"({"metadata":{"resourceVersion":"7"},"items":null})")};
  std::optional<Result<ListPage>> page;
  ListQuery query{.type = kPods, .field_selector = "spec.nodeName=n1", .limit = 2};
  query.resource_version = "5";
  Operation operation = client().List(query, [&](Result<ListPage> p) { page = std::move(p); });
  ASSERT_TRUE(runner_.RunUntil([&] { return page.has_value(); }));
  EXPECT_EQ((*page)->items.size(), 2u);
  EXPECT_EQ(requests_[0].target,
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=2&resourceVersion=5");
  query.continue_token = (*page)->continue_token;
  page.reset();
  operation = client().List(query, [&](Result<ListPage> p) { page = std::move(p); });
  ASSERT_TRUE(runner_.RunUntil([&] { return page.has_value(); }));
  EXPECT_TRUE((*page)->items.empty());
  EXPECT_EQ((*page)->continue_token, "");
  EXPECT_NE(requests_[1].target.find("continue=t%2B1"), std::string::npos);
  EXPECT_EQ(requests_[1].target.find("resourceVersion"), std::string::npos);
}

TEST_F(ClientTest, ErrorsNameVerbPathAndReason) {
  responses_ = {JsonAnswer(403, R"({"kind":"Status","message":"no","reason":"Forbidden"})")};
  const Status status = GetNode().status();
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_EQ(status.message(), "GET /api/v1/nodes/n1: no (Forbidden, HTTP 403)");
  responses_ = {JsonAnswer(200, "not json")};
  EXPECT_EQ(GetNode().status().code(), Code::kInvalidArgument);
}

TEST_F(ClientTest, WaitsForRetryAfter) {
  net::Response busy = JsonAnswer(429, "{}");
  busy.headers.Set("Retry-After", "1");
  responses_ = {busy};
  const MonotonicTime began = runner_.clock().Now();
  // Even a create is retried, because 429 means that it was not processed.
  EXPECT_TRUE(Wait([&](auto on_done) {
                return client().Create(Pod("ns", ""), Json::MakeObject(), on_done);
              }).ok());
  EXPECT_GE(runner_.clock().Now() - began, seconds(1));
  EXPECT_EQ(requests_.size(), 2u);
}

TEST_F(ClientTest, FailsAfterMaxAttempts) {
  options_.max_attempts = 3;
  for (int i = 0; i < 5; ++i) responses_.push_back(JsonAnswer(503, "{}"));
  EXPECT_EQ(GetNode().status().code(), Code::kUnavailable);
  EXPECT_EQ(requests_.size(), 3u);
}

TEST_F(ClientTest, DoesNotWaitBeyondTheDeadline) {
  options_.deadline = seconds(20);
  net::Response busy = JsonAnswer(429, "{}");
  busy.headers.Set("Retry-After", "60");
  responses_ = {busy};
  const MonotonicTime began = runner_.clock().Now();
  EXPECT_EQ(GetNode().status().code(), Code::kResourceExhausted);
  EXPECT_LT(runner_.clock().Now() - began, seconds(5));
}

TEST_F(ClientTest, A429OfAnEvictionDelaysNoOtherRequest) {
  net::Response forbidden = JsonAnswer(429, R"({"kind":"Status","code":429,"message":"budget"})");
  forbidden.headers.Set("Retry-After", "60");
  responses_ = {forbidden};
  EXPECT_FALSE(Wait([&](auto on_done) { return client().Evict("ns", "p", {}, on_done); }).ok());
  const MonotonicTime began = runner_.clock().Now();
  EXPECT_TRUE(GetNode().ok());
  EXPECT_LT(runner_.clock().Now() - began, seconds(5));
}

TEST_F(ClientTest, RefreshesItsTokenOnce) {
  const TempDir dir;
  config_.token_file = JoinPath(dir.path(), "token");
  ASSERT_TRUE(WriteFileAtomically(config_.token_file, "old", 0600).ok());
  hold_replies_ = true;
  std::optional<Result<Json>> answer;
  const Operation operation =
      client().Get(Node("n1"), [&](Result<Json> r) { answer = std::move(r); });
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_.size() == 1; }));
  ASSERT_TRUE(WriteFileAtomically(config_.token_file, "new", 0600).ok());
  hold_replies_ = false;
  held_reply_(JsonAnswer(401, "{}"));
  ASSERT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
  EXPECT_TRUE(answer->ok());
  EXPECT_EQ(requests_[1].headers.Get("Authorization"), "Bearer new");
  // A retry with the same token is useless.
  responses_ = {JsonAnswer(401, "{}")};
  EXPECT_EQ(GetNode().status().code(), Code::kUnauthenticated);
  EXPECT_EQ(requests_.size(), 3u);
}

// A plugin whose token gets one more digit with each run.
ExecPlugin CountingPlugin(const TempDir& dir, const std::string& more = "") {
  const std::string script =
      fmt::format(R"(printf 1 >> {0}; echo "{{\"apiVersion\":\"client.authentication.k8s.io/v1\",)"
                  R"(\"kind\":\"ExecCredential\",\"status\":{{\"token\":\"t$(cat {0})\"{1}}}}}")",
                  JoinPath(dir.path(), "runs"), more);
  return {.api_version = "client.authentication.k8s.io/v1", .argv = {"sh", "-c", script}};
}

TEST_F(ClientTest, RunsAPluginOnceForAllWaitingRequests) {
  const TempDir dir;
  config_.exec = CountingPlugin(dir);
  int answers = 0;
  std::vector<Operation> operations;
  for (int i = 0; i < 3; ++i) {
    operations.push_back(client().Get(Node("n1"), [&](const Result<Json>& answer) {
      EXPECT_TRUE(answer.ok()) << answer.status().ToString();
      ++answers;
    }));
  }
  EXPECT_EQ(answers, 0);
  ASSERT_TRUE(runner_.RunUntil([&] { return answers == 3; }));
  for (const net::Request& r : requests_) EXPECT_EQ(r.headers.Get("Authorization"), "Bearer t1");
}

TEST_F(ClientTest, RunsThePluginAgainWhenItsTokenIsRejectedOrExpired) {
  const TempDir dir;
  config_.exec = CountingPlugin(dir);
  responses_ = {JsonAnswer(401, "{}")};
  EXPECT_TRUE(GetNode().ok());
  EXPECT_EQ(requests_.back().headers.Get("Authorization"), "Bearer t11");
  EXPECT_TRUE(GetNode().ok());
  EXPECT_EQ(requests_.back().headers.Get("Authorization"), "Bearer t11");
  config_.exec = CountingPlugin(dir, R"(,\"expirationTimestamp\":\"2020-01-01T00:00:00Z\")");
  client_.reset();
  EXPECT_TRUE(GetNode().ok());
  EXPECT_TRUE(GetNode().ok());
  EXPECT_EQ(requests_.back().headers.Get("Authorization"), "Bearer t1111");
}

TEST_F(ClientTest, ReportsTheErrorOfAPlugin) {
  config_.exec = ExecPlugin{.api_version = "client.authentication.k8s.io/v1",
                            .argv = {"sh", "-c", "echo log in first >&2; exit 1"}};
  const Status status = GetNode().status();
  EXPECT_EQ(status.code(), Code::kUnauthenticated);
  EXPECT_NE(status.message().find("log in first"), std::string::npos) << status.ToString();
  EXPECT_TRUE(requests_.empty());
}

TEST_F(ClientTest, IsDestroyedWithoutWaitingForAHangingPlugin) {
  config_.exec =
      ExecPlugin{.api_version = "client.authentication.k8s.io/v1", .argv = {"sleep", "5"}};
  const MonotonicTime began = runner_.clock().Now();
  const Operation operation = client().Get(Node("n1"), [](const Result<Json>&) { FAIL(); });
  runner_.RunFor(milliseconds(50));
  client_.reset();
  EXPECT_LT(runner_.clock().Now() - began, seconds(4));
}

TEST_F(ClientTest, RejectsRequestsBeyondTheLimitOfItsQueue) {
  hold_replies_ = true;
  options_.max_in_flight = 1;
  options_.max_waiting = 2;
  std::vector<Operation> operations;
  int rejected = 0;
  for (int i = 0; i < 5; ++i) {
    operations.push_back(client().Get(Node("n1"), [&](const Result<Json>& answer) {
      rejected += answer.status().code() == Code::kResourceExhausted ? 1 : 0;
    }));
  }
  ASSERT_TRUE(runner_.RunUntil([&] { return rejected == 2 && requests_.size() == 1; }));
  // Dropping one operation makes room for another.
  operations.erase(operations.begin() + 2);
  operations.push_back(client().Get(Node("n1"), [](const Result<Json>&) {}));
  operations.erase(operations.begin());
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_.size() == 2; }));
  EXPECT_EQ(rejected, 2);
}

TEST_F(ClientTest, CallsBeforeSendImmediatelyBeforeARequest) {
  hold_replies_ = true;
  options_.max_in_flight = 1;
  bool may_send = true;
  int before_send_calls = 0;
  std::vector<Status> results;
  const BeforeSend before_send = [&] {
    ++before_send_calls;
    return may_send ? Status::Ok() : Error(Code::kFailedPrecondition, "not any more");
  };
  std::vector<Operation> operations;
  for (int i = 0; i < 2; ++i) {
    operations.push_back(
        client().Create(Pod("ns", ""), Json::MakeObject(),
                        [&](const Result<Json>& answer) { results.push_back(answer.status()); },
                        {.before_send = before_send}));
  }
  ASSERT_TRUE(runner_.RunUntil([&] { return requests_.size() == 1; }));
  EXPECT_EQ(before_send_calls, 1);  // not called for the queued request
  may_send = false;
  held_reply_(JsonAnswer(201, "{}"));
  ASSERT_TRUE(runner_.RunUntil([&] { return results.size() == 2; }));
  EXPECT_TRUE(results[0].ok());
  EXPECT_EQ(results[1].code(), Code::kFailedPrecondition);
  EXPECT_EQ(before_send_calls, 2);
  EXPECT_EQ(requests_.size(), 1u);
  // The error does not concern the server, so no other request waits. A busy machine may delay some
  // requests, so it suffices that one is fast.
  hold_replies_ = false;
  Duration shortest = Duration::max();
  for (int i = 0; i < 10 && shortest >= milliseconds(190); ++i) {
    const auto rejected = Wait([&](auto on_done) {
      return client().Create(Pod("ns", ""), Json::MakeObject(), on_done,
                             {.before_send = before_send});
    });
    EXPECT_EQ(rejected.status().code(), Code::kFailedPrecondition);
    const MonotonicTime began = runner_.clock().Now();
    EXPECT_TRUE(GetNode().ok());
    shortest = std::min(shortest, runner_.clock().Now() - began);
  }
  EXPECT_LT(shortest, milliseconds(190));
}

TEST_F(ClientTest, NoCallbackRunsAfterTheOperationOrClientIsDestroyed) {
  bool called = false;
  {
    const Operation dropped = client().Get(Node("n1"), [&](const auto&) { called = true; });
  }
  Operation kept = client().Get(Node("n1"), [&](const auto&) { called = true; });
  client_.reset();
  runner_.RunFor(milliseconds(50));
  EXPECT_FALSE(called);
}

TEST_F(ClientTest, ACallbackMayDestroyTheClient) {
  bool called = false;
  const Operation operation = client().Get(Node("n1"), [&](const auto&) {
    client_.reset();
    called = true;
  });
  ASSERT_TRUE(runner_.RunUntil([&] { return called; }));
}

TEST_F(ClientTest, SurvivesAServerThatRestarts) {
  const net::Address address = server_->url().address;
  EXPECT_TRUE(GetNode().ok());
  server_.reset();
  std::optional<Result<Json>> answer;
  const Operation operation =
      client().Get(Node("n1"), [&](Result<Json> r) { answer = std::move(r); });
  runner_.RunFor(milliseconds(300));
  StartServer(address);
  ASSERT_TRUE(runner_.RunUntil([&] { return answer.has_value(); }));
  EXPECT_TRUE(answer->ok()) << answer->status().ToString();
}

TEST_F(ClientTest, AJsonPatchOrCreateIsNotSentTwiceWhenTheConnectionBreaks) {
  RawServer broken([](int fd) { RawServer::ReadHeader(fd); });
  config_.server = broken.url();
  EXPECT_EQ(PatchNode(PatchKind::kJson).status().code(), Code::kUnavailable);
  EXPECT_EQ(broken.connections(), 1);
  options_.max_attempts = 2;
  client_.reset();
  EXPECT_EQ(PatchNode(PatchKind::kMerge).status().code(), Code::kUnavailable);
  EXPECT_EQ(broken.connections(), 3);
}

}  // namespace
}  // namespace tessera::kube
