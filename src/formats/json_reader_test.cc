// SPDX-License-Identifier: Apache-2.0
#include "src/formats/json_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "src/formats/json.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(JsonReader, WalksMembersAndItems) {
  JsonReader reader(R"( {"a" : [ "x", "y" ] , "b": {"c": [1, {"d": "]"}]}, "n": null, "i": -7} )");
  std::string_view key;
  std::vector<std::string> names, keys;
  std::string_view skipped;
  int64_t number = 0;
  ASSERT_TRUE(reader.BeginObject());
  while (reader.NextMember(&key)) {
    keys.emplace_back(key);
    if (key == "a") {
      for (reader.BeginArray(); reader.NextItem();) names.emplace_back(reader.String());
    } else if (key == "b") {
      skipped = reader.Skip();
    } else if (key == "n") {
      EXPECT_TRUE(reader.TakeNull());
    } else {
      EXPECT_FALSE(reader.TakeNull());
      number = reader.Int();
    }
  }
  EXPECT_TRUE(reader.Finish().ok()) << reader.status().ToString();
  EXPECT_THAT(keys, ElementsAre("a", "b", "n", "i"));
  EXPECT_THAT(names, ElementsAre("x", "y"));
  EXPECT_EQ(skipped, R"({"c": [1, {"d": "]"}]})");
  EXPECT_EQ(number, -7);
}

TEST(JsonReader, KeepsStringsWithEscapesBesideTheText) {
  JsonReader reader(R"(["plain","a\"\u00e9\n","\\"])");
  std::vector<std::string_view> texts;
  for (reader.BeginArray(); reader.NextItem();) texts.push_back(reader.String());
  EXPECT_TRUE(reader.Finish().ok());
  EXPECT_THAT(texts, ElementsAre("plain", "a\"\xC3\xA9\n", "\\"));
}

TEST(JsonReader, EmptyBracketsHaveNoElements) {
  JsonReader reader(R"([{},[]])");
  std::string_view key;
  ASSERT_TRUE(reader.BeginArray());
  ASSERT_TRUE(reader.NextItem());
  ASSERT_TRUE(reader.BeginObject());
  EXPECT_FALSE(reader.NextMember(&key));
  ASSERT_TRUE(reader.NextItem());
  ASSERT_TRUE(reader.BeginArray());
  EXPECT_FALSE(reader.NextItem());
  EXPECT_FALSE(reader.NextItem());
  EXPECT_TRUE(reader.Finish().ok());
}

// Reading an invalid text always ends, with an error that contains the position.
TEST(JsonReader, RejectsInvalidJson) {
  for (const char* text : {"", "{", "[", "[\"a", "[\"a\"", "[\"a\" \"b\"]", "{\"a\"}", "{\"a\":}",
                           "{\"a\":1,}", "{\"a\":[1,2}", "[1}", "{\"a\":1} x", "[\"\\u12\"]",
                           "[\"\\", "[\"\x01\"]", "nul", "{1:2}"}) {
    JsonReader reader(text);
    if (reader.Peek() == '{') {
      std::string_view key;
      reader.BeginObject();
      while (reader.NextMember(&key)) reader.Skip();
    } else {
      for (reader.BeginArray(); reader.NextItem();) reader.String();
    }
    EXPECT_FALSE(reader.Finish().ok()) << text;
  }
  JsonReader reader("[\"a\" \"b\"]");
  for (reader.BeginArray(); reader.NextItem();) reader.String();
  EXPECT_THAT(reader.Finish().message(), HasSubstr("byte 5: expected ',' or ']'"));
}

TEST(JsonReader, RejectsMoreDepthThanAllowed) {
  const std::string deep = std::string(100'000, '[');
  JsonReader skips(deep);
  EXPECT_TRUE(skips.Skip().empty());
  EXPECT_FALSE(skips.Finish().ok());
  JsonReader begins(deep);
  while (begins.BeginArray()) {
  }
  EXPECT_FALSE(begins.Finish().ok());
}

TEST(JsonReader, AnIntegerIsAWholeNumber) {
  for (const char* text : {"1.5", "\"1\"", "99999999999999999999", "true"}) {
    JsonReader reader(text);
    reader.Int();
    EXPECT_FALSE(reader.Finish().ok()) << text;
  }
}

// Compares Strings with reading the items one by one.
TEST(JsonReader, StringsReadsTheSameListAsNextItemAndString) {
  for (const std::string_view text :
       {R"([])", R"(["a"])", R"(["a","b","c"])", R"([ "a" , "b","c" ])",
        R"(["a","\u0062","c","d"])", R"(["a\"","b"])", R"(["a",)", R"(["a","b)", R"(["a","b\)",
        R"(["a",7])", R"(["a" "b"])", R"(["a",])", "[\"a\",\"b\n\"]", R"(["","",""])", R"({})",
        R"(["a","b"]x)"}) {
    JsonReader one_by_one(text), at_once(text);
    std::vector<std::string_view> expected, expected_quoted, strings, quoted;
    for (one_by_one.BeginArray(); one_by_one.NextItem();) {
      expected.push_back(one_by_one.String(&expected_quoted.emplace_back()));
    }
    if (at_once.BeginArray()) at_once.Strings(100, &strings, &quoted);
    EXPECT_EQ(at_once.Finish().message(), one_by_one.Finish().message()) << text;
    EXPECT_EQ(strings, expected) << text;
    EXPECT_EQ(quoted, expected_quoted) << text;
  }
  JsonReader many(R"(["a","b","c","d"])");
  std::vector<std::string_view> strings, quoted;
  many.BeginArray();
  many.Strings(3, &strings, &quoted);
  EXPECT_THAT(many.Finish().message(), HasSubstr("no more than 3"));
  EXPECT_THAT(strings, ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace tessera
