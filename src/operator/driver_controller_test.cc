// SPDX-License-Identifier: Apache-2.0
#include "src/operator/driver_controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "api/names.h"
#include "src/components/settings.h"
#include "src/formats/yaml.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::operators {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr char kOldDriver[] = "1.0";
constexpr char kNewDriver[] = "2.0";

// How a node reacts to the new driver.
enum class Reaction {
  kWorks,
  kWorksLate,
  kFails,
  kHangs,
  kGpusNeverReady,  // the driver's pod becomes ready, the node's GPUs do not
};

// Uses a fake API server, because tests choose which driver container fails, and a real API server
// has no kubelets here. The fixture acts as the DaemonSet controller, the kubelets and the agents.
class DriverControllerTest : public ::testing::Test, protected DriverController::Delegate {
 protected:
  DriverControllerTest() {
    server_.SetFault([this](const net::Request& request, const net::HttpServer::Reply& reply) {
      return AnswerPods(request, reply);
    });
  }
  void Start() {
    controller_ =
        std::make_unique<DriverController>(ClusterAccess{client_, events_, metrics_, nullptr},
                                           DriverController::Options{.ns = "ns",
                                                                     .step_delay = milliseconds(20),
                                                                     .poll = milliseconds(100),
                                                                     .retry = milliseconds(100)},
                                           static_cast<DriverController::Delegate&>(*this));
  }
  static std::vector<driver::FleetPool> WantedPools(const std::string& version,
                                                    const std::string& policy = "") {
    const std::string yaml = fmt::format(
        "driver: {{enabled: {}, version: '{}', upgradePolicy: {{maxParallelUpgrades: 0,"
        " maxUnavailable: '100%', restartTimeoutSeconds: 15, validationTimeoutSeconds: 15{}}}}}",
        version != "", version, policy);
    return driver::PoolsOf(*components::ParseSettings(ParseYaml(yaml).value())).value();
  }
  void OnDriversChanged() override {
    if (controller_ == nullptr) return;
    for (const Json& object : controller_->objects()) {
      if (object.StringAt("kind").value() != "ConfigMap") continue;
      server_.Put("/api/v1/namespaces/ns/configmaps/tessera-driver-revisions", object);
    }
    const auto report = controller_->report();
    if (publishes_ && report) controller_->OnPublished(*report);
  }

