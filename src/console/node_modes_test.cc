// SPDX-License-Identifier: Apache-2.0
#include "src/console/node_modes.h"

#include <gtest/gtest.h>

namespace tessera::console {
namespace {

// DaemonSets as the installation writes them for two pools: "training" comes before "inference".
std::vector<AgentPool> Pools() {
  const char* const sets[] = {
      R"({"metadata":{"name":"tessera-agent"},"spec":{"template":{"spec":{
        "nodeSelector":{"kubernetes.io/os":"linux"},
        "containers":[{"name":"agent","args":["--shared-resources=gpu-mem,vcuda"]}],
        "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{
          "nodeSelectorTerms":[{"matchExpressions":[
            {"key":"use","operator":"NotIn","values":["training"]},
            {"key":"team","operator":"NotIn","values":["inference"]}]}]}}}}}}})",
      R"({"metadata":{"name":"tessera-agent-training","labels":{"tessera.dev/pool":"training"}},
        "spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/os":"linux","use":"training"},
        "containers":[{"name":"agent","args":["--shared-resources=none"]}]}}}})",
      R"({"metadata":{"name":"tessera-agent-inference","labels":{"tessera.dev/pool":"inference"}},
        "spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/os":"linux","team":"inference"},
        "containers":[{"name":"agent","args":["--shared-resources=vcuda"]}],
        "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{
          "nodeSelectorTerms":[{"matchExpressions":[
            {"key":"use","operator":"NotIn","values":["training"]}]}]}}}}}}})"};
  std::vector<AgentPool> pools;
  for (const char* set : sets) pools.push_back(AgentPoolOf(ParseJson(set).value()).value());
  return pools;
}

std::string ChangeOf(size_t wanted, const StringMap& labels) {
  const std::vector<AgentPool> pools = Pools();
  const LabelChange change = ChangeFor(pools[wanted], pools, labels);
  return change.problem.empty() ? JsonOfChange(change).Serialize() : change.problem;
}

TEST(NodeModesTest, TheLabelsOfANodeDecideItsPool) {
  const Json modes = JsonOfModes(Pools(), {{"kubernetes.io/os", "linux"}, {"use", "training"}});
  const Json::Array& choices = modes.Find("choices")->items();
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_FALSE(choices[0].BoolAt("current").value());
  EXPECT_EQ(choices[0].StringAt("mode").value(), "shared");
  EXPECT_TRUE(choices[1].BoolAt("current").value());
  EXPECT_EQ(choices[1].StringAt("mode").value(), "whole");
  EXPECT_FALSE(choices[2].BoolAt("current").value());
}

TEST(NodeModesTest, ModesSayWhetherHelmHasInstalledTheAgents) {
  EXPECT_EQ(JsonOfModes(Pools(), {}).Find("byHelm"), nullptr);
  const Json set = ParseJson(R"({"metadata":{"name":"tessera-agent",
      "annotations":{"meta.helm.sh/release-name":"tessera"}},"spec":{"template":{"spec":{}}}})")
                       .value();
  EXPECT_TRUE(JsonOfModes({AgentPoolOf(set).value()}, {}).BoolAt("byHelm").value());
}

TEST(NodeModesTest, ANodeJoinsAPoolByItsLabels) {
  EXPECT_EQ(ChangeOf(1, {{"kubernetes.io/os", "linux"}}), R"({"use":"training"})");
}

TEST(NodeModesTest, ANodeLeavesTheEarlierPool) {
  EXPECT_EQ(ChangeOf(2, {{"kubernetes.io/os", "linux"}, {"use", "training"}}),
            R"({"team":"inference","use":null})");
  EXPECT_EQ(
      ChangeOf(0, {{"kubernetes.io/os", "linux"}, {"use", "training"}, {"team", "inference"}}),
      R"({"team":null,"use":null})");
}

TEST(NodeModesTest, LabelsThatKubernetesOrTheAgentWritesAreNotChanged) {
  EXPECT_NE(ChangeOf(1, {}).find("kubernetes.io/os=linux"), std::string::npos);
  std::vector<AgentPool> pools = Pools();
  pools[1].constraints.selector = {{"nvidia.com/gpu.product", "H200"}};
  pools[2].constraints.required_affinity = {
      {.labels = {{{.key = "nvidia.com/gpu.product",
                    .op = kube::LabelSelector::Operator::kNotIn,
                    .values = {"H200"}}}}}};
  const LabelChange change = ChangeFor(
      pools[2], pools, {{"kubernetes.io/os", "linux"}, {"nvidia.com/gpu.product", "H200"}});
  EXPECT_FALSE(change.problem.empty());
  EXPECT_TRUE(change.labels.empty());
}

TEST(NodeModesTest, ATermWithAnUnknownOperatorMatchesNoNode) {
  std::string set = R"({"metadata":{"name":"a"},"spec":{"template":{"spec":{"affinity":{
        "nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
          {"matchExpressions":[{"key":"cores","operator":"??","values":["8"]}]}]}}}}}}})";
  EXPECT_FALSE(AgentPoolOf(*ParseJson(set))->Covers({{"cores", "16"}}));
  set.replace(set.find("??"), 2, "In");
  EXPECT_TRUE(AgentPoolOf(*ParseJson(set))->Covers({{"cores", "8"}}));
}

TEST(NodeModesTest, AnObjectOtherThanAnAgentDaemonSetIsNotAPool) {
  EXPECT_FALSE(AgentPoolOf(Json::MakeObject()));
}

}  // namespace
}  // namespace tessera::console
