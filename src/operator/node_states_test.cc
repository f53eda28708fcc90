// SPDX-License-Identifier: Apache-2.0
#include "src/operator/node_states.h"

#include <gtest/gtest.h>

#include "src/kube/testing/wire_writer.h"

namespace tessera::operators {
namespace {

using kube::testing::WireWriter;

std::string Condition(std::string_view type, std::string_view status, std::string_view reason = "",
                      std::string_view message = "") {
  return WireWriter().Bytes(1, type).Bytes(2, status).Bytes(5, reason).Bytes(6, message).text();
}

GpuNodeState NodeOf(const std::string& name, const WireWriter& labels, const WireWriter& status) {
  const std::string meta = WireWriter().Bytes(1, name).text() + labels.text();
  const std::string message = WireWriter().Bytes(1, meta).Bytes(3, status.text()).text();
  GpuNodeState node;
  const Status read =
      DecodeObject(kube::RawObject(std::string_view(message)), KeptFieldsOfNodes(), &node);
  EXPECT_TRUE(read.ok()) << read.ToString();
  return node;
}

AgentPodState PodOn(const std::string& node, const WireWriter& status) {
  const std::string message = WireWriter()
                                  .Bytes(1, WireWriter().Bytes(1, "p").text())
                                  .Bytes(2, WireWriter().Bytes(10, node).text())
                                  .Bytes(3, status.text())
                                  .text();
  AgentPodState pod;
  const Status read = DecodeObject(kube::RawObject(std::string_view(message)), {}, &pod);
  EXPECT_TRUE(read.ok()) << read.ToString();
  return pod;
}

WireWriter GpuLabel() { return WireWriter().Entry(11, "nvidia.com/gpu.present", "true"); }
WireWriter Conditions(std::string_view gpu, std::string_view reason, std::string_view message) {
  return WireWriter()
      .Bytes(4, Condition("Ready", "True"))
      .Bytes(4, Condition("GPUReady", gpu, reason, message));
}
WireWriter ReadyPod() { return WireWriter().Bytes(2, Condition("Ready", "True")); }
WireWriter WaitingPod(std::string_view reason, std::string_view message) {
  const std::string waiting = WireWriter().Bytes(1, reason).Bytes(2, message).text();
  const std::string state = WireWriter().Bytes(1, waiting).text();
  return WireWriter()
      .Bytes(2, Condition("Ready", "False"))
      .Bytes(10, WireWriter().Bytes(1, "agent").Bytes(2, state).text());
}

NodeHealth HealthOf(const std::vector<GpuNodeState>& nodes, const std::vector<AgentPodState>& pods,
                    bool excludes_nvidia_nodes = false) {
  NodeHealthCollector collector(excludes_nvidia_nodes);
  for (const AgentPodState& pod : pods) collector.AddPod(pod);
  for (const GpuNodeState& node : nodes) collector.AddNode(node);
  return collector.Take();
}

TEST(NodeStatesTest, AWorkingNodeHasNoProblem) {
  const GpuNodeState node = NodeOf("n", GpuLabel(), Conditions("True", "GPUsHealthy", "all"));
  const NodeHealth health = HealthOf({node}, {PodOn("n", ReadyPod())});
  EXPECT_EQ(health.ready, 1u);
  EXPECT_EQ(health.with_gpus, 1u);
  EXPECT_TRUE(health.problems.empty());
}

TEST(NodeStatesTest, AnAgentThatDoesNotStartGivesItsReasonAndARemedy) {
  const GpuNodeState node = NodeOf("n", GpuLabel(), Conditions("True", "GPUsHealthy", ""));
  const NodeHealth health =
      HealthOf({node}, {PodOn("n", WaitingPod("ImagePullBackOff", "no such image"))});
  ASSERT_EQ(health.problems.size(), 1u);
  EXPECT_EQ(health.problems[0].reason, "ImagePullBackOff");
  EXPECT_EQ(health.problems[0].message,
            "no such image: check spec.image and that the node reaches the registry");
  EXPECT_EQ(health.ready, 0u);
}

TEST(NodeStatesTest, AnInitContainerThatWaitsForAnotherIsNoReason) {
  WireWriter status = WaitingPod("CrashLoopBackOff", "back-off");
  const std::string later = WireWriter().Bytes(1, "PodInitializing").text();
  status.Bytes(8, WireWriter().Bytes(2, WireWriter().Bytes(1, later).text()).text());
  EXPECT_EQ(PodOn("n", status).reason, "CrashLoopBackOff");
}

TEST(NodeStatesTest, TheAgentsConditionExplainsANodeWithoutDriver) {
  const GpuNodeState node =
      NodeOf("n", GpuLabel(), Conditions("False", "DriverNotReady", "no driver: install one"));
  const NodeHealth health = HealthOf({node}, {PodOn("n", ReadyPod())});
  ASSERT_EQ(health.problems.size(), 1u);
  EXPECT_EQ(health.problems[0], (NodeProblem{"n", "DriverNotReady", "no driver: install one"}));
}

TEST(NodeStatesTest, AGpuNodeWithoutAgentIsAProblemUnlessNvidiaManagesIt) {
  WireWriter labels = GpuLabel();
  labels.Entry(11, "nvidia.com/gpu.deploy.device-plugin", "paused-for-driver-upgrade");
  const GpuNodeState node = NodeOf("n", labels, Conditions("True", "", ""));
  EXPECT_EQ(HealthOf({node}, {}).problems.at(0).reason, "NoAgent");
  const NodeHealth skipped = HealthOf({node}, {}, true);
  EXPECT_TRUE(skipped.problems.empty());
  EXPECT_EQ(skipped.managed_by_nvidia, 1u);
  // KeepOffNvidiaNodes keeps no agent off a node with another value.
  labels = GpuLabel();
  labels.Entry(11, "nvidia.com/gpu.deploy.device-plugin", "disabled");
  const NodeHealth other = HealthOf({NodeOf("n", labels, Conditions("True", "", ""))}, {}, true);
  EXPECT_EQ(other.problems.at(0).reason, "NoAgent");
  EXPECT_EQ(other.managed_by_nvidia, 0u);
  // A node without GPUs needs no agent.
  EXPECT_TRUE(HealthOf({NodeOf("m", {}, Conditions("True", "", ""))}, {}).problems.empty());
}

TEST(NodeStatesTest, TheListOfProblemsIsBoundedAndSorted) {
  std::vector<GpuNodeState> nodes;
  for (int i = 99; i >= 0; --i) {
    nodes.push_back(NodeOf(fmt::format("n{:02}", i), GpuLabel(), Conditions("True", "", "")));
  }
  const NodeHealth health = HealthOf(nodes, {});
  EXPECT_EQ(health.problem_count, 100u);
  ASSERT_EQ(health.problems.size(), kMaxProblems);
  EXPECT_EQ(health.problems.front().node, "n00");
  EXPECT_EQ(health.problems.back().node, "n19");
}

}  // namespace
}  // namespace tessera::operators
