// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node_publisher.h"

#include <gtest/gtest.h>

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
        Json& there = **node.Find("metadata")->ObjectAt(part);
        for (const auto& [name, value] : changes.members()) {
          value.is_null() ? there.Erase(name) : (void)there.Set(name, value);
        }
      }
      done(node);
    });
  }
  std::string Label(const std::string& name) const {
    const Json* labels = node.Find("metadata")->Find("labels");
    const Json* value = labels != nullptr ? labels->Find("nvidia.com/gpu." + name) : nullptr;
    return value != nullptr ? value->string_value() : "-";
  }

  FakeTaskRunner* runner = nullptr;
  Json node = *ParseJson(R"({"metadata":{"name":"n","labels":{"zone":"a"}}})");
  Json last_patch;
  Status status;
  int gets = 0;
  int patches = 0;
};

class NodePublisherTest : public testing::Test {
 protected:
  NodePublisherTest() { api_.runner = &runner_; }
  void Publish(const device::NodeInventory& inventory) {
    publisher_.Publish(inventory);
    runner_.RunUntilIdle();
  }

  FakeTaskRunner runner_;
  FakeNodeApi api_;
  AgentMetrics metrics_;
  NodePublisher publisher_{&runner_, &api_, &metrics_};
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

TEST_F(NodePublisherTest, WritesOnChangeOnly) {
  Publish(Node(8));
  Publish(Node(8));
  runner_.AdvanceTimeAndRun(24h);
  EXPECT_EQ(api_.patches, 1);
  EXPECT_EQ(api_.gets, 1);
}

TEST_F(NodePublisherTest, WritesNothingWhereTheNodeSaysItAlready) {
  Publish(Node(8));
  NodePublisher after_restart(&runner_, &api_, &metrics_);
  after_restart.Publish(Node(8));
  runner_.RunUntilIdle();
  EXPECT_EQ(api_.patches, 1);
}

TEST_F(NodePublisherTest, PatchHoldsOnlyWhatDiffers) {
  Publish(Node(8));
  auto ill = Node(8);
  ill.gpus[3].health = device::Health::Unhealthy("XID 79");
  Publish(ill);
  EXPECT_EQ(api_.patches, 2);
  EXPECT_EQ(api_.last_patch.Find("metadata")->Find("labels"), nullptr);
}

TEST_F(NodePublisherTest, TriesAgainWithGrowingPauses) {
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

TEST_F(NodePublisherTest, LabelsStayWhileTheDriverHasAProblem) {
  Publish(Node(8));
  device::NodeInventory broken;
  broken.problem = "libnvidia-ml.so.1 is not in /run/nvidia/driver";
  Publish(broken);
  EXPECT_EQ(api_.Label("present"), "true");
  EXPECT_EQ(api_.Label("count"), "8");
}

TEST_F(NodePublisherTest, LabelsGoWhereTheDriverSaysThereAreNoGpus) {
  Publish(Node(8));
  Publish(Node(0));
  EXPECT_EQ(api_.Label("present"), "-");
  EXPECT_EQ(api_.Label("count"), "-");
}

TEST(NodeStateTest, LargestGroupOfModelsIsNamed) {
  auto mixed = Node(2, "Tesla T4");
  const auto more = Node(3, "NVIDIA H100");
  mixed.gpus.insert(mixed.gpus.end(), more.gpus.begin(), more.gpus.end());
  const NodeState state = StateOf(mixed);
  EXPECT_EQ(state.labels.at("nvidia.com/gpu.product"), "NVIDIA-H100");
  EXPECT_EQ(state.labels.at("nvidia.com/gpu.count"), "3");
}

TEST(NodeStateTest, UnknownMemoryIsLeftOut) {
  auto node = Node(1);
  node.gpus[0].memory = Bytes(0);
  EXPECT_EQ(StateOf(node).labels.at("nvidia.com/gpu.memory"), std::nullopt);
}

TEST(LabelValueTest, KeepsWhatALabelMayHold) {
  EXPECT_EQ(LabelValue("Tesla T4"), "Tesla-T4");
  EXPECT_EQ(LabelValue("NVIDIA RTX(TM) A6000/48\xc2\xae "), "NVIDIA-RTXTM-A600048");
  EXPECT_EQ(LabelValue(" -x- "), "x");
  EXPECT_EQ(LabelValue(std::string(100, 'a')).size(), 63u);
  EXPECT_EQ(LabelValue("()"), "");
}

}  // namespace
}  // namespace tessera::agent
