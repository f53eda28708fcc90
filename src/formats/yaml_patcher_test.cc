// SPDX-License-Identifier: Apache-2.0
#include "src/formats/text_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/formats/yaml.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

TextEdit SetAt(KeyPath path, Json value) { return {EditKind::kSet, std::move(path), value}; }
TextEdit RemoveAt(KeyPath path) { return {EditKind::kRemove, std::move(path), {}}; }

std::string PatchedYaml(std::string_view text, const std::vector<TextEdit>& edits) {
  auto result = PatchYaml(text, edits);
  return result.ok() ? *result : result.status().ToString();
}

constexpr const char* kPodYaml = R"(# a pod
metadata:
    name: web   # short
    labels: {app: web, tier: "1"}
spec:
    containers:
    - name: main
      image: 'nginx:1'
      args: [--hold, "3600"]  # an hour
      resources:
        limits:
          # in hundredths
          tencent.com/vcuda-core: 30

          tencent.com/vcuda-memory: "20"
    # the second one
    - {name: side, image: bäcker:2}
    nodeSelector:
      disk: ssd
)";
// The text above with `part` replaced.
std::string PodWith(std::string_view part, std::string_view replacement) {
  std::string text = kPodYaml;
  const size_t at = text.find(part);
  return at == std::string::npos ? "no such part" : text.replace(at, part.size(), replacement);
}

TEST(YamlPatcher, ReplacesOnlyTheValue) {
  EXPECT_EQ(PatchedYaml(kPodYaml, {SetAt({"metadata", "name"}, Json::String("other"))}),
            PodWith("web   # short", "other   # short"));
  EXPECT_EQ(PatchedYaml(kPodYaml, {SetAt({"metadata", "labels", "app"}, Json::String("other"))}),
            PodWith("app: web", "app: other"));
  EXPECT_EQ(
      PatchedYaml(kPodYaml, {SetAt({"spec", "containers", "0", "image"}, Json::String("nginx:2"))}),
      PodWith("'nginx:1'", "\"nginx:2\""));
  EXPECT_EQ(
      PatchedYaml(kPodYaml, {SetAt({"spec", "containers", "1", "image"}, Json::String("b/é:3"))}),
      PodWith("bäcker:2", "b/é:3"));
  EXPECT_EQ(PatchedYaml(kPodYaml, {SetAt({"spec", "containers", "0", "resources", "limits",
                                          "tencent.com/vcuda-memory"},
                                         Json::Int(8))}),
            PodWith("\"20\"", "8"));
}

TEST(YamlPatcher, AddsMembersWithTheIndentationOfTheirNeighbors) {
  EXPECT_EQ(PatchedYaml(kPodYaml, {SetAt({"metadata", "annotations", "a/b"}, Json::String("T4"))}),
            PodWith("\"1\"}\n", "\"1\"}\n    annotations:\n      a/b: T4\n"));
  EXPECT_EQ(PatchedYaml(kPodYaml, {SetAt({"metadata", "labels", "x"}, Json::String("z"))}),
            PodWith("\"1\"}", "\"1\", x: z}"));
  EXPECT_EQ(PatchedYaml(kPodYaml, {SetAt({"spec", "containers", "1", "resources", "limits", "gpu"},
                                         Json::Int(2))}),
            PodWith("bäcker:2}", "bäcker:2, resources: {\"limits\":{\"gpu\":2}}}"));
  EXPECT_EQ(PatchedYaml(kPodYaml, {SetAt({"spec", "containers", "0", "resources", "limits", "gpu"},
                                         Json::Int(2))}),
            PodWith("\"20\"\n", "\"20\"\n          gpu: 2\n"));
  EXPECT_EQ(PatchedYaml("a: 1", {SetAt({"b"}, Json::Int(2))}), "a: 1\nb: 2");
  EXPECT_EQ(PatchedYaml("a: {}\n", {SetAt({"a", "b"}, Json::Int(2))}), "a: {b: 2}\n");
  EXPECT_EQ(PatchedYaml("t: |\n  x\n  y\n\nz: 1\n", {SetAt({"t"}, Json::String("one"))}),
            "t: one\n\nz: 1\n");
}

TEST(YamlPatcher, RemovesMembersWithTheirLines) {
  EXPECT_EQ(PatchedYaml(kPodYaml, {RemoveAt({"spec", "containers", "0", "args"})}),
            PodWith("      args: [--hold, \"3600\"]  # an hour\n", ""));
  EXPECT_EQ(PatchedYaml(kPodYaml, {RemoveAt({"metadata", "labels", "app"})}),
            PodWith("app: web, ", ""));
  EXPECT_EQ(PatchedYaml(kPodYaml, {RemoveAt({"metadata", "labels", "tier"})}),
            PodWith(", tier: \"1\"", ""));
  EXPECT_EQ(PatchedYaml(kPodYaml, {RemoveAt({"spec", "nodeSelector"})}),
            PodWith("    nodeSelector:\n      disk: ssd\n", ""));
  EXPECT_EQ(PatchedYaml(kPodYaml, {RemoveAt({"spec", "missing"})}), kPodYaml);
}