  // --- Nodes and pods.
  static std::string NodePath(const std::string& name) { return "/api/v1/nodes/" + name; }
  static std::string PodPath(const std::string& ns, const std::string& name) {
    return fmt::format("/api/v1/namespaces/{}/pods/{}", ns, name);
  }
  void AddNode(const std::string& name, Reaction reaction) {
    reactions_[name] = reaction;
    server_.Put(
        NodePath(name),
        ParseJson(fmt::format(R"({{"metadata":{{"name":"{}","uid":"{}","labels":)"
                              R"({{"nvidia.com/gpu.present":"true"}}}},"spec":{{}},"status":)"
                              R"({{"nodeInfo":{{"osImage":"Ubuntu 22.04.4 LTS","kernelVersion":)"
                              R"("5.15"}},"conditions":[{{"type":"Ready","status":"True"}},)"
                              R"({{"type":"GPUReady","status":"False",)"
                              R"("reason":"DriverNotReady"}}]}}}})",
                              name, name))
            .value());
  }
  void AddGpuPod(const std::string& name, const std::string& node) {
    server_.Put(
        PodPath("d", name),
        ParseJson(fmt::format(R"({{"metadata":{{"name":"{}","namespace":"d","ownerReferences":)"
                              R"([{{"kind":"ReplicaSet","controller":true}}]}},"spec":)"
                              R"({{"nodeName":"{}","containers":[{{"name":"c","resources":)"
                              R"({{"limits":{{"nvidia.com/gpu":"1"}}}}}}]}},"status":)"
                              R"({{"phase":"Running"}}}})",
                              name, node))
            .value());
  }
  // Answers evictions and lists of one node's pods, and rejects patches of `unwritable_`. Returns
  // whether it has answered.
  bool AnswerPods(const net::Request& request, const net::HttpServer::Reply& reply) {
    const std::string path(request.path());
    const std::string selector = std::string(request.Query("fieldSelector").value_or(""));
    const auto answer = [&](int code, const std::string& text) {
      net::Response response = net::TextResponse(code, text);
      response.headers.Set("Content-Type", "application/json");
      reply(response);
      return true;
    };
    if (path.ends_with("/eviction")) {
      const std::string pod = path.substr(0, path.rfind('/'));
      if (evictions_to_reject_ > 0 && pod.ends_with("guarded")) {
        --evictions_to_reject_;
        return answer(429,
                      R"({"kind":"Status","reason":"TooManyRequests","message":"its budget"})");
      }
      server_.Remove(pod);
      return answer(201, "{}");
    }
    if (request.method == "PATCH" && path == NodePath(unwritable_)) {
      return answer(500, R"({"kind":"Status","message":"no write"})");
    }
    if (path != "/api/v1/pods" || !selector.starts_with("spec.nodeName=")) return false;
    if (pod_lists_fail_) return answer(500, R"({"kind":"Status","message":"no pods"})");
    std::vector<Json> found;
    for (const std::string& name : gpu_pods_) {
      const Json* pod = server_.Find(PodPath("d", name));
      if (pod != nullptr && pod->Find("spec")->StringAt("nodeName").value() == selector.substr(14))
        found.push_back(*pod);
    }
    const size_t begin = std::stoul(std::string(request.Query("continue").value_or("0")));
    const size_t end = std::min(begin + pods_per_page_, found.size());
    Json items = Json::MakeArray();
    for (size_t i = begin; i < end; ++i) items.Append(found[i]);
    Json metadata = Json::MakeObject();
    if (end < found.size()) metadata.Set("continue", Json::String(std::to_string(end)));
    return answer(200, Json::MakeObject({{"metadata", metadata}, {"items", items}}).Serialize());
  }
  std::string LabelOf(const std::string& node, std::string_view key,
                      std::string_view map = "labels") const {
    const Json* labels = server_.Find(NodePath(node))->Find("metadata")->Find(map);
    return labels == nullptr ? "" : labels->StringAt(key).value_or("");
  }
  std::string StateOf(const std::string& node) const {
    return LabelOf(node, names::kLabelUpgradeState);
  }
  bool Cordoned(const std::string& node) const {
    return server_.Find(NodePath(node))->Find("spec")->BoolAt("unschedulable").value_or(false);
  }
  // The version of the driver that runs on a node; "": none.
  std::string DriverOn(const std::string& node) const {
    const Json* pod = server_.Find(PodPath("ns", "driver-" + node));
    return pod == nullptr ? "" : pod->Find("metadata")->StringAt("testVersion").value();
  }

