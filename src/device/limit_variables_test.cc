// SPDX-License-Identifier: Apache-2.0
#include "src/device/limit_variables.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

const std::vector<DeviceShare> kTwoShares = {{.uuid = "GPU-a"}, {.uuid = "GPU-b"}};

std::optional<int64_t> Memory(const StringMap& variables, const std::string& uuid) {
  const auto limits = MemoryLimitsOf(variables, kTwoShares);
  EXPECT_TRUE(limits.ok()) << limits.status().ToString();
  const auto limit = limits.ok() ? LimitFor(*limits, "main", uuid) : std::nullopt;
  return limit ? std::optional(limit->count()) : std::nullopt;
}

TEST(LimitVariablesTest, MemoryIsInBytesUnlessItHasAUnit) {
  for (const auto& [text, bytes] :
       {std::pair("4096", int64_t{4096}), std::pair("512k", int64_t{512} << 10),
        std::pair("3000M", int64_t{3000} << 20), std::pair(" 3g ", int64_t{3} << 30)}) {
    EXPECT_EQ(Memory({{"CUDA_DEVICE_MEMORY_LIMIT", text}}, "GPU-a"), bytes) << text;
  }
}

TEST(LimitVariablesTest, AVariableForOneGpuOverridesTheVariableForAllGpus) {
  const StringMap variables = {{"CUDA_DEVICE_MEMORY_LIMIT", "1g"},
                               {"CUDA_DEVICE_MEMORY_LIMIT_1", "2g"},
                               {"CUDA_DEVICE_MEMORY_LIMIT_7", "9g"},
                               {"CUDA_DEVICE_MEMORY_SHARED_CACHE", "/tmp/x"}};
  EXPECT_EQ(Memory(variables, "GPU-a"), int64_t{1} << 30);
  EXPECT_EQ(Memory(variables, "GPU-b"), int64_t{2} << 30);
}

TEST(LimitVariablesTest, ComputeIsHundredths) {
  const auto limits = ComputeLimitsOf(
      {{"CUDA_DEVICE_SM_LIMIT", "100"}, {"CUDA_DEVICE_SM_LIMIT_1", "30"}}, kTwoShares);
  ASSERT_TRUE(limits.ok()) << limits.status().ToString();
  EXPECT_EQ(LimitFor(*limits, "main", "GPU-a"), std::nullopt) << "100 is no limit";
  EXPECT_EQ(LimitFor(*limits, "main", "GPU-b"), MilliGpu(300));
}

TEST(LimitVariablesTest, ZeroIsNoLimit) {
  EXPECT_EQ(Memory({{"CUDA_DEVICE_MEMORY_LIMIT", "0"}}, "GPU-a"), std::nullopt);
}

TEST(LimitVariablesTest, NamesAnInvalidVariable) {
  for (const char* text : {"", "g", "-1", "1.5g", "3gb", "99999999999g", "lots"}) {
    const auto limits = MemoryLimitsOf({{"CUDA_DEVICE_MEMORY_LIMIT_0", text}}, kTwoShares);
    ASSERT_FALSE(limits.ok()) << text;
    EXPECT_EQ(limits.status().message().find("CUDA_DEVICE_MEMORY_LIMIT_0="), 0u)
        << limits.status().message();
  }
  EXPECT_FALSE(ComputeLimitsOf({{"CUDA_DEVICE_SM_LIMIT", "half"}}, kTwoShares).ok());
}

TEST(LimitVariablesTest, OtherVariablesAreNotTakenForLimits) {
  EXPECT_TRUE(IsLimitVariable("CUDA_DEVICE_MEMORY_LIMIT"));
  EXPECT_TRUE(IsLimitVariable("CUDA_DEVICE_SM_LIMIT_3"));
  for (const char* name : {"CUDA_DEVICE_ORDER", "CUDA_DEVICE_MEMORY_LIMIT_x",
                           "CUDA_DEVICE_MEMORY_LIMITS", "CUDA_DEVICE_SM_LIMIT_-1", ""}) {
    EXPECT_FALSE(IsLimitVariable(name)) << name;
  }
}

}  // namespace
}  // namespace tessera::device
