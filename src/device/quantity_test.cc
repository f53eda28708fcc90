// SPDX-License-Identifier: Apache-2.0
#include "src/device/quantity.h"

#include <gtest/gtest.h>

#include <string>

namespace tessera::device {
namespace {

TEST(QuantityTest, AgreesWithTheApiServer) {
  const struct {
    const char* text;
    int64_t value;
  } kCases[] = {
      {"0", 0},
      {"-0", 0},
      {"2", 2},
      {"+2", 2},
      {"007", 7},
      {"2.", 2},
      {"2.000", 2},
      {"2k", 2000},
      {"1.5k", 1500},
      {".5k", 500},
      {"1Ki", 1024},
      {"1Gi", 1 << 30},
      {"0.5Gi", 1 << 29},
      {"1e3", 1000},
      {"1E3", 1000},
      {"1e+3", 1000},
      {"2000e-3", 2},
      {"1E", 1'000'000'000'000'000'000},
      {"1000m", 1},
      {"3000000u", 3},
      {"3000000000n", 3},
      {"7Ei", 8'070'450'532'247'928'832},
      {"9223372036854775807", INT64_MAX},
      {"0e999999", 0},
      {"10000000000000000000e-1", 1'000'000'000'000'000'000},
      // Rounded up to nano, which gives a whole number here.
      {"0.9999999999", 1},
      {"9.99999999999", 10},
  };
  for (const auto& test : kCases) {
    const Result<int64_t> value = ParseWholeQuantity(test.text);
    ASSERT_TRUE(value.ok()) << test.text << ": " << value.status().ToString();
    EXPECT_EQ(*value, test.value) << test.text;
  }
}

TEST(QuantityTest, ReadsUpToAHundredAndTwentyEightCharacters) {
  EXPECT_EQ(*ParseWholeQuantity(std::string(127, '0') + "7"), 7);
  EXPECT_FALSE(ParseWholeQuantity(std::string(128, '0') + "7").ok());
}

TEST(QuantityTest, NamesTheReasonOfARejection) {
  const struct {
    std::string text;
    const char* message;
  } kCases[] = {
      {"500m", "\"500m\" is not a whole number"},
      {"0.5", "\"0.5\" is not a whole number"},
      {"1.1Ki", "\"1.1Ki\" is not a whole number"},
      {"1e-1000", "\"1e-1000\" is not a whole number"},
      {"1n", "\"1n\" is not a whole number"},
      {"-1", "\"-1\" is negative"},
      {"-1m", "\"-1m\" is negative"},
      {"9223372036854775808", "\"9223372036854775808\" is more than 9223372036854775807"},
      {"8Ei", "\"8Ei\" is more than 9223372036854775807"},
      {"10E", "\"10E\" is more than 9223372036854775807"},
      {"1e19", "\"1e19\" is more than 9223372036854775807"},
      {"1e1000", "\"1e1000\" is more than 9223372036854775807"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(ParseWholeQuantity(test.text).status().message(), test.message);
  }
}

TEST(QuantityTest, RejectsInvalidQuantities) {
  for (const std::string& text : std::initializer_list<std::string>{"",
                                                                    " ",
                                                                    "1 ",
                                                                    " 1",
                                                                    "1 Gi",
                                                                    ".",
                                                                    "+",
                                                                    "-",
                                                                    "--1",
                                                                    "+-1",
                                                                    "1e",
                                                                    "1e+",
                                                                    "1e+-3",
                                                                    "1e++3",
                                                                    "1e3k",
                                                                    "1K",
                                                                    "1ki",
                                                                    "1GiB",
                                                                    "1gi",
                                                                    "0x10",
                                                                    "1,5",
                                                                    "1.2.3",
                                                                    "NaN",
                                                                    "inf",
                                                                    "１",
                                                                    "1e1.5",
                                                                    "e3",
                                                                    "Gi",
                                                                    "1e99999999999999999999",
                                                                    std::string(129, '1')}) {
    EXPECT_EQ(ParseWholeQuantity(text).status().message(),
              fmt::format("\"{}\" is not a quantity like 2, 2k or 1Gi", text.substr(0, 128)));
  }
}

TEST(QuantityTest, CpuAndMemoryAreRoundedUp) {
  EXPECT_EQ(*ParseCpu("7910m"), MilliCpu(7910));
  EXPECT_EQ(*ParseCpu("4"), MilliCpu(4000));
  EXPECT_EQ(*ParseCpu("0.0001"), MilliCpu(1));
  EXPECT_EQ(*ParseCpu("1500001n"), MilliCpu(2));
  EXPECT_EQ(*ParseMemory("32Gi"), GiB(32));
  EXPECT_EQ(*ParseMemory("128974848500m"), Bytes(128974849));
  EXPECT_EQ(*ParseMemory("0"), Bytes(0));
  EXPECT_EQ(ParseCpu("1e16").status().message(), "\"1e16\" is more than 9223372036854775807");
  EXPECT_EQ(ParseCpu("-1").status().message(), "\"-1\" is negative");
  EXPECT_EQ(ParseMemory("1 Gi").status().message(), "\"1 Gi\" is not a quantity like 2, 2k or 1Gi");
}

}  // namespace
}  // namespace tessera::device
