// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_condition.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

const WallTime kNow{1'800'000'000s};

device::NodeInventory Gpus(int count, int unhealthy = 0) {
  device::NodeInventory inventory;
  inventory.driver_version = "550.163.01";
  for (int i = 0; i < count; ++i) {
    inventory.gpus.push_back({.uuid = "GPU-" + std::to_string(i), .index = i});
    if (i < unhealthy) {
      inventory.gpus.back().health = device::Health::Unhealthy("XID 79: off the bus");
    }
  }
  return inventory;
}

std::string Text(const NodeCondition& condition) {
  return fmt::format("{} {}: {}", condition.ready, condition.reason, condition.message);
}

const Json& FirstCondition(const Json& patch) {
  return patch.Find("status")->Find("conditions")->items().at(0);
}

TEST(NodeConditionTest, IsTrueWhileAllGpusAreHealthy) {
  EXPECT_EQ(Text(ConditionOf(Gpus(8))), "true GPUsHealthy: 8 GPUs are healthy");
  EXPECT_EQ(Text(ConditionOf(Gpus(1))), "true GPUsHealthy: 1 GPU is healthy");
}

TEST(NodeConditionTest, NamesTheUnhealthyGpusWithTheirReasons) {
  EXPECT_EQ(Text(ConditionOf(Gpus(8, 1))),
            "false GPUUnhealthy: 1 of 8 GPUs is unhealthy: GPU-0: XID 79: off the bus");
  EXPECT_EQ(Text(ConditionOf(Gpus(2, 2))),
            "false GPUUnhealthy: 2 of 2 GPUs are unhealthy: GPU-0: XID 79: off the bus; "
            "GPU-1: XID 79: off the bus");
  EXPECT_TRUE(ConditionOf(Gpus(16, 9)).message.ends_with("; and 5 more"));
}

TEST(NodeConditionTest, CountsGpusThatCannotBeIdentified) {
  auto silent = Gpus(7);
  silent.unidentified = 1;
  EXPECT_EQ(Text(ConditionOf(silent)), "false GPUUnhealthy: 1 GPU never reported its UUID");
}

TEST(NodeConditionTest, DistinguishesAMissingDriverFromADriverWithoutGpus) {
  device::NodeInventory none;
  none.problem = "libnvidia-ml.so.1 is not below /";
  EXPECT_EQ(Text(ConditionOf(none)), "false DriverNotReady: libnvidia-ml.so.1 is not below /");
  auto empty = Gpus(0);
  empty.problem = "the driver reports no GPU";
  EXPECT_EQ(Text(ConditionOf(empty)), "false NoGPU: the driver reports no GPU");
}

TEST(NodeConditionTest, LongReasonsAreTruncatedBetweenCharacters) {
  device::NodeInventory none;
  for (int i = 0; i < 1000; ++i) none.problem += "\u00e4";
  const std::string message = "x" + ConditionOf(none).message;
  EXPECT_EQ(message.size(), 1025u);
}

TEST(NodeConditionTest, ThePatchChangesOnlyTheStatusAndOnlyIfSomethingDiffers) {
  Json node = *ParseJson(R"({"metadata":{"name":"n"},"status":{"conditions":[
      {"type":"Ready","status":"True"}]}})");
  const auto patch = ConditionPatchFor(node, ConditionOf(Gpus(8)), kNow);
  ASSERT_TRUE(patch);
  EXPECT_EQ(patch->members().size(), 1u);
  EXPECT_EQ(FirstCondition(*patch).Serialize(),
            R"({"type":"GPUReady","status":"True","reason":"GPUsHealthy",)"
            R"("message":"8 GPUs are healthy","lastHeartbeatTime":"2027-01-15T08:00:00Z",)"
            R"("lastTransitionTime":"2027-01-15T08:00:00Z"})");
  node.Find("status")->Find("conditions")->Append(FirstCondition(*patch));
  EXPECT_FALSE(ConditionPatchFor(node, ConditionOf(Gpus(8)), kNow + 1h));
}

TEST(NodeConditionTest, TransitionTimeMovesWithTheStatusOnly) {
  const Json node = *ParseJson(R"({"status":{"conditions":[{"type":"GPUReady","status":"False",
      "reason":"DriverNotReady","message":"x","lastTransitionTime":"2026-01-01T00:00:00Z"}]}})");
  const auto still_false = ConditionPatchFor(node, ConditionOf(Gpus(8, 1)), kNow);
  EXPECT_EQ(*FirstCondition(*still_false).StringAt("lastTransitionTime"), "2026-01-01T00:00:00Z");
  const auto now_true = ConditionPatchFor(node, ConditionOf(Gpus(8)), kNow);
  EXPECT_EQ(*FirstCondition(*now_true).StringAt("lastTransitionTime"), "2027-01-15T08:00:00Z");
}

TEST(NodeConditionTest, AGpuNodeIsKnownByItsLabelOrItsCondition) {
  EXPECT_FALSE(WasGpuNode(*ParseJson(R"({"metadata":{"labels":{"zone":"a"}},"status":{}})")));
  EXPECT_TRUE(
      WasGpuNode(*ParseJson(R"({"metadata":{"labels":{"nvidia.com/gpu.present":"true"}}})")));
  EXPECT_TRUE(WasGpuNode(*ParseJson(R"({"status":{"conditions":[{"type":"GPUReady"}]}})")));
}

TEST(NodeConditionTest, FindingsNameTheCauseAndUnhealthyGpusPrecedeTheSmokeTest) {
  device::NodeInventory inventory;
  inventory.gpus.push_back({.uuid = "GPU-0"});
  const NodeFindings smoke{.smoke_problem = "/dev/nvidia0 is missing"};
  EXPECT_EQ(ConditionOf(inventory, smoke).reason, "SmokeTestFailed");
  const NodeFindings driver{.driver_reason = "DriverConflict", .driver_problem = "two drivers"};
  EXPECT_EQ(ConditionOf(inventory, driver).reason, "DriverConflict");
  EXPECT_EQ(ConditionOf(inventory, driver).message, "two drivers");
  inventory.gpus[0].health = device::Health::Unhealthy("XID 79");
  EXPECT_EQ(ConditionOf(inventory, smoke).reason, "GPUUnhealthy");
}

}  // namespace
}  // namespace tessera::agent
