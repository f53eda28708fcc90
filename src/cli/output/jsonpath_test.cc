// SPDX-License-Identifier: Apache-2.0
#include "src/cli/output/jsonpath.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

const Json& Sample() {
  static const Json sample = ParseJson(R"({"kind":"List","items":[
    {"metadata":{"name":"a","labels":{"a.b/c":"x"}},"n":2,"f":1.50,"ok":true,"list":[1,2,3]},
    {"metadata":{"name":"b"},"n":10,"nothing":null,"list":[]}]})")
                                 .value();
  return sample;
}

std::string Rendered(std::string_view text) {
  const Result<JsonPath> path = JsonPath::Parse(text);
  if (!path.ok()) return "rejected: " + std::string(path.status().message());
  return path->Render(Sample()).value_or("failed");
}

// kubectl_test.cc compares many more templates with the real kubectl.
TEST(JsonPathTest, FindsWhatKubectlFinds) {
  EXPECT_EQ(Rendered("{.items[*].metadata.name}"), "a b");
  EXPECT_EQ(Rendered(R"({.items[0].metadata.labels.a\.b/c})"), "x");
  EXPECT_EQ(Rendered("{.items[0].metadata.labels['a\\.b/c']}"), "x");
  EXPECT_EQ(Rendered(R"({range .items[*]}{.metadata.name}={.n}{"\n"}{end})"), "a=2\nb=10\n");
  EXPECT_EQ(Rendered("{.items[?(@.n>5)].metadata.name}"), "b");
  EXPECT_EQ(Rendered("{..name}"), "a b");
  EXPECT_EQ(Rendered("{.items[-1:].n}"), "10");
  EXPECT_EQ(Rendered("{.items[0]['n','f']}"), "2 1.5");
  EXPECT_EQ(Rendered("{.items[0].list}"), "[1,2,3]");
  EXPECT_EQ(Rendered("{.missing.field}"), "");
}

TEST(JsonPathTest, WritesNumbersAsGoDoes) {
  const Json list =
      ParseJson("[0.00005,0.000001,5e-7,1.5e-10,-2.5e-8,123.5,12345678.5,1e20,1e21,-1e300]")
          .value();
  EXPECT_EQ(TextOfValue(list),
            "[0.00005,0.000001,5e-7,1.5e-10,-2.5e-8,123.5,12345678.5,100000000000000000000,1e+21,"
            "-1e+300]");
  std::string texts;
  for (const Json& number : list.items()) texts += TextOfValue(number) + " ";
  EXPECT_EQ(texts, "5e-05 1e-06 5e-07 1.5e-10 -2.5e-08 123.5 1.23456785e+07 1e+20 1e+21 -1e+300 ");
}

TEST(JsonPathTest, AnIndexBeyondAllListsIsRejected) {
  for (const char* index :
       {"9223372036854775807", "-9223372036854775808", "::9223372036854775807"}) {
    EXPECT_NE(Rendered(fmt::format("{{.items[{}]}}", index)).find("invalid index"),
              std::string::npos)
        << index;
  }
}

TEST(JsonPathTest, InvalidTemplatesAreRejectedWithTheirPlace) {
  EXPECT_EQ(Rendered("{.items"), "rejected: JSONPath {.items: \"{\" at column 1 is not closed");
  EXPECT_EQ(Rendered("{end}"), "rejected: JSONPath {end}: {end} without {range}");
  EXPECT_EQ(Rendered("{range .items[*]}x"),
            "rejected: JSONPath {range .items[*]}x: {range} without {end}");
  EXPECT_EQ(Rendered("{.items[x]}"),
            "rejected: JSONPath {.items[x]}: invalid index [x]: want a number, a slice, * or a "
            "'name'");
  EXPECT_EQ(Rendered("{items}"),
            "rejected: JSONPath {items}: unrecognized identifier items: a field begins with "
            "\".\"");
}

TEST(JsonPathTest, ExpressionsMayOmitBracesAndTheFirstDot) {
  for (const char* text : {"{.kind}", ".kind", "kind"}) {
    EXPECT_EQ(JsonPath::ParseExpression(text)->Render(Sample()).value(), "List") << text;
  }
  EXPECT_FALSE(JsonPath::ParseExpression("").ok());
  EXPECT_FALSE(JsonPath::ParseExpression("{.a}{.b}").ok());
}

}  // namespace
}  // namespace tessera::cli