  // --- What the cluster does.
  void Advance() {
    for (const auto& [name, reaction] : reactions_) AdvanceDriver(name, reaction);
  }
  const Json* DaemonSetFor(const std::string& node) const {
    const std::string pin = LabelOf(node, names::kLabelDriverRevision);
    for (const Json& object : controller_->objects()) {
      if (object.StringAt("kind").value() != "DaemonSet") continue;
      const Json& pod = *object.Find("spec")->Find("template")->Find("spec");
      const Json& selector = *pod.Find("nodeSelector");
      if (selector.StringAt(names::kLabelDriverPool).value_or("") !=
          LabelOf(node, names::kLabelDriverPool))
        continue;
      if (selector.StringAt(names::kLabelDriverRevision).value_or("") == pin) return &object;
    }
    return nullptr;
  }
  void AdvanceDriver(const std::string& node, Reaction reaction) {
    const std::string path = PodPath("ns", "driver-" + node);
    const Json* set = DaemonSetFor(node);
    const Json* pod = server_.Find(path);
    if (set == nullptr || LabelOf(node, "nvidia.com/gpu.deploy.driver") != "true") {
      if (pod != nullptr) server_.Remove(path);
      return;
    }
    if (pod == nullptr) return CreateDriverPod(node, *set);
    const std::string set_name = set->Find("metadata")->StringAt("name").value();
    if (pod->Find("metadata")->StringAt("testSet").value() != set_name) return server_.Remove(path);
    const bool is_new = DriverOn(node) == kNewDriver;
    const Duration age = std::chrono::steady_clock::now() - driver_created_[node];
    if (is_new && reaction == Reaction::kFails) return SetDriverStatus(node, false, 11);
    if (is_new && reaction == Reaction::kHangs) return;
    if (is_new && reaction == Reaction::kWorksLate && age < seconds(2)) return;
    SetDriverStatus(node, true, 0);
    if (!is_new || reaction != Reaction::kGpusNeverReady) SetGpusReady(node, true);
  }
  void CreateDriverPod(const std::string& node, const Json& set) {
    const Json& pods = *set.Find("spec")->Find("template");
    const std::string image =
        pods.Find("spec")->Find("containers")->items()[0].StringAt("image").value();
    Json labels = *pods.Find("metadata")->Find("labels");
    driver_created_[node] = std::chrono::steady_clock::now();
    SetGpusReady(node, false);
    server_.Put(PodPath("ns", "driver-" + node),
                Json::MakeObject(
                    {{"metadata",
                      Json::MakeObject(
                          {{"name", Json::String("driver-" + node)},
                           {"namespace", Json::String("ns")},
                           {"uid", Json::String(fmt::format("uid-{}", ++uids_))},
                           {"creationTimestamp", Json::String(Rfc3339(WallNow()))},
                           {"labels", std::move(labels)},
                           {"testSet", *set.Find("metadata")->Find("name")},
                           {"testVersion", Json::String(image.substr(image.rfind(':') + 1, 3))}})},
                     {"spec", Json::MakeObject({{"nodeName", Json::String(node)}})},
                     {"status", Json::MakeObject()}}));
  }
  void SetDriverStatus(const std::string& node, bool ready, int restarts) {
    const std::string path = PodPath("ns", "driver-" + node);
    Json pod = *server_.Find(path);
    const Json status =
        ParseJson(fmt::format(R"({{"conditions":[{{"type":"Ready","status":"{}"}}],)"
                              R"("containerStatuses":[{{"restartCount":{}}}]}})",
                              ready ? "True" : "False", restarts))
            .value();
    if (*pod.Find("status") == status) return;
    pod.Set("status", status);
    server_.Put(path, std::move(pod));
  }
  void SetGpusReady(const std::string& name, bool ready) {
    Json node = *server_.Find(NodePath(name));
    Json::Array& conditions = node.Find("status")->Find("conditions")->items();
    const std::string status = ready ? "True" : "False";
    if (conditions.size() > 1 && conditions[1].StringAt("status").value() == status) return;
    conditions.resize(1);
    conditions.push_back(Json::MakeObject(
        {{"type", Json::String(names::kConditionGpuReady)},
         {"status", Json::String(status)},
         {"reason", Json::String(ready ? names::kReasonGpusHealthy : names::kReasonDriverNotReady)},
         {"lastTransitionTime", Json::String(Rfc3339(WallNow()))}}));
    server_.Put(NodePath(name), std::move(node));
  }
  WallTime WallNow() { return runner_.clock().WallNow(); }
  bool RunUntil(const std::function<bool()>& done) {
    for (int i = 0; i < 3000; ++i) {
      Advance();
      if (done()) return true;
      runner_.RunFor(milliseconds(25));
    }
    return false;
  }
  bool AllAre(const std::string& state) {
    for (const auto& [name, unused] : reactions_) {
      if (StateOf(name) != state) return false;
    }
    return true;
  }
  void InstallOldDriver() {
    Start();
    controller_->SetPools(WantedPools(kOldDriver));
    ASSERT_TRUE(RunUntil([&] { return AllAre("upgrade-done"); }));
  }

  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  kube::Client client_{io_, runner_, server_.config(), {.max_attempts = 1}};
  std::string sent_events_;
  kube::EventRecorder events_{client_, {.component = "test"}, [](const Status&) {}};
  OperatorMetrics metrics_;
  std::map<std::string, Reaction> reactions_;  // by node
  std::vector<std::string> gpu_pods_;          // names of pods with GPUs
  std::map<std::string, std::chrono::steady_clock::time_point> driver_created_;
  int uids_ = 0;
  int evictions_to_reject_ = 0;  // of pod guarded, by its disruption budget
  bool pod_lists_fail_ = false;  // lists of one node's pods
  size_t pods_per_page_ = 500;
  bool publishes_ = true;
  std::string unwritable_;  // a node whose patches the server rejects
  std::unique_ptr<DriverController> controller_;
};

