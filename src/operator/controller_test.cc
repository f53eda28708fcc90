// SPDX-License-Identifier: Apache-2.0
#include "src/operator/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::operators {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr char kResource[] = "/apis/tessera.dev/v1alpha1/tesseras/tessera";
constexpr char kCleanup[] = "/apis/apps/v1/namespaces/ns/daemonsets/cleanup";
constexpr char kMaps[] = "/api/v1/namespaces/ns/configmaps/";

Json MapNamed(const std::string& name, const std::string& value) {
  return ParseJson(fmt::format(R"({{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{}",)"
                               R"("namespace":"ns","labels":{{"app.kubernetes.io/part-of":)"
                               R"("tessera"}}}},"data":{{"k":"{}"}}}})",
                               name, value))
      .value();
}

// Component a has object a1, component b has b1, and b2 unless the spec has "less".
Result<std::vector<components::Component>> RenderMaps(const Json& spec) {
  const std::string value = spec.is_object() ? spec.StringAt("value").value_or("") : "";
  if (value == "bad") return Error(Code::kInvalidArgument, "spec.value: invalid value bad: want x");
  std::vector<components::Component> out = {{"a", {MapNamed("a1", value)}},
                                            {"b", {MapNamed("b1", value)}}};
  if (spec.Find("less") == nullptr) out[1].objects.push_back(MapNamed("b2", value));
  return out;
}

net::Response Forbidden() {
  net::Response response = net::TextResponse(
      403, R"({"kind":"Status","message":"cannot patch configmaps","reason":"Forbidden"})");
  response.headers.Set("Content-Type", "application/json");
  return response;
}

// The answer of API Priority and Fairness.
net::Response Throttled() {
  net::Response response = net::TextResponse(429, "Too many requests, please try again later.\n");
  response.headers.Set("Retry-After", "1");
  return response;
}

// Uses a fake API server, because tests count writes and reject single requests. apiserver_test.cc
// tests the record of applied fields on a real API server.
class ControllerTest : public ::testing::Test {
 protected:
  ControllerTest() {
    server_.SetCollection("nodes", "Node", {});
    server_.SetCollection("pods", "Pod", {});
    server_.Put("/api/v1", ParseJson(R"({"resources":[{"name":"configmaps","namespaced":true,)"
                                     R"("kind":"ConfigMap"}]})")
                               .value());
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      const bool rejects = !rejected_path_end_.empty() && request.method != "GET" &&
                           std::string(request.path()).ends_with(rejected_path_end_);
      if (rejects) reply(throttles_ ? Throttled() : Forbidden());
      return rejects;
    });
  }
  void Start() {
    Rendering rendering{
        .render = RenderMaps, .definition = Json(), .one_of_each_kind = {MapNamed("a1", "")}};
    rendering.cleanup = [this](const Json&) { return cleanup_; };
    if (manages_drivers_) {
      rendering.pools = [](const Json&) { return std::vector<driver::FleetPool>(); };
    }
    controller_ = std::make_unique<Controller>(
        ClusterAccess{client_, events_, metrics_, nullptr}, std::move(rendering),
        ControllerOptions{.ns = "ns",
                          .cluster_policy_period = milliseconds(200),
                          .prune_delay = milliseconds(50),
                          .status_delay = milliseconds(20),
                          .cleanup_timeout = cleanup_timeout_});
  }
  // The deletion of the resource cleans engines with a DaemonSet.
  void DeleteWithCleanup() {
    server_.Put("/apis/apps/v1", ParseJson(R"({"resources":[{"name":"daemonsets",)"
                                           R"("namespaced":true,"kind":"DaemonSet"}]})")
                                     .value());
    cleanup_.push_back(ParseJson(R"({"apiVersion":"apps/v1","kind":"DaemonSet","metadata":)"
                                 R"({"name":"cleanup","namespace":"ns","labels":)"
                                 R"({"app.kubernetes.io/part-of":"tessera"}},"spec":{}})")
                           .value());
    PutResource("{}", 1);
    Start();
    ASSERT_TRUE(RunUntil([&] { return Ready(); }));
    const kube::ObjectRef ref{{"tessera.dev", "v1alpha1", "tesseras", false}, "tessera", "", ""};
    deletion_ = client_.Delete(ref, {}, [](const Result<Json>&) {});
    ASSERT_TRUE(RunUntil([&] { return server_.Find(kCleanup) != nullptr; }));
  }
  void PutResource(const std::string& spec, int generation, const std::string& annotations = "{}") {
    Json metadata =
        ParseJson(fmt::format(R"({{"name":"tessera","uid":"u1","generation":{},)"
                              R"("annotations":{},"finalizers":["tessera.dev/operator"]}})",
                              generation, annotations))
            .value();
    Json resource =
        Json::MakeObject({{"metadata", std::move(metadata)}, {"spec", ParseJson(spec).value()}});
    if (const Json* old = server_.Find(kResource)) {
      if (old->Find("status") != nullptr) resource.Set("status", *old->Find("status"));
    }
    server_.Put(kResource, std::move(resource));
  }
  std::string ValueOf(const std::string& name) const {
    const Json* object = server_.Find(kMaps + name);
    return object == nullptr ? "none" : object->Find("data")->StringAt("k").value_or("");
  }
  std::string ConditionText(std::string_view type, std::string_view key) const {
    const Json* resource = server_.Find(kResource);
    const Json* status = resource == nullptr ? nullptr : resource->Find("status");
    if (status == nullptr) return "";
    for (const Json& condition : status->Find("conditions")->items()) {
      if (condition.StringAt("type").value() == type) return condition.StringAt(key).value_or("");
    }
    return "";
  }
  bool Ready() const { return ConditionText("Ready", "status") == "True"; }
  std::string Values() const { return ValueOf("a1") + ValueOf("b1") + ValueOf("b2"); }
  // The number of objects that the controller has applied.
  uint64_t Applies() const {
    uint64_t applies = 0;
    for (const auto& [result, count] : metrics_.applies.values()) applies += count;
    return applies;
  }
  // Destroys the controller after `writes` more writes to the server, or when `done` returns true.
  // Returns whether `done` still returned false then.
  bool EndsAfter(int writes, const std::function<bool()>& done) {
    const int last = server_.writes() + writes;
    EXPECT_TRUE(RunUntil([&] { return server_.writes() >= last || done(); }));
    const bool unfinished = !done();
    controller_.reset();
    return unfinished;
  }
  bool RunUntil(const std::function<bool()>& done) {
    return runner_.RunUntil(done, std::chrono::seconds(20));
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  kube::Client client_{io_, runner_, server_.config(), {.max_attempts = 1}};
  kube::EventRecorder events_{client_, {.component = "test"}, [](const Status&) {}};
  OperatorMetrics metrics_;
  std::vector<Json> cleanup_;
  Duration cleanup_timeout_ = std::chrono::minutes(1);
  kube::Operation deletion_;
  std::string rejected_path_end_;  // the server rejects writes of paths with this end; "": of none
  bool throttles_ = false;         // rejects with 429 instead of 403
  bool manages_drivers_ = false;
  std::unique_ptr<Controller> controller_;
};

