// SPDX-License-Identifier: Apache-2.0
#include "src/operator/resource_status.h"

#include <gtest/gtest.h>

namespace tessera::operators {
namespace {

constexpr WallTime kNow = WallTime(std::chrono::seconds(1'700'000'000));

StatusInput Healthy() {
  StatusInput input{.generation = 3};
  input.components = {{"agent", ComponentState::kReady, "Ready", "6 objects", 6}};
  input.nodes.total = 2;
  return input;
}

Json ConditionOf(const Json& status, std::string_view type) {
  for (const Json& condition : status.Find("conditions")->items()) {
    if (condition.StringAt("type").value() == type) return condition;
  }
  return Json::MakeObject();
}

TEST(ResourceStatusTest, IsReadyIfEverythingIs) {
  const Json status = StatusOf(Healthy(), nullptr, kNow);
  EXPECT_EQ(ConditionOf(status, "Ready").StringAt("status").value(), "True");
  EXPECT_EQ(ConditionOf(status, "Degraded").StringAt("status").value(), "False");
  EXPECT_EQ(ConditionOf(status, "Ready").IntAt("observedGeneration").value(), 3);
}

TEST(ResourceStatusTest, AnInvalidSpecNamesTheFieldAndSaysThatObjectsStay) {
  StatusInput input = Healthy();
  input.spec_status = Error(Code::kInvalidArgument, "spec.x: invalid value 7: want 1 to 5");
  const Json status = StatusOf(input, nullptr, kNow);
  const Json degraded = ConditionOf(status, "Degraded");
  EXPECT_EQ(degraded.StringAt("reason").value(), "InvalidSpec");
  EXPECT_EQ(degraded.StringAt("message").value(),
            "spec.x: invalid value 7: want 1 to 5; the objects of the last valid spec stay");
  EXPECT_EQ(ConditionOf(status, "Ready").StringAt("status").value(), "False");
}

TEST(ResourceStatusTest, AFailedComponentIsNamedWithItsReason) {
  StatusInput input = Healthy();
  input.components.push_back(
      {"webhook", ComponentState::kFailed, "Forbidden", "cannot apply Service w: no", 8});
  const Json degraded = ConditionOf(StatusOf(input, nullptr, kNow), "Degraded");
  EXPECT_EQ(degraded.StringAt("reason").value(), "Forbidden");
  EXPECT_EQ(degraded.StringAt("message").value(), "webhook: cannot apply Service w: no");
}

TEST(ResourceStatusTest, ATimeChangesOnlyWithTheStatusOfItsCondition) {
  const Json before = StatusOf(Healthy(), nullptr, kNow);
  StatusInput input = Healthy();
  input.generation = 4;
  const Json same = StatusOf(input, &before, kNow + std::chrono::hours(1));
  EXPECT_EQ(ConditionOf(same, "Ready").StringAt("lastTransitionTime").value(), Rfc3339(kNow));
  input.spec_status = Error(Code::kInvalidArgument, "x");
  const Json other = StatusOf(input, &same, kNow + std::chrono::hours(1));
  EXPECT_EQ(ConditionOf(other, "Ready").StringAt("lastTransitionTime").value(),
            Rfc3339(kNow + std::chrono::hours(1)));
}

TEST(ResourceStatusTest, EqualValuesHaveOneText) {
  const auto text = [](const char* json) { return CanonicalText(ParseJson(json).value()); };
  EXPECT_EQ(text(R"({"a":[{"c":1,"b":2}],"d":3})"), text(R"({"d":3,"a":[{"b":2,"c":1}]})"));
  EXPECT_NE(text(R"({"a":[1,2]})"), text(R"({"a":[2,1]})"));
}

TEST(ResourceStatusTest, ItsSizeIsBounded) {
  StatusInput input = Healthy();
  for (size_t i = 0; i < kMaxProblems; ++i) {
    input.nodes.problems.push_back({fmt::format("n{}", i), "R", std::string(100'000, 'm')});
  }
  input.nodes.problem_count = 5000;
  EXPECT_LT(StatusOf(input, nullptr, kNow).Serialize().size(), 64u << 10);
}

TEST(ResourceStatusTest, ChangesAreReportedOnce) {
  const Json before = StatusOf(Healthy(), nullptr, kNow);
  StatusInput input = Healthy();
  input.components[0] = {"agent", ComponentState::kFailed, "Forbidden", "no right", 6};
  input.nodes.problems = {{"n1", "NoAgent", "no agent"}};
  input.nodes.problem_count = 1;
  const Json after = StatusOf(input, &before, kNow);
  const auto changes = ChangesBetween(&before, after);
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[0].reason, "Forbidden");
  EXPECT_TRUE(changes[0].warning);
  EXPECT_EQ(changes[0].message, "agent: no right");
  EXPECT_EQ(changes[3].message, "node n1: no agent");
  EXPECT_TRUE(ChangesBetween(&after, StatusOf(input, &after, kNow)).empty());
}

}  // namespace
}  // namespace tessera::operators
