// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/stream/kernel_times.h"

#include <gtest/gtest.h>

#include <map>

namespace tessera::cuda {
namespace {

TEST(KernelTimesTest, TheFirstItemOfTheKernelCounts) {
  constexpr char kSetting[] = "train=2000,*=50,train=1";
  EXPECT_EQ(KernelTimes::Find(kSetting, "train").Next(), 2000u);
  EXPECT_EQ(KernelTimes::Find(kSetting, "other").Next(), 50u);
  EXPECT_TRUE(KernelTimes::Find("train=2000", "other").empty());
  EXPECT_TRUE(KernelTimes::Find("", "train").empty());
}

TEST(KernelTimesTest, ARangeGivesEveryDurationBetweenItsEnds) {
  KernelTimes times = KernelTimes::Find("load=1000..3000", "load");
  uint64_t least = UINT64_MAX, most = 0, sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t ns = times.Next();
    least = std::min(least, ns);
    most = std::max(most, ns);
    sum += ns;
  }
  EXPECT_GE(least, 1000u);
  EXPECT_LT(least, 1020u);
  EXPECT_LE(most, 3000u);
  EXPECT_GT(most, 2980u);
  EXPECT_NEAR(double(sum) / 10'000, 2000, 30);
}

TEST(KernelTimesTest, AListGivesADurationAsOftenAsItIsListed) {
  KernelTimes times = KernelTimes::Find("k=500|500|500|9000", "k");
  std::map<uint64_t, int> counts;
  for (int i = 0; i < 10'000; ++i) ++counts[times.Next()];
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_NEAR(counts[500], 7500, 200);
  EXPECT_NEAR(counts[9000], 2500, 200);
}

TEST(KernelTimesTest, EveryRunGetsTheSameSequence) {
  KernelTimes first = KernelTimes::Find("k=1..1000000", "k");
  KernelTimes second = KernelTimes::Find("k=1..1000000", "k");
  for (int i = 0; i < 100; ++i) EXPECT_EQ(first.Next(), second.Next());
}

TEST(KernelTimesTest, InvalidDurationsAreIgnored) {
  for (const char* value : {"", "0", "x", "5x", "3..1", "1..2..3", "1|", "1||2", "..5", "1|x"}) {
    const std::string setting = std::string("k=") + value;
    const bool trailing = std::string(value) == "1|";  // an empty end of the list is no item
    EXPECT_EQ(KernelTimes::Find(setting, "k").empty(), !trailing) << value;
  }
}

TEST(KernelTimesTest, TheFirstInvalidItemIsFound) {
  for (const char* valid : {"", "k=5", "k=1..3,*=5|6", "k=1,"}) {
    EXPECT_EQ(KernelTimes::FirstInvalid(valid), "") << valid;
  }
  for (const char* invalid : {"foo", "step=abc", "step=-5", "*=1e99", "=5", "k=3..1", "k="}) {
    EXPECT_EQ(KernelTimes::FirstInvalid(invalid), invalid);
    EXPECT_EQ(KernelTimes::FirstInvalid(std::string("k=5,") + invalid + ",x=y"), invalid);
  }
}

}  // namespace
}  // namespace tessera::cuda