TEST_F(ControllerTest, AppliesWhatIsRenderedAndThenWritesNothing) {
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  EXPECT_EQ(Values(), "xxx");
  const Json& owner = server_.Find(std::string(kMaps) + "a1")
                          ->Find("metadata")
                          ->Find("ownerReferences")
                          ->items()[0];
  EXPECT_EQ(owner.StringAt("uid").value(), "u1");
  runner_.RunFor(milliseconds(500));  // Events of the changes
  // On a busy machine some Events come later.
  int writes = -1;
  for (int i = 0; i < 5 && server_.writes() != writes; ++i) {
    writes = server_.writes();
    runner_.RunFor(std::chrono::seconds(2));
  }
  EXPECT_EQ(server_.writes(), writes);
  EXPECT_TRUE(metrics_.repairs.values().empty());
  EXPECT_EQ(Applies(), 3u);
  // The next leader finds its status as it is.
  const uint64_t statuses = metrics_.status_writes.value();
  controller_.reset();
  Start();
  ASSERT_TRUE(RunUntil([&] { return controller_->status().has_value(); }));
  runner_.RunFor(milliseconds(500));
  EXPECT_EQ(metrics_.status_writes.value(), statuses);
}

TEST_F(ControllerTest, AddsItsFinalizerBeforeTheFirstObject) {
  server_.Put(
      kResource,
      ParseJson(R"({"metadata":{"name":"tessera","uid":"u1","generation":1},"spec":{}})").value());
  server_.OnRequest([this](const net::Request& request) {
    if (request.method == "PATCH" && std::string(request.path()).starts_with(kMaps)) {
      EXPECT_NE(server_.Find(kResource)->Find("metadata")->Find("finalizers"), nullptr);
    }
  });
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
}