TEST(YamlPatcher, AnEditThatChangesNothingKeepsTheBytes) {
  EXPECT_EQ(
      PatchedYaml(kPodYaml, {SetAt({"spec", "containers", "0", "image"}, Json::String("nginx:1"))}),
      kPodYaml);
}

TEST(YamlPatcher, QuotesTextsThatWouldReadAsAnotherType) {
  EXPECT_EQ(PatchedYaml("a: b\n", {SetAt({"a"}, Json::String("true"))}), "a: \"true\"\n");
  EXPECT_EQ(PatchedYaml("a: b\n", {SetAt({"a"}, Json::String("x: y #z"))}), "a: \"x: y #z\"\n");
  EXPECT_EQ(PatchedYaml("{a: b}\n", {SetAt({"a"}, Json::String("x, y"))}), "{a: \"x, y\"}\n");
  EXPECT_EQ(PatchedYaml("a:\nb: 1\n", {SetAt({"a"}, Json::String("x"))}), "a: x\nb: 1\n");
}

TEST(YamlPatcher, KeepsAByteOrderMarkAndCarriageReturns) {
  EXPECT_EQ(PatchedYaml("\xEF\xBB\xBF# é\r\na: 1\r\nb: 2\r\n", {SetAt({"a"}, Json::Int(3))}),
            "\xEF\xBB\xBF# é\r\na: 3\r\nb: 2\r\n");
}

TEST(YamlPatcher, RewritesALayoutThatItCannotKeep) {
  // The content of the result is right although its layout is new.
  EXPECT_EQ(PatchedYaml("a: # list\n- 1\nb: 2\n", {SetAt({"a"}, Json::Int(3))}), "a: 3\nb: 2\n");
  EXPECT_EQ(PatchedYaml("a:  # none yet\nb: 2\n", {SetAt({"a", "c"}, Json::Int(3))}),
            "a:\n  c: 3\nb: 2\n");
  EXPECT_EQ(PatchedYaml("l:\n- a: 1\n  b: 2 # two\n", {RemoveAt({"l", "0", "a"})}), "l:\n- b: 2\n");
  EXPECT_EQ(PatchedYaml("a:\n  b: 1\n", {RemoveAt({"a", "b"})}), "a: {}\n");
}

TEST(YamlPatcher, RejectsADocumentThatIsNotAMapping) {
  EXPECT_THAT(PatchedYaml("- 1\n", {SetAt({"a"}, Json::Int(3))}), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(PatchedYaml("", {SetAt({"a"}, Json::Int(3))}), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(PatchedYaml("a: [", {SetAt({"a"}, Json::Int(3))}), HasSubstr("line 2"));
  EXPECT_THAT(PatchedYaml("a: 1\n", {SetAt({"a", "b"}, Json::Int(3))}),
              HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(PatchedYaml("a: [1]\n", {SetAt({"a", "1", "b"}, Json::Int(3))}),
              HasSubstr("the list has no item 1"));
  EXPECT_THAT(PatchedYaml("a: [1]\n", {SetAt({"a", "0", "b"}, Json::Int(3))}),
              HasSubstr("INVALID_ARGUMENT"));
}

// Each value is set at each place and removed again. Removing it twice changes nothing more.
TEST(YamlPatcher, EveryPathCanBeSetAndRemoved) {
  const std::vector<KeyPath> places = {{"metadata"},
                                       {"metadata", "name"},
                                       {"metadata", "labels", "tier"},
                                       {"spec", "containers", "0", "name"},
                                       {"spec", "containers", "0", "args"},
                                       {"spec", "containers", "0", "resources"},
                                       {"spec", "containers", "1", "name"},
                                       {"spec", "nodeSelector", "disk"},
                                       {"spec", "nodeSelector", "new"}};
  const std::vector<Json> values = {Json::Int(7), Json::String("x: y"), Json::String("plain"),
                                    Json::Strings({"a", "b"}),
                                    Json::MakeObject({{"k", Json::Bool(true)}})};
  for (const KeyPath& place : places) {
    for (const Json& value : values) {
      const auto text = PatchYaml(kPodYaml, {SetAt(place, value)});
      ASSERT_TRUE(text.ok()) << text.status().ToString();
      const Json read = ParseYaml(*text).value();
      const Json* at = &read;
      for (const std::string& key : place) {
        at = at->is_array() ? &at->items()[static_cast<size_t>(std::stoi(key))] : at->Find(key);
        ASSERT_NE(at, nullptr) << *text;
      }
      EXPECT_EQ(*at, value) << *text;
      const auto removed = PatchYaml(*text, {RemoveAt(place)});
      ASSERT_TRUE(removed.ok());
      EXPECT_EQ(PatchYaml(*removed, {RemoveAt(place)}).value(), *removed);
    }
  }
}

}  // namespace
}  // namespace tessera
