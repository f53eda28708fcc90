// SPDX-License-Identifier: Apache-2.0
#include "src/device/memory_limit.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

TEST(MemoryLimitTest, TheLastThatFitsCounts) {
  const auto limits = ParseMemoryLimits("8Gi, main=4Gi,GPU-1=1Gi");
  ASSERT_TRUE(limits.ok()) << limits.status().ToString();
  EXPECT_EQ(LimitFor(*limits, "other", "GPU-0"), GiB(8));
  EXPECT_EQ(LimitFor(*limits, "main", "GPU-0"), GiB(4));
  EXPECT_EQ(LimitFor(*limits, "main", "GPU-1"), GiB(1));
  EXPECT_EQ(LimitFor({}, "main", "GPU-1"), std::nullopt);
  EXPECT_EQ(LimitFor(*ParseMemoryLimits("main=4Gi"), "other", "GPU-0"), std::nullopt);
}

TEST(MemoryLimitTest, WhatIsNoLimitIsRejected) {
  EXPECT_TRUE(ParseMemoryLimits("")->empty());
  for (const char* text :
       {"8 Gi", "0", "-1Gi", "main", "=4Gi", "8Gi,", "main=", "1Mi", "a=b=1Gi"}) {
    const auto limits = ParseMemoryLimits(text);
    EXPECT_EQ(limits.status().code(), Code::kInvalidArgument) << text;
    EXPECT_NE(limits.status().message().find('"'), std::string::npos) << limits.status().message();
  }
}

}  // namespace
}  // namespace tessera::device
