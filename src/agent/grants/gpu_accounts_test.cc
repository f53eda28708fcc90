// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/gpu_accounts.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

using device::Dialect;
using device::Phase;

const device::Gpu kGpu{.uuid = "GPU-0", .memory = GiB(80)};

Hold Whole(const char* pod, Phase phase) {
  return {Uid(pod), phase, Dialect::kVcuda, kWholeGpu, {}};
}
Hold Share(const char* pod, Phase phase, int milli) {
  return {Uid(pod), phase, Dialect::kVcuda, MilliGpu(milli), GiB(10)};
}

TEST(GpuAccountsTest, ContainersThatRunTogetherOverlapOnAWholeGpu) {
  GpuAccounts accounts;
  accounts.Add("GPU-0", Whole("a", Phase::kMain));
  EXPECT_TRUE(accounts.OverlapsWithinPod("GPU-0", Whole("a", Phase::kMain)));
  EXPECT_TRUE(accounts.OverlapsWithinPod("GPU-0", Share("a", Phase::kMain, 100)));
  EXPECT_TRUE(accounts.OverlapsWithinPod("GPU-0", Whole("a", Phase::kSidecar)));
  EXPECT_FALSE(accounts.OverlapsWithinPod("GPU-0", Whole("b", Phase::kMain)));
  EXPECT_FALSE(accounts.HasRoom(kGpu, Whole("b", Phase::kInit)));
}

TEST(GpuAccountsTest, AWholeGpuPassesFromAnInitContainerToTheNext) {
  GpuAccounts accounts;
  accounts.Add("GPU-0", Whole("a", Phase::kInit));
  for (const Hold& next : {Whole("a", Phase::kInit), Whole("a", Phase::kMain)}) {
    EXPECT_TRUE(accounts.HasRoom(kGpu, next));
    EXPECT_FALSE(accounts.OverlapsWithinPod("GPU-0", next));
  }
  EXPECT_TRUE(accounts.OverlapsWithinPod("GPU-0", Whole("a", Phase::kSidecar)));
  EXPECT_FALSE(accounts.HasRoom(kGpu, Share("b", Phase::kMain, 100)));
}

TEST(GpuAccountsTest, SharesOfAPodCountAsTheirLargestSumAtOneTime) {
  GpuAccounts accounts;
  accounts.Add("GPU-0", Share("a", Phase::kInit, 900));
  EXPECT_TRUE(accounts.HasRoom(kGpu, Share("a", Phase::kMain, 800)));
  accounts.Add("GPU-0", Share("a", Phase::kMain, 800));
  EXPECT_FALSE(accounts.HasRoom(kGpu, Share("a", Phase::kMain, 300)));
  EXPECT_FALSE(accounts.HasRoom(kGpu, Share("b", Phase::kMain, 200)));
  EXPECT_TRUE(accounts.HasRoom(kGpu, Share("b", Phase::kMain, 100)));
}

}  // namespace
}  // namespace tessera::agent
