// SPDX-License-Identifier: Apache-2.0
#include "src/base/units.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace tessera {
namespace {

TEST(UnitsTest, GibibytesAndMebibytesAddUpInBytes) {
  EXPECT_EQ(GiB(1), MiB(1024));
  EXPECT_EQ(ToMiB(GiB(80)), 81920);
}

TEST(UnitsTest, ArithmeticStaysInTheUnit) {
  EXPECT_EQ(MilliGpu(300) + MilliGpu(700), kWholeGpu);
  EXPECT_LT(MilliGpu(300) * 3, kWholeGpu);
}

TEST(UnitsTest, MemoryAndComputeDoNotMix) {
  EXPECT_FALSE((std::is_constructible_v<Bytes, MilliGpu>));
  EXPECT_FALSE((std::is_convertible_v<int64_t, Bytes>));
}

}  // namespace
}  // namespace tessera
