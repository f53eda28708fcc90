// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_publisher.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "src/agent/node/node_events.h"
#include "src/device/node_annotation.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

device::NodeInventory Node(int gpus, const std::string& model = "NVIDIA A100-SXM4-40GB") {
  device::NodeInventory inventory;
  for (int i = 0; i < gpus; ++i) {
    inventory.gpus.push_back({.uuid = "GPU-" + std::to_string(i),
                              .index = i,
                              .minor = i,
                              .model = model,
                              .memory = MiB(40960)});
  }
  inventory.links = device::LinkMatrix(gpus);
  return inventory;
}

NodeHardware OneGpuOnTheBus() {
  return {.nvidia_devices = {{.bus_id = "0000:07:00.0", .pci_class = "0x030200"}}};
}

class FakeNodeApi : public NodeApi {
 public:
  void Get(Done done) override {
    ++gets;
    runner->Post([this, done] { done(status.ok() ? Result<Json>(node) : status); });
  }
  void MergePatch(const Json& patch, Done done) override {
    ++patches;
    last_patch = patch;
    runner->Post([this, done, patch] {
      if (!status.ok()) return done(status);
      for (const auto& [part, changes] : patch.Find("metadata")->members()) {
        Json& object = **node.Find("metadata")->EnsureObject(part);
        for (const auto& [name, value] : changes.members()) {
          value.is_null() ? object.Erase(name) : (void)object.Set(name, value);
        }
      }
      done(node);
    });
  }
  void PatchStatus(const Json& patch, Done done) override {
    ++status_patches;
    runner->Post([this, done, patch] {
      if (!status_patch_result.ok()) return done(status_patch_result);
      // There is one condition, and one resource.
      Json all = node.Find("status") != nullptr ? *node.Find("status") : Json::MakeObject();
      for (const auto& [part, value] : patch.Find("status")->members()) all.Set(part, value);
      node.Set("status", std::move(all));
      done(node);
    });
  }
  // Removes all taints; the patches of these tests do that.
  void JsonPatch(const Json& patch, Done done) override {
    taint_patches.push_back(patch.Serialize());
    condition_at_taint_patch = Condition();
    runner->Post([this, done] {
      if (!taint_status.ok()) return done(std::exchange(taint_status, Status::Ok()));
      node.Find("spec")->Erase("taints");
      done(node);
    });
  }
  void CreateEvent(const Json& event, Done done) override {
    runner->Post([this, done, event] {
      if (!event_status.ok()) return done(event_status);
      events.push_back(*event.StringAt("reason"));
      names.insert(*event.Find("metadata")->StringAt("name"));
      done(event);
    });
  }
  // "False GPUUnhealthy"; "-" without a condition.
  std::string Condition() const {
    const Json* status_json = node.Find("status");
    if (status_json == nullptr) return "-";
    const Json& condition = status_json->Find("conditions")->items().at(0);
    return *condition.StringAt("status") + " " + *condition.StringAt("reason");
  }
  std::string Label(const std::string& name) const { return AnyLabel("nvidia.com/gpu." + name); }
  std::string AnyLabel(const std::string& name) const {
    const Json* labels = node.Find("metadata")->Find("labels");
    const Json* value = labels != nullptr ? labels->Find(name) : nullptr;
    return value != nullptr ? value->string_value() : "-";
  }
  // Sets the manager of the label, as the API server records it.
  void Own(const std::string& label, const std::string& manager) {
    node.Find("metadata")
        ->Set(
            "managedFields",
            *ParseJson(fmt::format(
                R"([{{"manager":"kubelet","fieldsV1":{{"f:status":{{}}}}}},)"
                R"({{"manager":"{}","fieldsV1":{{"f:metadata":{{"f:labels":{{"f:{}":{{}}}}}}}}}}])",
                manager, label)));
  }

  FakeTaskRunner* runner = nullptr;
  Json node = *ParseJson(R"({"metadata":{"name":"n","labels":{"zone":"a"}}})");
  Json last_patch;
  Status status;
  Status status_patch_result;
  Status event_status;
  Status taint_status;  // of the next patch
  std::vector<std::string> taint_patches;
  std::string condition_at_taint_patch;
  int gets = 0;
  int patches = 0;
  int status_patches = 0;
  std::vector<std::string> events;
  std::set<std::string> names;  // of events
};