TEST_F(DriverControllerTest, UpgradesGoodNodesAndRollsBadOnesBack) {
  AddNode("well", Reaction::kWorks);
  AddNode("slow", Reaction::kWorksLate);
  AddNode("fails", Reaction::kFails);
  AddNode("hangs", Reaction::kHangs);
  AddNode("no-gpus", Reaction::kGpusNeverReady);
  InstallOldDriver();
  EXPECT_EQ(DriverOn("well"), kOldDriver);
  EXPECT_FALSE(Cordoned("well")) << "a first installation needs no cordon";

  AddGpuPod("plain", "well");
  AddGpuPod("guarded", "slow");
  gpu_pods_ = {"plain", "guarded"};
  evictions_to_reject_ = 2;
  server_.OnRequest([this](const net::Request& request) {
    if (request.path().ends_with("/events")) sent_events_ += request.body;
  });
  Json mine = *server_.Find(NodePath("well"));
  mine.Find("spec")->Set("unschedulable", Json::Bool(true));
  server_.Put(NodePath("well"), std::move(mine));
  controller_->SetPools(WantedPools(kNewDriver));
  ASSERT_TRUE(RunUntil([&] {
    return StateOf("well") == "upgrade-done" && StateOf("slow") == "upgrade-done" &&
           DriverOn("well") == kNewDriver && StateOf("fails") == "upgrade-failed" &&
           StateOf("hangs") == "upgrade-failed" && StateOf("no-gpus") == "upgrade-failed";
  }));
  EXPECT_EQ(DriverOn("slow"), kNewDriver);
  for (const char* node : {"fails", "hangs", "no-gpus"}) {
    EXPECT_EQ(DriverOn(node), kOldDriver) << node;
    EXPECT_FALSE(Cordoned(node)) << node;
    EXPECT_NE(LabelOf(node, names::kAnnotationUpgradeProblem, "annotations"), "") << node;
  }
  EXPECT_TRUE(Cordoned("well")) << "the administrator's cordon was removed";
  EXPECT_FALSE(Cordoned("slow"));
  EXPECT_EQ(server_.Find(PodPath("d", "guarded")), nullptr);
  EXPECT_EQ(metrics_.driver_evictions.values(),
            (std::map<std::string, uint64_t>{{"accepted", 2}, {"rejected", 2}}));
  EXPECT_THAT(sent_events_, HasSubstr("its budget (TooManyRequests, HTTP 429)"));
  const std::map<std::string, uint64_t> results = {{"done", 2}, {"failed", 3}, {"rolled_back", 3}};
  EXPECT_TRUE(RunUntil([&] { return metrics_.driver_upgrades.values() == results; }));
  ASSERT_TRUE(RunUntil([&] { return controller_->report()->problems.size() == 3; }));
  EXPECT_THAT(controller_->report()->problems[0].message,
              HasSubstr("goes on with its earlier driver"));
  // After the upgrade nothing is written.
  runner_.RunFor(seconds(1));
  int writes = -1;
  for (int i = 0; i < 10 && server_.writes() != writes; ++i) {
    writes = server_.writes();
    runner_.RunFor(seconds(1));
  }
  EXPECT_EQ(server_.writes(), writes);
}

TEST_F(DriverControllerTest, NoNodeBeginsBeforeThePlanIsPublished) {
  AddNode("a", Reaction::kWorks);
  InstallOldDriver();
  AddGpuPod("job", "a");
  gpu_pods_ = {"job"};
  publishes_ = false;
  controller_->SetPools(WantedPools(kNewDriver));
  ASSERT_TRUE(RunUntil([&] { return StateOf("a") == "upgrade-required"; }));
  RunUntil([&, end = WallNow() + milliseconds(500)] { return WallNow() > end; });
  EXPECT_EQ(StateOf("a"), "upgrade-required");
  ASSERT_TRUE(controller_->report());
  EXPECT_THAT(controller_->report()->pools.at(0).plan, HasSubstr("evicts d/job"));
  controller_->OnPublished(*controller_->report());
  EXPECT_TRUE(RunUntil([&] { return StateOf("a") == "upgrade-done"; }));
  EXPECT_EQ(DriverOn("a"), kNewDriver);
}

TEST_F(DriverControllerTest, ANewTermContinuesAnUpgradeAndCanRollItBack) {
  AddNode("a", Reaction::kHangs);
  InstallOldDriver();
  controller_->SetPools(WantedPools(kNewDriver));
  ASSERT_TRUE(RunUntil([&] { return StateOf("a") == "pod-restart-required"; }));
  controller_.reset();
  runner_.RunFor(milliseconds(100));
  Start();
  controller_->SetPools(WantedPools(kNewDriver));
  EXPECT_TRUE(RunUntil([&] { return StateOf("a") == "upgrade-failed"; }));
  EXPECT_EQ(DriverOn("a"), kOldDriver);
  EXPECT_FALSE(Cordoned("a"));
}

TEST_F(DriverControllerTest, AnUnwantedDriverStaysWhilePodsUseIt) {
  AddNode("a", Reaction::kWorks);
  InstallOldDriver();
  AddGpuPod("job", "a");
  gpu_pods_ = {"job"};
  controller_->Release(WantedPools(kOldDriver));
  ASSERT_TRUE(RunUntil([&] {
    const auto report = controller_->report();
    return report && !report->problems.empty() && report->problems[0].reason == "DriverInUse";
  }));
  EXPECT_FALSE(controller_->released());
  EXPECT_EQ(DriverOn("a"), kOldDriver);
  server_.Remove(PodPath("d", "job"));
  EXPECT_TRUE(RunUntil([&] { return controller_->released(); }));
  EXPECT_EQ(DriverOn("a"), "");
  EXPECT_EQ(StateOf("a") + LabelOf("a", names::kLabelDriverPool), "");
}

