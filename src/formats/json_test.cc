// SPDX-License-Identifier: Apache-2.0
#include "src/formats/json.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(JsonTest, RoundTripsTheExactText) {
  for (const char* text : {
           R"({"b":1,"a":2,"b":3})",
           R"([1.0,1e400,-0,18446744073709551616,1E+2,0.30000000000000004])",
           R"({"u":"ü€😀","e":"\"\\\n\t","n":null,"t":true,"f":false,"o":{},"l":[]})",
           R"("just a string")",
           "42",
       }) {
    const auto json = ParseJson(text);
    ASSERT_TRUE(json.ok()) << json.status().ToString();
    EXPECT_EQ(json->Serialize(), text);
  }
}

TEST(JsonTest, AnErrorNamesByteLineAndCause) {
  const Status status = ParseJson("{\n\"a\": 1,\n}").status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("line 3"), std::string::npos) << status.message();
}

TEST(JsonTest, RejectsTruncatedDeeplyNestedLargeAndTrailingText) {
  EXPECT_EQ(ParseJson(R"({"a":[1,2)").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParseJson("{} x").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(ParseJson("").status().code(), Code::kInvalidArgument);
  EXPECT_FALSE(ParseJson(std::string(1000, '[')).ok());
  EXPECT_EQ(ParseJson("[1,2,3]", {.max_bytes = 3}).status().code(), Code::kResourceExhausted);
}

TEST(JsonTest, ADuplicateKeyMeansItsLastValueAsInGo) {
  auto json = *ParseJson(R"({"a":1,"a":2})");
  EXPECT_EQ(*json.IntAt("a"), 2);
  json.Set("a", Json::Int(3));
  EXPECT_EQ(json.Serialize(), R"({"a":1,"a":3})");
  json.Erase("a");
  EXPECT_EQ(json.Serialize(), "{}");
}

TEST(JsonTest, TypedAccessNamesTheFieldAndItsKind) {
  const auto json = *ParseJson(R"({"n":"x","f":1.5})");
  EXPECT_EQ(json.IntAt("n").status().message(), "\"n\" must be a number, not a string");
  EXPECT_EQ(json.StringAt("m").status().message(), "\"m\" is missing");
  EXPECT_FALSE(json.IntAt("f").ok());
}

TEST(JsonTest, FindPathFollowsTheMembers) {
  const auto json = *ParseJson(R"({"a":{"b":{"c":1}},"n":null})");
  EXPECT_EQ(*FindPath(json, {"a", "b", "c"}), Json::Int(1));
  EXPECT_EQ(*FindPath(json, std::vector<std::string>{"a", "b", "c"}), Json::Int(1));
  EXPECT_TRUE(FindPath(json, {"n"})->is_null());
  EXPECT_EQ(FindPath(json, std::vector<std::string>()), &json);
  EXPECT_EQ(FindPath(json, {"a", "x", "c"}), nullptr);
  EXPECT_EQ(FindPath(json, {"a", "b", "c", "d"}), nullptr) << "below a number";
}

TEST(JsonTest, ReadsOfAPathAreEmptyForMissingMembersAndOtherKinds) {
  const auto json = *ParseJson(R"({"a":{"text":"x","items":[1,2],"members":{"k":true}}})");
  EXPECT_EQ(TextAt(json, {"a", "text"}), "x");
  EXPECT_EQ(TextAt(json, std::vector<std::string>{"a", "text"}), "x");
  EXPECT_EQ(ItemsAt(json, {"a", "items"}).size(), 2u);
  EXPECT_EQ(MembersAt(json, {"a", "members"}).size(), 1u);
  for (const char* key : {"text", "items", "members", "missing"}) {
    EXPECT_EQ(TextAt(json, {"a", key}).empty(), key != std::string("text")) << key;
    EXPECT_EQ(ItemsAt(json, {"a", key}).empty(), key != std::string("items")) << key;
    EXPECT_EQ(MembersAt(json, {"a", key}).empty(), key != std::string("members")) << key;
  }
}

TEST(JsonTest, EnsureObjectCreatesMissingMembersAndRejectsOtherKinds) {
  auto json = *ParseJson(R"({"linux":null,"process":3})");
  (*json.EnsureObject("linux"))->Set("x", Json::Bool(true));
  EXPECT_EQ(json.Serialize(), R"({"linux":{"x":true},"process":3})");
  EXPECT_FALSE(json.EnsureObject("process").ok());
}

TEST(JsonTest, PrettyIndentsByTwo) {
  EXPECT_EQ(ParseJson(R"({"a":[1],"b":{}})")->Pretty(),
            "{\n  \"a\": [\n    1\n  ],\n  \"b\": {}\n}");
}

}  // namespace
}  // namespace tessera