device::NodeInventory Broken() {
  device::NodeInventory broken;
  broken.problem = "libnvidia-ml.so.1 is not in /run/nvidia/driver";
  return broken;
}

device::NodeInventory WithUnhealthy(int gpus, int which) {
  auto unhealthy = Node(gpus);
  unhealthy.gpus[static_cast<size_t>(which)].health = device::Health::Unhealthy("XID 79");
  return unhealthy;
}

class NodePublisherTest : public ::testing::Test {
 protected:
  NodePublisherTest() { api_.runner = &runner_; }
  void Publish(const device::NodeInventory& inventory) {
    publisher_.Publish(inventory);
    runner_.RunUntilIdle();
  }

  FakeTaskRunner runner_;
  FakeNodeApi api_;
  NodeMetrics metrics_;
  NodeHardware hardware_;
  NodePublisher publisher_{&runner_, &api_, &metrics_, [this] { return hardware_; }};
};

TEST_F(NodePublisherTest, WritesLabelsAsGpuFeatureDiscoveryDoes) {
  Publish(Node(8));
  EXPECT_EQ(api_.Label("present"), "true");
  EXPECT_EQ(api_.Label("count"), "8");
  EXPECT_EQ(api_.Label("product"), "NVIDIA-A100-SXM4-40GB");
  EXPECT_EQ(api_.Label("memory"), "40960");
  EXPECT_EQ(*api_.node.Find("metadata")->Find("labels")->StringAt("zone"), "a");
  const Json& annotations = *api_.node.Find("metadata")->Find("annotations");
  EXPECT_EQ(*device::DecodeNodeInventory(*annotations.StringAt("tessera.dev/devices")), Node(8));
}

TEST_F(NodePublisherTest, PublishesTheGpuCountAndRestoresIt) {
  Publish(Node(8));
  const auto count = [&](std::string_view part) {
    return *api_.node.Find("status")->Find(part)->StringAt("aliyun.com/gpu-count");
  };
  EXPECT_EQ(count("capacity"), "8");
  EXPECT_EQ(count("allocatable"), "8");
  (*api_.node.EnsureObject("status"))
      ->Set("capacity", *ParseJson(R"({"aliyun.com/gpu-count":"0","cpu":"4"})"));
  publisher_.Recheck();
  runner_.RunUntilIdle();
  EXPECT_EQ(count("capacity"), "8");
  Publish(Broken());
  EXPECT_EQ(count("capacity"), "8") << "without a driver the count is unknown";
  Publish(Node(7));
  EXPECT_EQ(count("capacity"), "7");
}

TEST_F(NodePublisherTest, RestoresAnOverwrittenAnnotation) {
  Publish(Node(8));
  Json* annotations = *(*api_.node.EnsureObject("metadata"))->EnsureObject("annotations");
  annotations->Set("tessera.dev/devices", Json::String("{bad"));
  publisher_.Recheck();
  runner_.RunUntilIdle();
  annotations = *(*api_.node.EnsureObject("metadata"))->EnsureObject("annotations");
  EXPECT_EQ(*device::DecodeNodeInventory(*annotations->StringAt("tessera.dev/devices")), Node(8));
}

TEST_F(NodePublisherTest, WritesOnChangeOnly) {
  Publish(Node(8));
  Publish(Node(8));
  runner_.AdvanceTimeAndRun(24h);
  EXPECT_EQ(api_.patches, 1);
  EXPECT_EQ(api_.status_patches, 1);
  EXPECT_EQ(api_.gets, 1);
}

TEST_F(NodePublisherTest, WritesNothingIfTheNodeIsUpToDate) {
  Publish(Node(8));
  NodePublisher after_restart(&runner_, &api_, &metrics_, OneGpuOnTheBus);
  after_restart.Publish(Node(8));
  runner_.RunUntilIdle();
  EXPECT_EQ(api_.patches, 1);
  EXPECT_EQ(api_.status_patches, 1);
}