// Without this wait the reconciler would delete the DaemonSets of drivers that pods use.
TEST_F(DriverControllerTest, ObjectsAreUnknownUntilTheNodesWereReadWithoutError) {
  AddNode("a", Reaction::kWorks);
  InstallOldDriver();
  AddGpuPod("job", "a");
  gpu_pods_ = {"job"};
  controller_.reset();
  server_.Refuse("nodes", 500);
  Start();
  controller_->SetPools(WantedPools(""));
  ASSERT_TRUE(runner_.RunUntil([&] { return controller_->has_access_error(); }));
  runner_.RunFor(milliseconds(300));
  EXPECT_FALSE(controller_->ready());
  ASSERT_TRUE(controller_->report());
  EXPECT_THAT(controller_->report()->access_error,
              HasSubstr("cannot look for drivers of earlier settings on nodes"));
  server_.Allow("nodes");
  ASSERT_TRUE(runner_.RunUntil([&] { return controller_->ready(); }));
  EXPECT_FALSE(controller_->objects().empty()) << "pod job uses the driver";
}

TEST_F(DriverControllerTest, AllPagesOfThePodsOfANodeAreRead) {
  AddNode("a", Reaction::kWorks);
  InstallOldDriver();
  AddGpuPod("ended", "a");
  Json ended = *server_.Find(PodPath("d", "ended"));
  ended.Find("status")->Set("phase", Json::String("Succeeded"));
  server_.Put(PodPath("d", "ended"), std::move(ended));
  AddGpuPod("job", "a");
  gpu_pods_ = {"ended", "job"};
  pods_per_page_ = 1;
  controller_->Release(WantedPools(kOldDriver));
  EXPECT_TRUE(RunUntil([&] {
    const auto report = controller_->report();
    return report && !report->problems.empty() && report->problems[0].reason == "DriverInUse";
  }));
  EXPECT_EQ(DriverOn("a"), kOldDriver) << "pod job uses it";
}

TEST_F(DriverControllerTest, APodReadErrorEndsWhenNoPodsNeedToBeRead) {
  AddNode("a", Reaction::kWorks);
  InstallOldDriver();
  AddGpuPod("job", "a");
  gpu_pods_ = {"job"};
  pod_lists_fail_ = true;
  controller_->Release(WantedPools(kOldDriver));
  ASSERT_TRUE(RunUntil([&] { return controller_->has_access_error(); }));
  EXPECT_EQ(DriverOn("a"), kOldDriver);
  // With managed drivers again, no node needs its pods to be read.
  controller_->SetPools(WantedPools(kOldDriver));
  EXPECT_TRUE(RunUntil([&] { return !controller_->has_access_error(); }));
  EXPECT_EQ(DriverOn("a"), kOldDriver);
}

TEST_F(DriverControllerTest, TheErrorOfANodeStaysWhileOtherNodesAreWritten) {
  AddNode("a", Reaction::kWorks);
  AddNode("b", Reaction::kWorks);
  unwritable_ = "a";
  Start();
  controller_->SetPools(WantedPools(kOldDriver));
  ASSERT_TRUE(RunUntil([&] { return controller_->has_access_error(); }));
  EXPECT_THAT(controller_->report()->access_error, HasSubstr("cannot change nodes: node a: "));
  bool ended = false;
  ASSERT_TRUE(RunUntil([&] {
    ended |= !controller_->has_access_error();
    return StateOf("b") == "upgrade-done";
  }));
  EXPECT_FALSE(ended);
  unwritable_.clear();
  EXPECT_TRUE(RunUntil([&] { return AllAre("upgrade-done"); }));
  EXPECT_TRUE(RunUntil([&] { return !controller_->has_access_error(); }));
}

TEST_F(DriverControllerTest, TheErrorOfANodeEndsWhenItNeedsNoWrite) {
  AddNode("a", Reaction::kWorks);
  unwritable_ = "a";
  Start();
  controller_->SetPools(WantedPools(kOldDriver));
  ASSERT_TRUE(RunUntil([&] { return controller_->has_access_error(); }));
  controller_->SetPools(WantedPools(""));
  EXPECT_TRUE(RunUntil([&] { return !controller_->has_access_error(); }));
}

}  // namespace
}  // namespace tessera::operators
