// SPDX-License-Identifier: Apache-2.0
#include "src/formats/yaml.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

TEST(YamlTest, ScalarsFollowTheJsonSchema) {
  const auto json = ParseYaml("a: 1\nb: '1'\nc: yes\nd: true\ne: ~\nf: 0x10\ng: [1.5, x]\n");
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  EXPECT_EQ(json->Serialize(),
            R"({"a":1,"b":"1","c":"yes","d":true,"e":null,"f":"0x10","g":[1.5,"x"]})");
}

TEST(YamlTest, EveryValueHasItsLine) {
  const auto json = *ParseYaml("a: 1\n\nb:\n  - c\n  - d\n");
  EXPECT_EQ(json.Find("a")->line(), 1);
  EXPECT_EQ(json.Find("b")->items()[1].line(), 5);
}

TEST(YamlTest, ErrorsNameTheLine) {
  for (const char* text :
       {"a: 1\na: 2\n", "a: 1\nb: *x\n", "a: 1\n\tb: 2\n", "a: 1\n---\nb: 2\n",
        "a: 1\nb: !!binary x\n", "a: 1\nb: &x 2\n", "a: 1\nb: !!set {c}\n", "a: 1\nb: !!seq [2]\n",
        "a: 1\nb: &x [2]\n", "a: 1\n&x b: 2\n", "a: 1\n!!str b: 2\n"}) {
    const auto json = ParseYaml(text);
    EXPECT_EQ(json.status().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(json.status().message().find("line "), std::string::npos) << text;
  }
}

// Takes minutes if each key is compared with all others.
TEST(YamlTest, AMappingWithManyKeysIsReadInLinearTime) {
  constexpr int kKeys = 200'000;
  std::string text;
  for (int i = 0; i < kKeys; ++i) text += fmt::format("k{}: 0\n", i);
  const auto json = ParseYaml(text);
  ASSERT_TRUE(json.ok()) << json.status().ToString();
  ASSERT_EQ(json->members().size(), size_t{kKeys});
  for (size_t i = 0; i < json->members().size(); ++i)
    ASSERT_EQ(json->members()[i].first, fmt::format("k{}", i)) << "keys keep their order";
  EXPECT_EQ(ParseYaml(text + "k7: 1\n").status().message(), "line 200001: \"k7\" occurs twice");
}

TEST(YamlTest, AnEmptyTextIsNull) {
  EXPECT_TRUE(ParseYaml("")->is_null());
  EXPECT_TRUE(ParseYaml("# only a comment\n")->is_null());
}

}  // namespace
}  // namespace tessera