TEST_F(NodePublisherTest, CallsOnNodeBeforeEachWrite) {
  std::string zone;
  publisher_.SetOnNode(
      [&](const Json& node) { zone = LabelOf(node, "zone") + LabelOf(node, "none"); });
  Publish(Node(1));
  EXPECT_EQ(zone, "a");
}

TEST_F(NodePublisherTest, ThePatchContainsOnlyChanges) {
  Publish(Node(8));
  Publish(WithUnhealthy(8, 3));
  EXPECT_EQ(api_.patches, 2);
  EXPECT_EQ(api_.last_patch.Find("metadata")->Find("labels"), nullptr);
}

TEST_F(NodePublisherTest, RetriesWithGrowingPauses) {
  api_.status = Status(Code::kUnavailable, "connection refused");
  Publish(Node(8));
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_GT(api_.gets, 25);
  EXPECT_LT(api_.gets, 40);
  api_.status = Status::Ok();
  runner_.AdvanceTimeAndRun(NodePublisher::kLongestPause);
  EXPECT_EQ(api_.Label("count"), "8");
}

TEST_F(NodePublisherTest, LatestOfSeveralChangesWins) {
  publisher_.Publish(Node(8));
  publisher_.Publish(Node(7));
  publisher_.Publish(Node(6));
  runner_.RunUntilIdle();
  EXPECT_EQ(api_.Label("count"), "6");
}

TEST_F(NodePublisherTest, LabelsStayIfTheDriverFailsWhileGpusAreOnTheBus) {
  hardware_ = OneGpuOnTheBus();
  Publish(Node(8));
  Publish(Broken());
  EXPECT_EQ(api_.Label("present"), "true");
  EXPECT_EQ(api_.Label("count"), "8");
}

TEST_F(NodePublisherTest, AGpuOnTheBusIsLabeledAsPresentWithoutADriver) {
  hardware_ = OneGpuOnTheBus();
  Publish(Broken());
  EXPECT_EQ(api_.Label("present"), "true");
  EXPECT_EQ(api_.Label("count"), "-");
}

TEST_F(NodePublisherTest, LabelsGoWithDriverAndGpusAndComeBackWithThem) {
  Publish(Node(8));
  Publish(Broken());
  for (const char* name : {"present", "count", "product", "memory"}) {
    EXPECT_EQ(api_.Label(name), "-") << name;
  }
  EXPECT_EQ(api_.Condition(), "False DriverNotReady");
  Publish(Node(4));
  EXPECT_EQ(api_.Label("present"), "true");
  EXPECT_EQ(api_.Label("count"), "4");
}

TEST_F(NodePublisherTest, RemovesLabelsIfTheDriverReportsNoGpu) {
  Publish(Node(8));
  Publish(Node(0));
  EXPECT_EQ(api_.Label("present"), "-");
  EXPECT_EQ(api_.Label("count"), "-");
}

TEST_F(NodePublisherTest, PublishesGpuManagersModelLabelWhileThereAreGpus) {
  const std::string label = "gaia.tencent.com/gpu-model";
  Publish(Node(8));
  EXPECT_EQ(api_.AnyLabel(label), "A100");
  api_.Own(label, "tessera-agent");
  Publish(Node(8, "Tesla M40 24GB"));
  EXPECT_EQ(api_.AnyLabel(label), "M40");
  Publish(Node(0));
  EXPECT_EQ(api_.AnyLabel(label), "-");
}

TEST_F(NodePublisherTest, KeepsTheModelLabelOfAnotherWriter) {
  const std::string label = "gaia.tencent.com/gpu-model";
  (*api_.node.Find("metadata")->EnsureObject("labels"))->Set(label, Json::String("fast"));
  Publish(Node(8));
  EXPECT_EQ(api_.AnyLabel(label), "fast") << "the owner is unknown";
  api_.Own(label, "kubectl-label");
  Publish(Node(7));
  EXPECT_EQ(api_.AnyLabel(label), "fast");
  Publish(Node(0));
  EXPECT_EQ(api_.AnyLabel(label), "fast");
  EXPECT_EQ(api_.Label("count"), "-");
  // The other writer removes its label.
  (*api_.node.Find("metadata")->EnsureObject("labels"))->Erase(label);
  Publish(Node(8));
  EXPECT_EQ(api_.AnyLabel(label), "A100");
}

