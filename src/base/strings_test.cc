// SPDX-License-Identifier: Apache-2.0
#include "src/base/strings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tessera {
namespace {

using ::testing::ElementsAre;

TEST(StringsTest, SplitKeepsEmptyPartsAndSplitListDropsThem) {
  EXPECT_THAT(Split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(Split("", ','), ElementsAre(""));
  EXPECT_THAT(SplitList(" a, ,b ,", ','), ElementsAre("a", "b"));
}

TEST(StringsTest, ParseIntWantsTheWholeText) {
  EXPECT_EQ(*ParseInt("-42"), -42);
  for (const char* bad : {"", "1.5", " 1", "1 ", "0x10", "99999999999999999999", "one"}) {
    EXPECT_EQ(ParseInt(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(StringsTest, HexRoundTripsAndRefusesOtherCharacters) {
  const std::string bytes("\x00\x7f\xff", 3);
  EXPECT_EQ(HexEncode(bytes), "007fff");
  EXPECT_EQ(*HexDecode("007FfF"), bytes);
  EXPECT_FALSE(HexDecode("0").ok());
  EXPECT_FALSE(HexDecode("zz").ok());
}

TEST(StringsTest, CutTextCutsAtACharacter) {
  EXPECT_EQ(CutText("abc", 3), "abc");
  EXPECT_EQ(CutText("abc", 2), "ab");
  EXPECT_EQ(CutText("a\u00e4", 2), "a");
  EXPECT_EQ(CutText("\u00e4", 1), "");
}

TEST(StringsTest, Utf8RefusesOverlongSurrogatesAndTruncation) {
  EXPECT_TRUE(IsValidUtf8("GPU \xe2\x9c\x93 \xf0\x9f\x98\x80"));
  for (const char* bad : {"\xc0\xaf", "\xed\xa0\x80", "\xe2\x9c", "\xff", "\xf4\x90\x80\x80"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
  }
}

}  // namespace
}  // namespace tessera
