// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/offers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "api/names.h"

namespace tessera::agent {
namespace {

using device::Dialect;

constexpr std::string_view kShared[] = {names::kResourceGpuMem, names::kResourceVcudaCore,
                                        names::kResourceVcudaMemory};

std::shared_ptr<const DeviceSet> Node(const std::vector<int64_t>& gib,
                                      device::MemoryUnit unit = device::MemoryUnit::kGiB) {
  auto inventory = std::make_shared<device::NodeInventory>();
  for (size_t i = 0; i < gib.size(); ++i) {
    inventory->gpus.push_back({.uuid = "GPU-" + std::to_string(i),
                               .index = static_cast<int>(i),
                               .minor = static_cast<int>(i),
                               .memory = GiB(gib[i])});
  }
  inventory->links = device::LinkMatrix(gib.size());
  return std::make_shared<const DeviceSet>(inventory, unit);
}

int Healthy(std::string_view resource, const DeviceSet& set, const NodeUse& use = {}) {
  const auto offers = OffersOf(resource, set, use);
  return static_cast<int>(
      std::count_if(offers.begin(), offers.end(), [](const auto& offer) { return offer.healthy; }));
}

size_t ListBytes(std::string_view resource, const DeviceSet& set) {
  size_t bytes = 0;
  for (const auto& offer : OffersOf(resource, set, {})) bytes += 6 + offer.id.size() + 9;
  return bytes;
}

TEST(OffersTest, TheUnitsOfAGpuFollowFromItsOwnMemory) {
  const auto set = Node({16, 80});
  EXPECT_EQ(Healthy(names::kResourceGpu, *set), 2);
  EXPECT_EQ(Healthy(names::kResourceGpuMem, *set), 96);
  EXPECT_EQ(Healthy(names::kResourceVcudaCore, *set), 200);
  EXPECT_EQ(Healthy(names::kResourceVcudaMemory, *set), 4 * 96);
}

TEST(OffersTest, IdsAreShortAndUniqueAcrossResources) {
  const auto set = Node({16, 80, 141});
  std::set<std::string> all;
  size_t count = 0;
  for (const std::string_view resource : kShared) {
    for (const auto& offer : OffersOf(resource, *set, {})) {
      EXPECT_LE(offer.id.size(), 8u);
      EXPECT_TRUE(set->shares().Find(resource)->Has(offer.id)) << offer.id;
      all.insert(offer.id);
      ++count;
    }
  }
  EXPECT_EQ(all.size(), count);
  const ShareUnits& units = *set->shares().Find(names::kResourceGpuMem);
  for (const std::string id : {"", "m", "m000", "x0000", "GPU-0", "m0000zzzzzzzz"}) {
    EXPECT_FALSE(units.Has(id)) << id;
  }
  EXPECT_FALSE(units.Has(ShareUnits::IdOf(units.gpus[0], 16)))
      << "the GPU has 16 units, numbered from 0";
}

TEST(OffersTest, IdsStayTheSameWhenAnotherGpuIsRemoved) {
  const auto both = Node({16, 80});
  auto remaining = std::make_shared<device::NodeInventory>(both->inventory());
  remaining->gpus.erase(remaining->gpus.begin());
  remaining->links = device::LinkMatrix(1);
  const DeviceSet remaining_set(remaining);
  EXPECT_EQ(remaining_set.shares().Find(names::kResourceGpuMem)->gpus[0].prefix,
            both->shares().Find(names::kResourceGpuMem)->gpus[1].prefix);
}

TEST(OffersTest, TheDeviceListsOfEightH200StayBelowOneMebibyte) {
  for (const auto unit : {device::MemoryUnit::kGiB, device::MemoryUnit::kMiB}) {
    const auto set = Node(std::vector<int64_t>(8, 141), unit);
    EXPECT_EQ(set->shares().gpu_mem_unit(), device::MemoryUnit::kGiB)
        << "the list in MiB would be too long";
    for (const std::string_view resource : kShared) {
      EXPECT_GT(Healthy(resource, *set), 0) << resource;
      EXPECT_LT(ListBytes(resource, *set), kMaxListBytes) << resource;
    }
  }
  const auto small = Node({15}, device::MemoryUnit::kMiB);
  EXPECT_EQ(small->shares().gpu_mem_unit(), device::MemoryUnit::kMiB);
  EXPECT_EQ(Healthy(names::kResourceGpuMem, *small), 15 * 1024);
  const auto huge = Node(std::vector<int64_t>(64, 288));
  EXPECT_LT(ListBytes(names::kResourceVcudaMemory, *huge), kMaxListBytes);
}

TEST(OffersTest, GpuInMigModeIsNotShared) {
  auto inventory = std::make_shared<device::NodeInventory>(Node({16, 80})->inventory());
  inventory->gpus[0].mig.emplace();
  EXPECT_EQ(Healthy(names::kResourceGpuMem, DeviceSet(inventory)), 80);
}

TEST(OffersTest, UnitsOfAnUnhealthyGpuAreUnhealthy) {
  auto inventory = std::make_shared<device::NodeInventory>(Node({16, 80})->inventory());
  inventory->gpus[1].health = device::Health::Unhealthy("XID 79");
  const DeviceSet set(inventory);
  EXPECT_EQ(Healthy(names::kResourceGpuMem, set), 16);
  EXPECT_EQ(OffersOf(names::kResourceGpuMem, set, {}).size(), 96u) << "capacity counts them";
}

TEST(OffersTest, AWholeGpuIsWithdrawnFromSharedResources) {
  const auto set = Node({16, 80});
  NodeUse use;
  use.accounts.Add("GPU-1", {.pod_uid = Uid("a"), .compute = kWholeGpu, .memory = GiB(80)});
  use.allocated_ids = {"GPU-1"};
  EXPECT_EQ(Healthy(names::kResourceGpu, *set, use), 2)
      << "the kubelet itself counts the GPU that it gave away";
  EXPECT_EQ(Healthy(names::kResourceGpuMem, *set, use), 16);
  EXPECT_EQ(Healthy(names::kResourceVcudaCore, *set, use), 100);
  EXPECT_EQ(Healthy(names::kResourceVcudaMemory, *set, use), 64);
}

TEST(OffersTest, AShareWithdrawsOnlyItsPartFromOthers) {
  const auto set = Node({16, 80});
  NodeUse use;
  use.accounts.Add("GPU-0", {.pod_uid = Uid("a"),
                             .dialect = Dialect::kVcuda,
                             .compute = MilliGpu(300),
                             .memory = GiB(5)});
  EXPECT_EQ(Healthy(names::kResourceGpu, *set, use), 1);
  EXPECT_EQ(Healthy(names::kResourceGpuMem, *set, use), 11 + 80);
  EXPECT_EQ(Healthy(names::kResourceVcudaCore, *set, use), 200);
  EXPECT_EQ(Healthy(names::kResourceVcudaMemory, *set, use), 4 * 96);
}

TEST(OffersTest, AGpuWithHeldMemoryIsNotOfferedWhole) {
  const auto set = Node({16});
  NodeUse use;
  use.accounts.Add(
      "GPU-0", {.pod_uid = Uid("a"), .dialect = Dialect::kGpuMem, .compute = {}, .memory = GiB(8)});
  EXPECT_EQ(Healthy(names::kResourceVcudaCore, *set, use), 99);
  EXPECT_EQ(Healthy(names::kResourceVcudaMemory, *set, use), 32);
  EXPECT_EQ(Healthy(names::kResourceGpuMem, *set, use), 16);
  EXPECT_EQ(Healthy(names::kResourceGpu, *set, use), 0);
}

TEST(OffersTest, AllocatedIdsStayHealthy) {
  const auto set = Node({16, 16});
  NodeUse use;
  use.accounts.Add("GPU-0", {.pod_uid = Uid("a"), .compute = kWholeGpu, .memory = GiB(16)});
  use.accounts.Add(
      "GPU-1", {.pod_uid = Uid("b"), .dialect = Dialect::kGpuMem, .compute = {}, .memory = GiB(8)});
  // The kubelet gave b the IDs of GPU-0, which a holds, and gave a an ID of GPU-1, which b holds.
  for (const auto& offer : OffersOf(names::kResourceGpuMem, *set, {})) {
    if (use.allocated_ids.size() < 8) use.allocated_ids.insert(offer.id);
  }
  use.allocated_ids.insert("GPU-1");
  for (const auto& offer : OffersOf(names::kResourceGpuMem, *set, use)) {
    EXPECT_TRUE(offer.healthy || !use.allocated_ids.contains(offer.id)) << offer.id;
  }
  EXPECT_EQ(Healthy(names::kResourceGpuMem, *set, use), 16);
  const auto whole = OffersOf(names::kResourceGpu, *set, use);
  EXPECT_FALSE(whole[0].healthy) << "no pod has this ID, and no GPU is free for it";
  EXPECT_TRUE(whole[1].healthy);
}

}  // namespace
}  // namespace tessera::agent