TEST_F(NodePublisherTest, ConditionAndEventsFollowTheHealthOfAGpu) {
  Publish(Node(8));
  EXPECT_EQ(api_.Condition(), "True GPUsHealthy");
  EXPECT_TRUE(api_.events.empty());
  Publish(WithUnhealthy(8, 3));
  EXPECT_EQ(api_.Condition(), "False GPUUnhealthy");
  Publish(Node(8));
  EXPECT_EQ(api_.Condition(), "True GPUsHealthy");
  EXPECT_EQ(api_.events, (std::vector<std::string>{"GPUUnhealthy", "GPUHealthy"}));
}

TEST_F(NodePublisherTest, ConditionAndEventsFollowTheDriver) {
  Publish(Node(8));
  Publish(Broken());
  EXPECT_EQ(api_.Condition(), "False DriverNotReady");
  Publish(Node(8));
  EXPECT_EQ(api_.Condition(), "True GPUsHealthy");
  EXPECT_EQ(api_.events, (std::vector<std::string>{"DriverNotReady", "DriverReady"}));
}

TEST_F(NodePublisherTest, ANodeThatNeverHadAGpuGetsNoCondition) {
  Publish(Broken());
  EXPECT_EQ(api_.Condition(), "-");
  EXPECT_TRUE(api_.events.empty());
}

TEST_F(NodePublisherTest, ReportsAGpuOnTheBusWithoutADriver) {
  hardware_ = OneGpuOnTheBus();
  Publish(Broken());
  EXPECT_EQ(api_.Condition(), "False DriverNotReady");
  EXPECT_EQ(api_.events, std::vector<std::string>{"DriverNotReady"});
}

TEST_F(NodePublisherTest, ARestartedAgentRecordsMissedChangesOnce) {
  Publish(WithUnhealthy(8, 3));
  NodePublisher after_restart(&runner_, &api_, &metrics_, OneGpuOnTheBus);
  auto now = WithUnhealthy(8, 3);
  now.gpus[5].health = device::Health::Unhealthy("XID 48");
  after_restart.Publish(now);
  runner_.RunUntilIdle();
  EXPECT_EQ(api_.events, (std::vector<std::string>{"GPUUnhealthy", "GPUUnhealthy"}));
}

TEST_F(NodePublisherTest, EventsWaitUntilTheConditionCanBeWritten) {
  Publish(Node(8));
  api_.status_patch_result = Status(Code::kPermissionDenied, "nodes/status");
  Publish(WithUnhealthy(8, 3));
  EXPECT_TRUE(api_.events.empty());
  api_.status_patch_result = Status::Ok();
  runner_.AdvanceTimeAndRun(NodePublisher::kLongestPause);
  EXPECT_EQ(api_.Condition(), "False GPUUnhealthy");
  EXPECT_EQ(api_.events, std::vector<std::string>{"GPUUnhealthy"});
}

TEST_F(NodePublisherTest, AStateThatWasWrittenInPartIsUndoneWhenTheEarlierStateReturns) {
  Publish(Node(8));
  api_.status_patch_result = Status(Code::kUnavailable, "nodes/status");
  Publish(WithUnhealthy(8, 3));
  ASSERT_EQ(InventoryOn(api_.node)->healthy_count(), 7u);
  api_.status_patch_result = Status::Ok();
  Publish(Node(8));
  runner_.AdvanceTimeAndRun(NodePublisher::kLongestPause);
  EXPECT_EQ(InventoryOn(api_.node)->healthy_count(), 8u);
  EXPECT_EQ(api_.Condition(), "True GPUsHealthy");
}

TEST_F(NodePublisherTest, ARejectedEventDelaysNothing) {
  api_.event_status = Status(Code::kPermissionDenied, "events");
  Publish(WithUnhealthy(8, 3));
  EXPECT_EQ(api_.Condition(), "False GPUUnhealthy");
  runner_.AdvanceTimeAndRun(1h);
  EXPECT_EQ(api_.gets, 1);
}

