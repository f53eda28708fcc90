// SPDX-License-Identifier: Apache-2.0
#include "src/agent/exporter/holders.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "src/agent/exporter/testing/samples.h"

namespace tessera::agent {
namespace {

TEST(HoldersTest, AWholeGpuBelongsToItsOnlyContainer) {
  Holdings holdings;
  holdings.containers = {Held("a", "GPU-0", kWholeGpu), Held("b", "GPU-1", kWholeGpu, "init"),
                         Held("b", "GPU-1", kWholeGpu), Held("", "GPU-2", kWholeGpu, ""),
                         Held("c", "GPU-3", MilliGpu(300))};
  const HoldersByUuid holders = HoldersOf(holdings, nullptr);
  EXPECT_EQ(holders.at("GPU-0").sole_holder, (ContainerName{"ml", "a", "main"}));
  EXPECT_FALSE(holders.at("GPU-1").sole_holder) << "two containers hold it";
  EXPECT_FALSE(holders.contains("GPU-2")) << "the container is unknown";
  EXPECT_FALSE(holders.contains("GPU-3"));
}

TEST(HoldersTest, TheUseOfAShareComesFromTheDriverElseFromTheLimiters) {
  ContainerUses uses = {UseBy("b", "GPU-0"), UseBy("a", "GPU-0"), UseBy("c", "GPU-0")};
  uses[0].utilization = 0.25;
  uses[0].reported = GiB(2);
  uses[1].held = GiB(1);
  uses[1].unaccounted = MiB(1);
  uses[1].compute_use = ComputeUse{.used = 0.5};
  uses[2].limited = false;
  const HoldersByUuid holders = HoldersOf({}, &uses);
  const std::vector<ShareUse>& shares = holders.at("GPU-0").shares;
  ASSERT_EQ(shares.size(), 3u);
  EXPECT_EQ(shares[0].holder.pod, "a");
  EXPECT_EQ(shares[0].percent, 50);
  EXPECT_EQ(shares[0].bytes, (GiB(1) + MiB(1)).count());
  EXPECT_EQ(shares[1].percent, 25);
  EXPECT_EQ(shares[1].bytes, GiB(2).count());
  EXPECT_FALSE(shares[2].percent || shares[2].bytes)
      << "the use of an unlimited container is unknown";
}

TEST(DivideTest, PartsAndTheRestAddUpToTheTotal) {
  EXPECT_EQ(PartsAndRest(100, {30, 20}), (std::vector<int64_t>{30, 20, 50}));
  EXPECT_EQ(PartsAndRest(10, {30, 10}), (std::vector<int64_t>{7, 2, 1}))
      << "parts may exceed the total if the driver read them later";
  EXPECT_EQ(PartsAndRest(0, {30}), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(PartsAndRest(5, {}), (std::vector<int64_t>{5}));
  EXPECT_EQ(PartsAndRest(-1, {-2, 3}), (std::vector<int64_t>{0, 0, 0}));
}

TEST(DivideTest, PartsAndTheRestAddUpForRandomValues) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    const auto total = static_cast<int64_t>(random() % 200000);
    std::vector<int64_t> parts(random() % 9);
    for (int64_t& part : parts) part = static_cast<int64_t>(random() % 100000);
    const std::vector<int64_t> divided = PartsAndRest(total, parts);
    EXPECT_EQ(divided.size(), parts.size() + 1);
    EXPECT_EQ(std::accumulate(divided.begin(), divided.end(), int64_t{0}), total);
    for (const int64_t part : divided) EXPECT_GE(part, 0);
  }
}

}  // namespace
}  // namespace tessera::agent
