// SPDX-License-Identifier: Apache-2.0
#include "src/formats/wire_reader.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace tessera {
namespace {

using namespace std::string_literals;

TEST(WireReaderTest, ReadsFieldsInTheirOrder) {
  // The examples of the encoding's documentation: a varint 150, a text, and fields to skip.
  const std::string message = "\x08\x96\x01\x12\x07testing\x19"s + "12345678" + "\x25" + "1234" +
                              "\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
  WireReader reader(message);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.field(), 1u);
  EXPECT_EQ(reader.Varint(), 150u);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.Bytes(), "testing");
  ASSERT_TRUE(reader.Next());
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.field(), 4u);
  ASSERT_TRUE(reader.Next());
  EXPECT_EQ(reader.Int(), -1);
  EXPECT_FALSE(reader.Next());
  EXPECT_TRUE(reader.status().ok());
}

TEST(WireReaderTest, AnEmptyMessageIsWellFormed) {
  WireReader reader("");
  EXPECT_FALSE(reader.Next());
  EXPECT_TRUE(reader.status().ok());
}

TEST(WireReaderTest, RejectsTruncatedAndUnknownInput) {
  for (const std::string& bad :
       {"\x08"s, "\x08\x80"s, "\x12\x05gone"s, "\x12"s,
        "\x19"
        "1234"s,
        "\x00\x01"s, "\x0b\x0c"s, "\x0e"s, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"s}) {
    WireReader reader(bad);
    while (reader.Next()) {
    }
    EXPECT_EQ(reader.status().code(), Code::kInvalidArgument);
    EXPECT_FALSE(reader.Next());
  }
}

TEST(WireReaderTest, AValueOfTheWrongTypeIsAnError) {
  const std::string one = "\x08\x01";
  WireReader number(one);
  ASSERT_TRUE(number.Next());
  EXPECT_EQ(number.Bytes(), "");
  EXPECT_FALSE(number.status().ok());
  const std::string letter = "\x12\x01x";
  WireReader text(letter);
  ASSERT_TRUE(text.Next());
  EXPECT_EQ(text.Varint(), 0u);
  EXPECT_FALSE(text.Next());
}

TEST(WireReaderTest, NeverReadsPastTheEndOfRandomBytes) {
  std::mt19937 random(1);
  for (int message = 0; message < 20000; ++message) {
    // On the heap with exact size, so that sanitizers detect reading past the end.
    std::string bytes(random() % 24, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 ? random() % 32 : random());
    bytes.shrink_to_fit();
    WireReader reader(bytes);
    size_t seen = 0;
    while (reader.Next()) seen += reader.field() % 2 ? reader.Bytes().size() : reader.Varint() % 2;
    EXPECT_LE(seen, bytes.size());
  }
}

}  // namespace
}  // namespace tessera