TEST_F(NodePublisherTest, AFlappingGpuDoesNotFloodTheServerWithEvents) {
  for (int i = 0; i < 100; ++i) {
    Publish(WithUnhealthy(8, 0));
    Publish(Node(8));
  }
  EXPECT_EQ(api_.events.size(), size_t{NodePublisher::kMaxEventBurst});
  EXPECT_EQ(api_.names.size(), api_.events.size());
  runner_.AdvanceTimeAndRun(NodePublisher::kEventInterval);
  Publish(WithUnhealthy(8, 0));
  EXPECT_EQ(api_.events.size(), size_t{NodePublisher::kMaxEventBurst} + 1);
}

TEST(NodeStateTest, ANodeWithSeveralModelsGetsNoModelLabelForQuotas) {
  auto mixed = Node(2, "Tesla T4");
  const auto more = Node(3, "NVIDIA H100");
  mixed.gpus.insert(mixed.gpus.end(), more.gpus.begin(), more.gpus.end());
  const PublishedNode state = StateOf(mixed, OneGpuOnTheBus());
  EXPECT_EQ(state.labels.at("nvidia.com/gpu.product"), "NVIDIA-H100");
  EXPECT_EQ(state.labels.at("gaia.tencent.com/gpu-model"), std::nullopt)
      << "quotas would count all GPUs as one of the models";
}

class StartupTaintPublisherTest : public NodePublisherTest {
 protected:
  StartupTaintPublisherTest() {
    api_.node.Set("spec", *ParseJson(R"({"taints":[{"key":"k","effect":"NoSchedule"}]})"));
    publisher_.SetStartupTaints({"k"});
  }
  void Publish(const device::NodeInventory& inventory, const NodeFindings& findings) {
    publisher_.Publish(inventory, findings);
    runner_.RunUntilIdle();
  }
};

TEST_F(StartupTaintPublisherTest, TheTaintStaysUntilTheSmokeTestPasses) {
  Publish(Node(8), {.smoke_problem = "/dev/nvidia3 is missing"});
  EXPECT_TRUE(api_.taint_patches.empty());
  EXPECT_EQ(api_.Condition(), "False SmokeTestFailed");
  Publish(Node(8), {.smoke_passed = true});
  EXPECT_EQ(api_.taint_patches.size(), 1u);
  EXPECT_EQ(api_.condition_at_taint_patch, "True GPUsHealthy") << "pods come after the condition";
  publisher_.Recheck();
  runner_.RunUntilIdle();
  EXPECT_EQ(api_.taint_patches.size(), 1u);
}

TEST_F(StartupTaintPublisherTest, ATaintThatAnotherWriterMovedIsRemovedAtItsNewPlace) {
  api_.taint_status = Status(Code::kInvalidArgument, "the test of the patch failed");
  Publish(Node(1), {.smoke_passed = true});
  api_.node.Set("spec", *ParseJson(R"({"taints":[{"key":"other","effect":"NoSchedule"},)"
                                   R"({"key":"k","effect":"NoSchedule"}]})"));
  runner_.AdvanceTimeAndRun(NodePublisher::kFirstPause);
  ASSERT_EQ(api_.taint_patches.size(), 2u);
  EXPECT_NE(api_.taint_patches[1].find("/spec/taints/1"), std::string::npos);
}

TEST_F(StartupTaintPublisherTest, ATaintThatComesLaterIsRemovedByTheNextCheck) {
  api_.node.Find("spec")->Erase("taints");
  Publish(Node(1), {.smoke_passed = true});
  api_.node.Set("spec", *ParseJson(R"({"taints":[{"key":"k","effect":"NoSchedule"}]})"));
  publisher_.Recheck();
  runner_.RunUntilIdle();
  EXPECT_EQ(api_.taint_patches.size(), 1u);
}

TEST_F(StartupTaintPublisherTest, ATaintedNodeWithoutGpusHasAConditionWithTheReason) {
  Publish(Broken(), {});
  EXPECT_EQ(api_.Condition(), "False DriverNotReady");
  EXPECT_TRUE(api_.taint_patches.empty());
}

}  // namespace
}  // namespace tessera::agent