TEST_F(ControllerTest, RestoresEditedAndDeletedObjects) {
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  server_.Put(std::string(kMaps) + "a1", MapNamed("a1", "edited"));
  ASSERT_TRUE(RunUntil([&] { return ValueOf("a1") == "x"; }));
  server_.Remove(std::string(kMaps) + "b2");
  ASSERT_TRUE(RunUntil([&] { return ValueOf("b2") == "x"; }));
  ASSERT_TRUE(RunUntil([&] { return metrics_.repairs.values().size() == 2; }));
  EXPECT_EQ(metrics_.repairs.values(), (std::map<std::string, uint64_t>{{"a", 1}, {"b", 1}}));
}

TEST_F(ControllerTest, AClientThatEditsAnObjectAgainAndAgainIsReported) {
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  for (int edit = 1; edit <= 5; ++edit) {
    EXPECT_NE(ConditionText("Degraded", "reason"), "ObjectContested") << edit;
    server_.Put(std::string(kMaps) + "a1", MapNamed("a1", fmt::format("edit {}", edit)));
    ASSERT_TRUE(RunUntil([&] { return ValueOf("a1") == "x"; })) << edit;
  }
  ASSERT_TRUE(RunUntil([&] { return ConditionText("Degraded", "reason") == "ObjectContested"; }));
  EXPECT_THAT(ConditionText("Degraded", "message"),
              HasSubstr("a: another client changes ConfigMap a1 again and again"));
  EXPECT_FALSE(Ready());
}

TEST_F(ControllerTest, AComponentThatFailsDelaysNoOtherAndRecovers) {
  rejected_path_end_ = "/b1";
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return ConditionText("Degraded", "reason") == "Forbidden"; }));
  EXPECT_EQ(Values(), "xnonex");
  EXPECT_THAT(ConditionText("Degraded", "message"),
              ::testing::AllOf(HasSubstr("b: cannot apply ConfigMap b1"),
                               HasSubstr("cannot patch configmaps"), HasSubstr("ClusterRole")));
  rejected_path_end_.clear();
  EXPECT_TRUE(RunUntil([&] { return Ready(); }));
}

TEST_F(ControllerTest, AServerThatThrottlesIsNamedUntilItAnswers) {
  rejected_path_end_ = "/b1";
  throttles_ = true;
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(
      RunUntil([&] { return ConditionText("Degraded", "reason") == "APIServerThrottles"; }));
  EXPECT_THAT(ConditionText("Degraded", "message"),
              ::testing::AllOf(HasSubstr("b: cannot apply ConfigMap b1"), HasSubstr("429")));
  EXPECT_EQ(Values(), "xnonex");
  rejected_path_end_.clear();
  EXPECT_TRUE(RunUntil([&] { return Ready() && Values() == "xxx"; }));
}

TEST_F(ControllerTest, AnInvalidSpecKeepsTheObjectsOfTheLastValidOne) {
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  PutResource(R"({"value":"bad"})", 2);
  ASSERT_TRUE(RunUntil([&] { return ConditionText("Degraded", "reason") == "InvalidSpec"; }));
  EXPECT_THAT(ConditionText("Degraded", "message"), HasSubstr("spec.value: invalid value bad"));
  server_.Remove(std::string(kMaps) + "a1");
  EXPECT_TRUE(RunUntil([&] { return ValueOf("a1") == "x"; }));
  PutResource(R"({"value":"y"})", 3);
  EXPECT_TRUE(RunUntil([&] { return Ready() && ValueOf("b2") == "y"; }));
}

// The API server drops the spec if another client has broken the definition of the resource.
TEST_F(ControllerTest, AResourceThatLostItsSpecKeepsItsObjectsAndCanBeDeleted) {
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  Json resource = *server_.Find(kResource);
  resource.Erase("spec");
  server_.Put(kResource, std::move(resource));
  ASSERT_TRUE(RunUntil([&] { return ConditionText("Degraded", "reason") == "InvalidSpec"; }));
  EXPECT_THAT(ConditionText("Degraded", "message"), HasSubstr("spec is missing"));
  EXPECT_EQ(Values(), "xxx");
  const kube::ObjectRef ref{{"tessera.dev", "v1alpha1", "tesseras", false}, "tessera", "", ""};
  deletion_ = client_.Delete(ref, {}, [](const Result<Json>&) {});
  EXPECT_TRUE(RunUntil([&] { return server_.Find(kResource) == nullptr; }));
}

TEST_F(ControllerTest, DeletesWhatIsNoLongerRenderedAndNothingElse) {
  PutResource("{}", 1);
  server_.Put(std::string(kMaps) + "foreign", MapNamed("foreign", "f"));
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  PutResource(R"({"less":true})", 2);
  EXPECT_TRUE(RunUntil([&] { return ValueOf("b2") == "none"; }));
  runner_.RunFor(milliseconds(300));
  EXPECT_EQ(ValueOf("foreign"), "f");
  EXPECT_EQ(ValueOf("b1"), "");
}

