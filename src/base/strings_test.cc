// SPDX-License-Identifier: Apache-2.0
#include "src/base/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tessera {
namespace {

using ::testing::ElementsAre;

TEST(StringsTest, SplitKeepsEmptyPartsAndSplitListDropsThem) {
  EXPECT_THAT(Split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
  EXPECT_THAT(SplitList(" a, ,b ,", ','), ElementsAre("a", "b"));
}

TEST(StringsTest, ValueAtIsEmptyForAMissingKey) {
  const StringMap map = {{"a", "1"}};
  EXPECT_EQ(ValueAt(map, "a"), "1");
  EXPECT_EQ(ValueAt(map, "b"), "");
}

TEST(StringsTest, ParseIntRejectsTextAroundTheNumber) {
  EXPECT_EQ(*ParseInt("-42"), -42);
  for (const char* bad : {"", "1.5", " 1", "1 ", "0x10", "99999999999999999999", "one"}) {
    EXPECT_EQ(ParseInt(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(StringsTest, HexRoundTripsAndRejectsOtherCharacters) {
  const std::string bytes("\x00\x7f\xff", 3);
  EXPECT_EQ(HexEncode(bytes), "007fff");
  EXPECT_EQ(*HexDecode("007FfF"), bytes);
  EXPECT_FALSE(HexDecode("0").ok());
  EXPECT_FALSE(HexDecode("zz").ok());
}

TEST(StringsTest, TruncateUtf8CutsBetweenCharacters) {
  EXPECT_EQ(TruncateUtf8("abc", 3), "abc");
  EXPECT_EQ(TruncateUtf8("abc", 2), "ab");
  EXPECT_EQ(TruncateUtf8("a\u00e4", 2), "a");
  EXPECT_EQ(TruncateUtf8("\u00e4", 1), "");
}

TEST(StringsTest, Utf8RejectsOverlongFormsSurrogatesAndTruncatedCharacters) {
  EXPECT_TRUE(IsValidUtf8("GPU \xe2\x9c\x93 \xf0\x9f\x98\x80"));
  for (const char* bad : {"\xc0\xaf", "\xed\xa0\x80", "\xe2\x9c", "\xff", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

TEST(DnsNameTest, AcceptsOnlySubdomainsAsDefinedByRfc1123) {
  const std::string label(63, 'a');
  for (const std::string& name : {std::string("a"), std::string("0.a-b.svc"), label,
                                  label + "." + label + "." + label + "." + std::string(61, 'b')}) {
    EXPECT_TRUE(IsDnsName(name)) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("A"), std::string("a..b"), std::string(".a"), std::string("a."),
        std::string("-a"), std::string("a-"), std::string("a_b"), std::string("a b"),
        std::string("*.a"), label + "a",
        label + "." + label + "." + label + "." + std::string(62, 'b')}) {
    EXPECT_FALSE(IsDnsName(name)) << name;
  }
}

TEST(StringsTest, Fnv1aMatchesPublishedVectorsAndContinuesAHash) {
  EXPECT_EQ(Fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(Fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(Fnv1a("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(Fnv1a("bar", Fnv1a("foo")), Fnv1a("foobar"));
}

}  // namespace
}  // namespace tessera
