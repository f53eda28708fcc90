// SPDX-License-Identifier: Apache-2.0
#include "src/device/gpu.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

TEST(LinkTest, ScoresMatchNvidiasAllocator) {
  EXPECT_EQ(ScoreOf({}), 0);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kSystem}), 10);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kNode}), 20);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kHostBridge}), 30);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kMultiSwitch}), 40);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kSingleSwitch}), 50);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kSameBoard}), 60);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kSystem, .nvlinks = 18, .via_nvswitch = true}), 1810);
  EXPECT_EQ(ScoreOf({.pcie = PcieLevel::kSystem, .nvlinks = 36}), 3610);
}

TEST(LinkTest, EveryLinkIsReadBackFromItsName) {
  for (int level = 0; level <= static_cast<int>(PcieLevel::kSameBoard); ++level) {
    for (int nvlinks = 0; nvlinks <= kMaxNvLinks; ++nvlinks) {
      for (const bool through_switch : {false, true}) {
        const Link link{.pcie = static_cast<PcieLevel>(level),
                        .nvlinks = static_cast<uint8_t>(nvlinks),
                        .via_nvswitch = through_switch && nvlinks > 0};
        EXPECT_EQ(LinkFromName(NameOf(link)), link) << NameOf(link);
      }
    }
  }
}

TEST(LinkTest, RejectsInvalidNames) {
  for (const char* name : {"", "NV", "NV0", "NV37", "NV-1", "NV12+", "NV12+?", "NVS", "nv4", "SYS ",
                           "NV04", "NV4+NV4", "X", "NVx", "NV4x", "NVS4x"}) {
    EXPECT_EQ(LinkFromName(name), std::nullopt) << name;
  }
}

TEST(LinkMatrixTest, IsSymmetric) {
  LinkMatrix links(4);
  links.Set(3, 1, {.pcie = PcieLevel::kSingleSwitch});
  EXPECT_EQ(links.At(1, 3).pcie, PcieLevel::kSingleSwitch);
  for (size_t a = 0; a < 4; ++a) {
    for (size_t b = 0; b < 4; ++b) {
      if (a == b || a + b == 4) continue;
      EXPECT_FALSE(links.At(a, b).known());
    }
  }
}

TEST(LinkMatrixTest, EachPairHasItsOwnLink) {
  constexpr size_t kCount = 6;
  const auto link = [](size_t a, size_t b) {
    return Link{.nvlinks = static_cast<uint8_t>(1 + a * kCount + b)};
  };
  LinkMatrix links(kCount);
  for (size_t b = 0; b < kCount; ++b) {
    for (size_t a = 0; a < b; ++a) links.Set(a, b, link(a, b));
  }
  for (size_t b = 0; b < kCount; ++b) {
    for (size_t a = 0; a < b; ++a) EXPECT_EQ(links.At(b, a), link(a, b)) << a << " " << b;
  }
}

TEST(LinkMatrixDeathTest, RejectsLinksToTheSameOrAMissingGpu) {
  const LinkMatrix links(4);
  EXPECT_DEATH((void)links.At(1, 1), "");
  EXPECT_DEATH((void)links.At(4, 0), "");
  EXPECT_DEATH((void)links.At(0, 4), "");
  EXPECT_DEATH((void)links.At(9, 0), "");
  EXPECT_DEATH((void)links.At(0, 9), "");
}

TEST(NodeInventoryTest, CountsHealthyGpusAndFindsByUuid) {
  NodeInventory inventory;
  inventory.gpus = {{.uuid = "GPU-a"}, {.uuid = "GPU-b", .health = Health::Unhealthy("lost")}};
  EXPECT_EQ(inventory.healthy_count(), 1u);
  EXPECT_EQ(inventory.Find("GPU-b"), &inventory.gpus[1]);
  EXPECT_EQ(inventory.Find("GPU-c"), nullptr);
}

TEST(NodeInventoryTest, FindsByMinorAndFindsSlices) {
  NodeInventory inventory;
  inventory.gpus = {
      {.uuid = "GPU-a", .minor = 3}, {.uuid = "GPU-b"}, {.uuid = "GPU-c", .minor = 0}};
  inventory.gpus[2].mig = {{.uuid = "MIG-1"}, {.uuid = "MIG-2"}};
  EXPECT_EQ(inventory.FindByMinor(0), &inventory.gpus[2]);
  EXPECT_EQ(inventory.FindByMinor(1), nullptr);
  EXPECT_EQ(inventory.FindMigSlice("MIG-2"), &inventory.gpus[2].mig->at(1));
  EXPECT_EQ(inventory.FindMigSlice("GPU-a"), nullptr);
}

}  // namespace
}  // namespace tessera::device