TEST_F(ControllerTest, ANewTermContinuesWhereTheLastOneEnded) {
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return ValueOf("a1") == "x"; }));
  controller_.reset();
  PutResource(R"({"value":"y","less":true})", 2);
  Start();
  EXPECT_TRUE(RunUntil([&] { return Ready() && ValueOf("b2") == "none"; }));
  EXPECT_EQ(ValueOf("a1"), "y");
}

// The first controller ends after its first write, in the next iteration after its second, and so
// on. A second controller must always reach the same objects.
TEST_F(ControllerTest, AnInstallationInterruptedAfterAnyWriteIsFinishedByTheNextTerm) {
  int writes = 0;
  for (bool ends = true; ends;) {
    for (const auto* name : {"a1", "b1", "b2"}) server_.Remove(std::string(kMaps) + name);
    server_.Remove(kResource);
    PutResource(R"({"value":"x"})", ++writes);
    Start();
    ends = EndsAfter(writes, [&] { return Ready(); });
    Start();
    ASSERT_TRUE(RunUntil([&] { return Ready() && Values() == "xxx"; })) << writes;
    controller_.reset();
  }
  EXPECT_GE(writes, 4) << "three objects and a status";
}

TEST_F(ControllerTest, ARemovalInterruptedAfterAnyWriteIsFinishedByTheNextTerm) {
  const kube::ObjectRef ref{{"tessera.dev", "v1alpha1", "tesseras", false}, "tessera", "", ""};
  int writes = 0;
  for (bool ends = true; ends;) {
    PutResource(R"({"value":"x"})", ++writes);
    Start();
    ASSERT_TRUE(RunUntil([&] { return Ready() && Values() == "xxx"; }));
    bool delete_answered = false;
    const kube::Operation operation =
        client_.Delete(ref, {}, [&](const Result<Json>&) { delete_answered = true; });
    ASSERT_TRUE(RunUntil([&] { return delete_answered; }));
    ends = EndsAfter(writes, [&] { return server_.Find(kResource) == nullptr; });
    Start();
    ASSERT_TRUE(RunUntil([&] { return server_.Find(kResource) == nullptr; })) << writes;
    EXPECT_EQ(Values(), "nonenonenone") << writes;
    controller_.reset();
  }
  EXPECT_GE(writes, 4) << "three objects and the finalizer";
}

// The list was made before the objects were applied, but arrives afterwards. Then the watch
// delivers the objects.
TEST_F(ControllerTest, AnObjectThatALateListLacksIsNotDeleted) {
  std::vector<net::HttpServer::Reply> lists;
  server_.SetFault([&](const net::Request& request, const net::HttpServer::Reply& reply) {
    const bool is_list = std::string(request.path()).ends_with("/configmaps") &&
                         request.Query("sendInitialEvents").has_value();
    if (is_list) lists.push_back(reply);
    return is_list;
  });
  PutResource("{}", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return ValueOf("b2") != "none" && !lists.empty(); }));
  // The controller has the answers to all applies.
  ASSERT_TRUE(RunUntil([&] { return Applies() >= 3; }));
  const std::string end =
      R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":)"
      R"({"k8s.io/initial-events-end":"true"}}}})";
  for (const auto& reply : lists) {
    reply({.status = 200, .headers = {{"Content-Type", "application/json"}}, .body = end + "\n"});
  }
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  EXPECT_TRUE(metrics_.repairs.values().empty());
}

TEST_F(ControllerTest, IsNotReadyBeforeTheNodesWereCheckedForDrivers) {
  manages_drivers_ = true;
  std::vector<net::HttpServer::Reply> checks;
  server_.SetFault([&](const net::Request& request, const net::HttpServer::Reply& reply) {
    const bool is_check = request.path() == "/api/v1/nodes" && request.Query("limit") == "1";
    if (is_check) checks.push_back(reply);
    return is_check;
  });
  PutResource(R"({"value":"x"})", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return !checks.empty(); }));
  runner_.RunFor(milliseconds(300));
  EXPECT_EQ(ConditionText("Ready", "status"), "");
  EXPECT_EQ(Values(), "nonenonenone");
  const auto answer = [](int status, const std::string& text) {
    net::Response response = net::TextResponse(status, text);
    response.headers.Set("Content-Type", "application/json");
    return response;
  };
  checks.back()(answer(200, R"({"metadata":{"resourceVersion":"1"},"items":[]})"));
  EXPECT_TRUE(RunUntil([&] { return Ready() && Values() == "xxx"; }));
}

