// SPDX-License-Identifier: Apache-2.0
#include "src/kube/selectors.h"

#include <gtest/gtest.h>

#include "src/kube/objects.h"

namespace tessera::kube {
namespace {

NodeConstraints ConstraintsIn(const std::string& spec) {
  const RawObject raw(ParseJson(R"({"spec":)" + spec + "}").value());
  return Decode<PodObject>(raw, {.constraints = true}).value().constraints;
}

// "kind: reason"; "" if the node is not excluded.
std::string ExclusionOf(const std::string& spec, const NodeTraits& node) {
  const auto excluded = FindExclusion(ConstraintsIn(spec), "n1", node);
  return excluded ? std::string(excluded->kind) + ": " + excluded->reason : "";
}

std::string AffinityTo(const std::string& terms) {
  return R"({"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":)"
         R"({"nodeSelectorTerms":)" +
         terms + "}}}}";
}

TEST(NodeConstraintsTest, ANodeSelectorNeedsEachLabel) {
  const std::string spec = R"({"nodeSelector":{"disk":"ssd","zone":"a"}})";
  EXPECT_EQ(ExclusionOf(spec, {.labels = {{"disk", "ssd"}, {"zone", "a"}}}), "");
  EXPECT_EQ(ExclusionOf(spec, {.labels = {{"disk", "ssd"}}}),
            "node-selector: the node selector zone=a does not match");
  EXPECT_EQ(ExclusionOf(spec, {.labels = {{"disk", "hdd"}, {"zone", "a"}}}),
            "node-selector: the node selector disk=ssd does not match");
}

TEST(NodeConstraintsTest, ANodeHasItsNameAsHostName) {
  EXPECT_EQ(ExclusionOf(R"({"nodeSelector":{"kubernetes.io/hostname":"n1"}})", {}), "");
  EXPECT_NE(ExclusionOf(R"({"nodeSelector":{"kubernetes.io/hostname":"n2"}})", {}), "");
  EXPECT_NE(ExclusionOf(R"({"nodeSelector":{"kubernetes.io/hostname":"n1"}})",
                        {.labels = {{"kubernetes.io/hostname", "host"}}}),
            "");
}

TEST(NodeConstraintsTest, OneTermOfAnAffinityMustMatch) {
  const NodeTraits node{.labels = {{"zone", "a"}, {"gpus", "8"}, {"name", "x"}}};
  const auto matches = [&](const std::string& terms) {
    return ExclusionOf(AffinityTo(terms), node) == "";
  };
  EXPECT_TRUE(
      matches(R"([{"matchExpressions":[{"key":"zone","operator":"In","values":["b"]}]},)"
              R"({"matchExpressions":[{"key":"zone","operator":"In","values":["a","c"]}]}])"));
  EXPECT_FALSE(matches(R"([{"matchExpressions":[{"key":"zone","operator":"In","values":["a"]},)"
                       R"({"key":"zone","operator":"NotIn","values":["a"]}]}])"));
  EXPECT_TRUE(
      matches(R"([{"matchExpressions":[{"key":"no","operator":"NotIn","values":["a"]}]}])"));
  EXPECT_TRUE(matches(R"([{"matchExpressions":[{"key":"gpus","operator":"Gt","values":["4"]}]}])"));
  EXPECT_FALSE(
      matches(R"([{"matchExpressions":[{"key":"gpus","operator":"Gt","values":["8"]}]}])"));
  EXPECT_TRUE(matches(R"([{"matchExpressions":[{"key":"gpus","operator":"Lt","values":["9"]}]}])"));
  EXPECT_FALSE(
      matches(R"([{"matchExpressions":[{"key":"name","operator":"Lt","values":["9"]}]}])"));
  EXPECT_TRUE(
      matches(R"([{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}])"));
  EXPECT_FALSE(
      matches(R"([{"matchFields":[{"key":"metadata.name","operator":"In","values":["n2"]}]}])"));
  EXPECT_FALSE(matches("[{}]"));
  EXPECT_FALSE(matches("[]"));
  EXPECT_EQ(ExclusionOf(AffinityTo("[{}]"), node),
            "node-affinity: the required node affinity does not match the node's labels");
}

TEST(NodeConstraintsTest, TaintsMustBeTolerated) {
  const NodeTraits node{.taints = {{"soft", "", "PreferNoSchedule"}, {"team", "ml", "NoSchedule"}}};
  const auto with = [&](const std::string& toleration) {
    return ExclusionOf(R"({"tolerations":[)" + toleration + "]}", node);
  };
  EXPECT_EQ(ExclusionOf("{}", node), "taint: taint team=ml:NoSchedule is not tolerated");
  EXPECT_EQ(with(R"({"key":"team","value":"ml","effect":"NoSchedule"})"), "");
  EXPECT_EQ(with(R"({"key":"team","operator":"Equal","value":"ml"})"), "");
  EXPECT_EQ(with(R"({"key":"team","operator":"Exists"})"), "");
  EXPECT_EQ(with(R"({"operator":"Exists"})"), "");
  EXPECT_NE(with(R"({"key":"team","value":"web"})"), "");
  EXPECT_NE(with(R"({"key":"team","operator":"Exists","effect":"NoExecute"})"), "");
  EXPECT_NE(with(R"({"key":"other","operator":"Exists"})"), "");
  EXPECT_NE(ExclusionOf("{}", {.taints = {{"gone", "", "NoExecute"}}}), "");
}

TEST(NodeConstraintsTest, TolerationsOfTheUnschedulableTaintTolerateACordon) {
  EXPECT_FALSE(ConstraintsIn("{}").ToleratesCordon());
  EXPECT_TRUE(ConstraintsIn(R"({"tolerations":[{"key":"node.kubernetes.io/unschedulable",)"
                            R"("operator":"Exists","effect":"NoSchedule"}]})")
                  .ToleratesCordon());
}

TEST(LabelSelectorTest, EveryRequirementMustHold) {
  using Operator = LabelSelector::Operator;
  const StringMap labels{{"app", "train"}, {"tier", "a"}};
  EXPECT_TRUE(LabelSelector{}.Matches(labels));
  EXPECT_TRUE(LabelSelector{}.Matches({}));
  const auto matches = [&](std::vector<LabelSelector::Requirement> all) {
    return LabelSelector{std::move(all)}.Matches(labels);
  };
  EXPECT_TRUE(matches({{"app", Operator::kIn, {"serve", "train"}}}));
  EXPECT_FALSE(matches({{"app", Operator::kIn, {"serve"}}}));
  EXPECT_FALSE(matches({{"other", Operator::kIn, {"train"}}}));
  EXPECT_FALSE(matches({{"app", Operator::kNotIn, {"train"}}}));
  EXPECT_TRUE(matches({{"other", Operator::kNotIn, {"train"}}}));
  EXPECT_TRUE(matches({{"app", Operator::kExists, {}}}));
  EXPECT_FALSE(matches({{"app", Operator::kDoesNotExist, {}}}));
  EXPECT_FALSE(matches({{"app", Operator::kExists, {}}, {"tier", Operator::kIn, {"b"}}}));
}

}  // namespace
}  // namespace tessera::kube
