// SPDX-License-Identifier: Apache-2.0
#include "src/formats/base64.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Base64Test, TextsRoundTrip) {
  for (const char* text : {"", "f", "fo", "foo", "\xfb\xff\xbf", "abcdefg"}) {
    EXPECT_EQ(Base64Decode(Base64Encode(text)).value(), text);
  }
  EXPECT_EQ(Base64Encode("fo"), "Zm8=");
}

TEST(Base64Test, DecodesWithWhiteSpaceAndRejectsInvalidText) {
  EXPECT_EQ(Base64Decode("").value(), "");
  EXPECT_EQ(Base64Decode("Zg==").value(), "f");
  EXPECT_EQ(Base64Decode("Zm8=\n").value(), "fo");
  EXPECT_EQ(Base64Decode("Zm 9v").value(), "foo");
  EXPECT_EQ(Base64Decode("+/+/").value(), "\xfb\xff\xbf");
  for (const char* bad : {"Zg", "Zg=", "Z===", "Zg==Zg==", "Z!==", "===="}) {
    EXPECT_FALSE(Base64Decode(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tessera