TEST_F(ControllerTest, TheObjectsAreDeletedBeforeTheResource) {
  PutResource("{}", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  std::optional<Status> deleted;
  const kube::ObjectRef ref{{"tessera.dev", "v1alpha1", "tesseras", false}, "tessera", "", ""};
  const kube::Operation operation =
      client_.Delete(ref, {}, [&](const Result<Json>& answer) { deleted = answer.status(); });
  ASSERT_TRUE(RunUntil([&] { return server_.Find(kResource) == nullptr; }));
  EXPECT_EQ(Values(), "nonenonenone");
}

// A scheduler that still has its rights would create its Lease again.
TEST_F(ControllerTest, ObjectsThatSchedulersCreateAreDeletedLast) {
  const std::string lease = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/tessera-scheduler";
  const std::string slice =
      "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices/tessera-scheduler";
  const std::string foreign = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/other";
  for (const std::string& path : {lease, slice, foreign}) {
    server_.Put(path, ParseJson(R"({"metadata":{"name":"x"}})").value());
  }
  PutResource("{}", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  rejected_path_end_ = "/leases/tessera-scheduler";
  server_.OnRequest([&](const net::Request& request) {
    if (request.method != "DELETE" || request.path() != slice) return;
    EXPECT_EQ(Values(), "nonenonenone");
  });
  const kube::ObjectRef ref{{"tessera.dev", "v1alpha1", "tesseras", false}, "tessera", "", ""};
  deletion_ = client_.Delete(ref, {}, [](const Result<Json>&) {});
  ASSERT_TRUE(RunUntil([&] {
    return ConditionText("Degraded", "message")
               .find("cannot delete the Lease and the EndpointSlice of the schedulers") !=
           std::string::npos;
  }));
  EXPECT_EQ(server_.Find(slice), nullptr);
  rejected_path_end_.clear();
  EXPECT_TRUE(RunUntil([&] { return server_.Find(kResource) == nullptr; }));
  EXPECT_EQ(server_.Find(lease), nullptr);
  EXPECT_NE(server_.Find(foreign), nullptr);
}

TEST_F(ControllerTest, EnginesAreCleanedBeforeTheOtherObjectsAreDeleted) {
  DeleteWithCleanup();
  runner_.RunFor(milliseconds(500));
  ASSERT_NE(server_.Find(kResource), nullptr) << "the cleanup is not ready yet";
  EXPECT_EQ(ValueOf("a1"), "") << "objects without pods go last";
  Json ready = *server_.Find(kCleanup);
  ready.Set("status", ParseJson(R"({"desiredNumberScheduled":1,"updatedNumberScheduled":1,)"
                                R"("numberAvailable":1,"observedGeneration":1})")
                          .value());
  server_.Put(kCleanup, std::move(ready));
  EXPECT_TRUE(RunUntil([&] { return server_.Find(kResource) == nullptr; }));
  EXPECT_EQ(server_.Find(kCleanup), nullptr);
}

TEST_F(ControllerTest, ANodeThatCannotBeCleanedDelaysTheDeletionUntilTheTimeout) {
  cleanup_timeout_ = milliseconds(2000);  // enough for the DaemonSet to be created
  DeleteWithCleanup();
  EXPECT_TRUE(RunUntil([&] { return server_.Find(kResource) == nullptr; }));
  EXPECT_EQ(server_.Find(kCleanup), nullptr);
}

TEST_F(ControllerTest, AClusterPolicyKeepsAgentsOffUnlessTheResourceAdoptsItsNodes) {
  PutResource("{}", 1);
  server_.Put("/apis/nvidia.com/v1/clusterpolicies/cluster-policy",
              ParseJson(R"({"metadata":{"name":"cluster-policy"}})").value());
  Start();
  ASSERT_TRUE(RunUntil([&] { return ConditionText("NVIDIAOperatorPresent", "status") == "True"; }));
  EXPECT_THAT(ConditionText("NVIDIAOperatorPresent", "message"),
              HasSubstr("ClusterPolicy cluster-policy"));
  PutResource("{}", 1, R"({"tessera.dev/adopt-nvidia-nodes":"true"})");
  EXPECT_TRUE(
      RunUntil([&] { return ConditionText("NVIDIAOperatorPresent", "status") == "False"; }));
}

TEST_F(ControllerTest, AnEditedStatusIsRestored) {
  PutResource("{}", 1);
  Start();
  ASSERT_TRUE(RunUntil([&] { return Ready(); }));
  Json edited = *server_.Find(kResource);
  edited.Erase("status");
  server_.Put(kResource, std::move(edited));
  EXPECT_TRUE(RunUntil([&] { return Ready(); }));
}

}  // namespace
}  // namespace tessera::operators
