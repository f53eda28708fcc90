// SPDX-License-Identifier: Apache-2.0
#include "src/device/limit_annotations.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

TEST(LimitAnnotationsTest, TheLastMatchingEntryCounts) {
  const auto limits = ParseMemoryLimits("8Gi, main=4Gi,GPU-1=1Gi");
  ASSERT_TRUE(limits.ok()) << limits.status().ToString();
  EXPECT_EQ(LimitFor(*limits, "other", "GPU-0"), GiB(8));
  EXPECT_EQ(LimitFor(*limits, "main", "GPU-0"), GiB(4));
  EXPECT_EQ(LimitFor(*limits, "main", "GPU-1"), GiB(1));
  EXPECT_EQ(LimitFor(GpuLimits<Bytes>{}, "main", "GPU-1"), std::nullopt);
  EXPECT_EQ(LimitFor(*ParseMemoryLimits("main=4Gi"), "other", "GPU-0"), std::nullopt);
}

TEST(LimitAnnotationsTest, ComputeCountsInHundredths) {
  const auto limits = ParseComputeLimits("100,main=20");
  ASSERT_TRUE(limits.ok()) << limits.status().ToString();
  EXPECT_EQ(LimitFor(*limits, "other", "GPU-0"), MilliGpu(1000));
  EXPECT_EQ(LimitFor(*limits, "main", "GPU-0"), MilliGpu(200));
}

TEST(LimitAnnotationsTest, ThereAreThreeComputeClasses) {
  EXPECT_TRUE(CheckComputeClass("high").ok());
  EXPECT_TRUE(CheckComputeClass("normal").ok());
  EXPECT_TRUE(CheckComputeClass("low").ok());
  EXPECT_EQ(CheckComputeClass("High").message(), "\"High\" is none of high, normal, low");
}

TEST(LimitAnnotationsTest, InvalidLimitsAreRejected) {
  EXPECT_TRUE(ParseMemoryLimits("")->empty());
  EXPECT_TRUE(ParseComputeLimits("")->empty());
  const auto expect_rejected = [](const Status& status, const char* text) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find('"'), std::string::npos) << status.message();
  };
  for (const char* text : {"8 Gi", "0", "-1Gi", "main", "=4Gi", "8Gi,", "main=", "1Mi", "a=b=1Gi",
                           "8Gi,4Gi", "main=1Gi,8Gi,main=2Gi"}) {
    expect_rejected(ParseMemoryLimits(text).status(), text);
  }
  for (const char* text : {"0", "101", "-1", "0.2", "20%", "main", "=20", "20,", "main=", "1Gi"}) {
    expect_rejected(ParseComputeLimits(text).status(), text);
  }
  EXPECT_EQ(ParseComputeLimits("20%").status().message(),
            "\"20%\": want 1 to 100 hundredths of a GPU, such as 20");
  EXPECT_EQ(ParseMemoryLimits("main=1Gi,main=2Gi").status().message(),
            "\"main=2Gi\": main already has a limit in this list: want one");
}

}  // namespace
}  // namespace tessera::device
