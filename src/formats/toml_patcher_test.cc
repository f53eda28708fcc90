// SPDX-License-Identifier: Apache-2.0
#include "src/formats/text_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "src/formats/toml.h"

namespace tessera {
namespace {

std::string Patched(std::string_view text, const std::vector<TextEdit>& edits) {
  auto result = PatchToml(text, edits);
  return result.ok() ? *result : result.status().ToString();
}
TextEdit Set(KeyPath path, Json value) {
  return {EditKind::kSet, std::move(path), std::move(value)};
}
TextEdit SetText(KeyPath path, std::string_view value) {
  return Set(std::move(path), Json::String(value));
}
TextEdit Append(KeyPath path, std::string_view value) {
  return {EditKind::kAppend, std::move(path), Json::String(value)};
}
TextEdit RemoveItem(KeyPath path, std::string_view value) {
  return {EditKind::kRemoveItem, std::move(path), Json::String(value)};
}
TextEdit Remove(KeyPath path) { return {EditKind::kRemove, std::move(path), {}}; }

TEST(TomlPatcher, ReplacesAValueAndKeepsTheComment) {
  EXPECT_EQ(Patched("a   = 'x'   # why\nb=1\n", {SetText({"a"}, "y")}),
            "a   = \"y\"   # why\nb=1\n");
}

TEST(TomlPatcher, AddsAKeyBelowItsNeighbors) {
  EXPECT_EQ(Patched("[a]\n  x = 1\n  # tail\n\n[b]\n", {SetText({"a", "y"}, "v")}),
            "[a]\n  x = 1\n  y = \"v\"\n  # tail\n\n[b]\n");
  EXPECT_EQ(Patched("[a]\n[b]\n  x = 1\n", {SetText({"a", "y"}, "v")}),
            "[a]\n  y = \"v\"\n[b]\n  x = 1\n");
}

TEST(TomlPatcher, AddsATableAfterItsSiblings) {
  EXPECT_EQ(Patched("[p.r.runc]\n  x = 1\n[z]\nq = 1", {SetText({"p", "r", "nvidia", "y"}, "v")}),
            "[p.r.runc]\n  x = 1\n\n[p.r.nvidia]\n  y = \"v\"\n[z]\nq = 1");
  EXPECT_EQ(Patched("[z]\nq = 1", {SetText({"p", "y"}, "v")}), "[z]\nq = 1\n\n[p]\ny = \"v\"\n");
}

TEST(TomlPatcher, RootKeysGoAboveTheFirstHeaderAndItsComment) {
  EXPECT_EQ(Patched("# license\n\n# about a\n[a]\n", {SetText({"k"}, "v")}),
            "# license\n\nk = \"v\"\n\n# about a\n[a]\n");
  EXPECT_EQ(Patched("version = 2\n[a]\n", {Append({"imports"}, "/x")}),
            "version = 2\nimports = [\"/x\"]\n[a]\n");
  EXPECT_EQ(Patched("", {SetText({"k"}, "v")}), "k = \"v\"\n");
  EXPECT_EQ(Patched("# only", {SetText({"k"}, "v")}), "# only\nk = \"v\"\n");
}

TEST(TomlPatcher, InlineTablesAndDottedKeysKeepTheirForm) {
  EXPECT_EQ(Patched("a = { b = { c = 1 }, d = 2 } # x\n", {SetText({"a", "b", "e"}, "v")}),
            "a = { b = { c = 1, e = \"v\" }, d = 2 } # x\n");
  EXPECT_EQ(Patched("a = {}\n", {SetText({"a", "b", "e"}, "v")}), "a = { b.e = \"v\" }\n");
  EXPECT_EQ(Patched("[t]\na.b.c = 1\nz = 1\n", {SetText({"t", "a", "b", "d"}, "v")}),
            "[t]\na.b.c = 1\na.b.d = \"v\"\nz = 1\n");
  EXPECT_EQ(Patched("a.b = 1\n[c]\n", {SetText({"a", "x", "y"}, "v")}),
            "a.b = 1\na.x.y = \"v\"\n[c]\n");
}

TEST(TomlPatcher, QuotedKeysEqualBareKeys) {
  EXPECT_EQ(
      Patched("[plugins.'io.x'.\"c\\u0064\"]\n", {SetText({"plugins", "io.x", "cd", "k"}, "v")}),
      "[plugins.'io.x'.\"c\\u0064\"]\nk = \"v\"\n");
}

TEST(TomlPatcher, AppendsToArraysInTheirStyle) {
  EXPECT_EQ(Patched("i = ['a'] # c\n", {Append({"i"}, "b")}), "i = ['a', \"b\"] # c\n");
  EXPECT_EQ(Patched("i = [\n  'a', # one, two\n]\n", {Append({"i"}, "b")}),
            "i = [\n  'a',\n  \"b\", # one, two\n]\n");
  EXPECT_EQ(Patched("i = []\n", {Append({"i"}, "b")}), "i = [\"b\"]\n");
  EXPECT_EQ(Patched("i = ['b']\n", {Append({"i"}, "b")}), "i = ['b']\n");
  EXPECT_EQ(Patched("i = ['a', 'b']\n", {RemoveItem({"i"}, "b")}), "i = ['a']\n");
  EXPECT_EQ(Patched("i = ['b', 'a']\n", {RemoveItem({"i"}, "b")}), "i = ['a']\n");
  EXPECT_EQ(Patched("i = [\n 'a', # x\n 'b', # y\n]\n", {RemoveItem({"i"}, "b")}),
            "i = [\n 'a' # x\n , # y\n]\n");
}

TEST(TomlPatcher, RemovesATableWithItsSubtables) {
  EXPECT_EQ(Patched("[p.r.a]\nx = 1\n\n[p.r.n]\ny = 1\n[p.r.n.o]\nz = 1\n\n[q]\n",
                    {Remove({"p", "r", "n"})}),
            "[p.r.a]\nx = 1\n\n[q]\n");
  EXPECT_EQ(Patched("a = { n = 1, b = 2 }\n", {Remove({"a", "n"})}), "a = { b = 2 }\n");
}

TEST(TomlPatcher, KeepsCarriageReturns) {
  EXPECT_EQ(Patched("version = 2\r\n[a]\r\nx = 1", {SetText({"a", "y"}, "v")}),
            "version = 2\r\n[a]\r\nx = 1\r\ny = \"v\"\r\n");
}

TEST(TomlPatcher, MultiLineStringsAreOneValue) {
  const std::string text = "a = \"\"\"\n[b]\nx = 1 \\\"\"\"\"\nc = '''\n# ''''\n[b]\n";
  EXPECT_EQ(Patched(text, {SetText({"b", "x"}, "v")}), text + "x = \"v\"\n");
}

TEST(TomlPatcher, RejectsValuesThatAreNotTables) {
  EXPECT_EQ(PatchToml("a = 1\n", {SetText({"a", "b"}, "v")}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(PatchToml("[[a]]\nx = 1\n", {SetText({"a", "b"}, "v")}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(PatchToml("a = [1\n", {SetText({"b"}, "v")}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(PatchToml("a = '\xFF'\n", {SetText({"b"}, "v")}).status().code(),
            Code::kInvalidArgument);
}

TEST(TomlPatcher, ErrorsNameTheLine) {
  EXPECT_THAT(PatchToml("a = 1\nb = = 2\n", {}).status().message(), ::testing::HasSubstr("line 2"));
}

// Random documents in every notation: an edit is never rejected, and the opposite edit restores the
// document.
TEST(TomlPatcher, EditsOfRandomDocumentsCanBeReverted) {
  std::mt19937 random(11);
  const auto pick = [&](size_t n) { return random() % n; };
  const std::vector<std::string> keys = {"a", "\"b.c\"", "'d'", "e-1"};
  const std::vector<std::string> values = {"1",
                                           "'x # y'",
                                           "\"q\\\"]\"",
                                           "[1, 2,\n 3] # c",
                                           "{ k = 1, l = [ {m=1} ] }",
                                           "'''\n[x]\n'''",
                                           "1979-05-27",
                                           "true"};
  for (int document = 0; document < 600; ++document) {
    std::string text;
    const std::string eol = pick(4) == 0 ? "\r\n" : "\n";
    for (size_t i = pick(3); i > 0; --i) text += fmt::format("r{} = {}{}", i, values[pick(8)], eol);
    if (pick(3) == 0) text += "z.y.x = 1" + eol;
    std::vector<std::string> used;
    for (size_t i = pick(4); i > 0; --i) {
      std::string header = "p";
      for (size_t k = pick(3); k > 0; --k) header += "." + keys[pick(4)];
      if (std::find(used.begin(), used.end(), header) != used.end()) continue;
      used.push_back(header);
      text += fmt::format("{}[{}] # h{}", std::string(pick(3), ' '), header, eol);
      for (size_t k = pick(3); k > 0; --k) {
        text += fmt::format("{}k{}{}{}{}", std::string(pick(3), ' '), k, pick(2) ? "=" : " = ",
                            values[pick(8)], eol);
      }
      if (pick(3) == 0) text += eol + "# note" + eol;
    }
    if (pick(4) == 0) text += "[[t]]" + eol + "u = 1";
    if (!ParseToml(text).ok()) continue;
    const std::vector<TextEdit> edits = {
        SetText({"p", "a", "new", "x"}, "v"), Set({"p", "a", "new", "o", "y"}, Json::Bool(true)),
        SetText({"p", "name"}, "n"), Append({"imports"}, "/c/*.toml"),
        SetText({"z", "y", "w"}, "v")};
    const auto edited = PatchToml(text, edits);
    ASSERT_TRUE(edited.ok()) << text << "\n----\n" << edited.status().ToString();
    EXPECT_EQ(*PatchToml(*edited, edits), *edited);
    const auto reverted = PatchToml(*edited, {Remove({"p", "a", "new"}), Remove({"p", "name"}),
                                              Remove({"imports"}), Remove({"z", "y", "w"})});
    ASSERT_TRUE(reverted.ok()) << *edited << "\n----\n" << reverted.status().ToString();
  }
}

}  // namespace
}  // namespace tessera
