// SPDX-License-Identifier: Apache-2.0
#include "src/formats/text_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tessera {
namespace {

using ::testing::HasSubstr;

const TextEdit kSetDefaultRuntime{EditKind::kSet, {"default-runtime"}, Json::String("nvidia")};
const TextEdit kSetRuntime{
    EditKind::kSet,
    {"runtimes", "nvidia"},
    Json::MakeObject({{"args", Json::MakeArray()}, {"path", Json::String("/x")}})};

std::string Patched(std::string_view text, const std::vector<TextEdit>& edits) {
  auto result = PatchJson(text, edits);
  return result.ok() ? *result : result.status().ToString();
}

TEST(JsonPatcher, CreatesADocumentFromEmptyText) {
  const std::string wanted =
      "{\n    \"default-runtime\": \"nvidia\",\n    \"runtimes\": {\n        \"nvidia\": {\n"
      "            \"args\": [],\n            \"path\": \"/x\"\n        }\n    }\n}\n";
  EXPECT_EQ(Patched("", {kSetDefaultRuntime, kSetRuntime}), wanted);
  EXPECT_EQ(Patched("{}\n", {kSetDefaultRuntime, kSetRuntime}), wanted);
}

TEST(JsonPatcher, KeepsIndentationOrderAndNumbers) {
  EXPECT_EQ(Patched("{\n\t\"mtu\" : 1450.0,\n\t\"a\":[ 1,2 ]\n}", {kSetRuntime}),
            "{\n\t\"mtu\" : 1450.0,\n\t\"a\":[ 1,2 ],\n\t\"runtimes\": {\n\t\t\"nvidia\": {\n"
            "\t\t\t\"args\": [],\n\t\t\t\"path\": \"/x\"\n\t\t}\n\t}\n}");
}

TEST(JsonPatcher, AddsMembersWithoutIndentationBesideUnindentedMembers) {
  EXPECT_EQ(Patched("{\n\"a\": 1\n}\n", {kSetDefaultRuntime}),
            "{\n\"a\": 1,\n\"default-runtime\": \"nvidia\"\n}\n");
}

TEST(JsonPatcher, KeepsAFileOfOneLineOnOneLine) {
  EXPECT_EQ(Patched(R"({"a":1,"features":{"containerd-snapshotter":true}})",
                    {{EditKind::kSet, {"features", "cdi"}, Json::Bool(true)}, kSetDefaultRuntime}),
            R"({"a":1,"features":{"containerd-snapshotter":true,"cdi":true},)"
            R"("default-runtime":"nvidia"})");
}

TEST(JsonPatcher, ReplacesOnlyTheValue) {
  EXPECT_EQ(Patched("{ \"default-runtime\" :   \"runc\" , \"x\":1}", {kSetDefaultRuntime}),
            "{ \"default-runtime\" :   \"nvidia\" , \"x\":1}");
}

TEST(JsonPatcher, KeepsBomAndCarriageReturns) {
  EXPECT_EQ(Patched("\xEF\xBB\xBF{\r\n  \"a\": 1\r\n}\r\n", {kSetDefaultRuntime}),
            "\xEF\xBB\xBF{\r\n  \"a\": 1,\r\n  \"default-runtime\": \"nvidia\"\r\n}\r\n");
}

TEST(JsonPatcher, AnEditThatChangesNothingKeepsTheBytes) {
  const std::string text = R"({"default-runtime" : "nvid\u0069a"})";
  EXPECT_EQ(Patched(text, {kSetDefaultRuntime}), text);
}

TEST(JsonPatcher, NamesTheLineOfAComment) {
  const auto result = PatchJson("{\n  // mirrors\n  \"a\": 1\n}", {kSetDefaultRuntime});
  ASSERT_FALSE(result.ok());
  EXPECT_THAT(result.status().message(), HasSubstr("line 2"));
  EXPECT_THAT(result.status().message(), HasSubstr("no comments"));
}

TEST(JsonPatcher, RejectsValuesThatAreNotObjects) {
  EXPECT_FALSE(PatchJson("[1]", {kSetDefaultRuntime}).ok());
  EXPECT_FALSE(PatchJson(R"({"runtimes": "runc"})", {kSetRuntime}).ok());
  EXPECT_FALSE(PatchJson(R"({"a": 1)", {kSetRuntime}).ok());
}

TEST(JsonPatcher, RemovesMembersAndTheirCommas) {
  const TextEdit remove{EditKind::kRemove, {"b"}, {}};
  EXPECT_EQ(Patched(R"({"a":1,"b":{"c":[1]},"d":2})", {remove}), R"({"a":1,"d":2})");
  EXPECT_EQ(Patched(R"({"b":1, "d":2})", {remove}), R"({"d":2})");
  EXPECT_EQ(Patched(R"({"b":1, "b":2})", {remove}), R"({})");
  EXPECT_EQ(Patched("{\n  \"a\": 1,\n  \"b\": 1\n}\n", {remove}), "{\n  \"a\": 1\n}\n");
}

// PatchJson itself verifies the content of its result. This test checks on random documents that no
// edit is rejected, and that reverting the edits restores the document.
TEST(JsonPatcher, EditsOfRandomDocumentsCanBeReverted) {
  std::mt19937 random(7);
  const auto pick = [&](int n) { return static_cast<int>(random() % n); };
  const std::vector<std::string> gaps = {"", " ", "\n  ", "\t", "\r\n"};
  std::function<std::string(int)> value = [&](int depth) -> std::string {
    const auto gap = [&] { return gaps[pick(5)]; };
    switch (pick(depth > 3 ? 4 : 6)) {
      case 0:
        return "1.50e+3";
      case 1:
        return "\"\\\"}],{ \\u00e9\"";
      case 2:
        return "null";
      case 3:
        return "true";
      case 4: {
        std::string out = "[";
        for (int i = pick(3); i > 0; --i) out += gap() + value(depth + 1) + (i > 1 ? "," : "");
        return out + gap() + "]";
      }
      default: {
        std::string out = "{";
        for (int i = pick(4); i > 0; --i) {
          out += gap() + "\"k" + std::to_string(pick(9)) + "\"" + gap() + ":" + gap() +
                 value(depth + 1) + gap() + (i > 1 ? "," : "");
        }
        return out + gap() + "}";
      }
    }
  };
  int documents = 0;
  for (int i = 0; i < 800; ++i) {
    const std::string text = value(0);
    if (text.front() != '{') continue;
    ++documents;
    const auto edited = PatchJson(text, {kSetDefaultRuntime, kSetRuntime});
    ASSERT_TRUE(edited.ok()) << text << "\n" << edited.status().ToString();
    const auto reverted = PatchJson(*edited, {{EditKind::kRemove, {"default-runtime"}, {}},
                                              {EditKind::kRemove, {"runtimes"}, {}}});
    ASSERT_TRUE(reverted.ok()) << *edited;
    EXPECT_EQ(*ParseJson(*reverted), *ParseJson(text)) << text;
  }
  EXPECT_GT(documents, 100);
}

}  // namespace
}  // namespace tessera
