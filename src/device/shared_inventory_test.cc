// SPDX-License-Identifier: Apache-2.0
#include "src/device/shared_inventory.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tessera::device {
namespace {

constexpr std::string_view kPrefix = "7b968a6d-c8aa-45e1-9e07-e1e51be99c";

NodeInventory InventoryOf(std::string_view node) {
  const auto uuid = [&](std::string_view kind, std::string_view number) {
    return std::string(kind).append(kPrefix).append(node).append(number);
  };
  NodeInventory inventory{.driver_version = "550.163.01"};
  inventory.gpus = {
      {.uuid = uuid("GPU-", "1"), .index = 0, .model = "NVIDIA A100-SXM4-80GB"},
      {.uuid = uuid("GPU-", "2"),
       .index = 1,
       .mig = {{{.uuid = uuid("MIG-", "3"), .profile = "1g.10gb", .gpu_instance = 7},
                {.uuid = uuid("MIG-", "4"), .profile = "2g.20gb", .gpu_instance = 8}}}},
      {.uuid = uuid("GPU-", "5"), .index = 2, .model = "NVIDIA A100-SXM4-80GB"}};
  inventory.links = LinkMatrix(3);
  return inventory;
}

TEST(SharedInventoryTest, FullReturnsTheWholeInventory) {
  const NodeInventory inventory = InventoryOf("0");
  const SharedInventory shared(inventory);
  EXPECT_EQ(shared.Full(), inventory);
  EXPECT_EQ(shared.without_uuids().gpus[0].model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(shared.without_uuids().gpus[0].uuid, "");
  EXPECT_EQ(SharedInventory().Full(), NodeInventory());
}

TEST(SharedInventoryTest, FindsGpusAndSlices) {
  const NodeInventory inventory = InventoryOf("0");
  const SharedInventory shared(inventory);
  const auto& gpus = shared.without_uuids().gpus;
  EXPECT_EQ(shared.Find(inventory.gpus[0].uuid).gpu, &gpus[0]);
  EXPECT_EQ(shared.Find(inventory.gpus[0].uuid).slice, nullptr);
  EXPECT_EQ(shared.Find(inventory.gpus[1].uuid).gpu, &gpus[1]);
  EXPECT_EQ(shared.Find(inventory.gpus[2].uuid).gpu, &gpus[2]);
  const SharedInventory::Device slice = shared.Find((*inventory.gpus[1].mig)[1].uuid);
  EXPECT_EQ(slice.gpu, &gpus[1]);
  EXPECT_EQ(slice.slice, &(*gpus[1].mig)[1]);
  EXPECT_EQ(shared.Find(InventoryOf("1").gpus[0].uuid).gpu, nullptr);
  EXPECT_EQ(shared.Find("").gpu, nullptr);
}

TEST(SharedInventoryTest, NodesOfOneTypeShareAllButTheUuids) {
  SharedInventory::Pool pool;
  SharedInventory a(InventoryOf("0")), b(InventoryOf("1")), same(InventoryOf("0"));
  NodeInventory unhealthy = InventoryOf("1");
  unhealthy.gpus[2].health = Health::Unhealthy("XID 79");
  SharedInventory c(unhealthy);
  EXPECT_EQ(a, same);
  for (SharedInventory* inventory : {&a, &b, &c, &same}) inventory->ShareIn(&pool);
  EXPECT_EQ(pool.size(), 2u);
  EXPECT_EQ(&a.without_uuids(), &b.without_uuids());
  EXPECT_NE(&a.without_uuids(), &c.without_uuids());
  EXPECT_EQ(a.Full(), InventoryOf("0"));
  EXPECT_EQ(b.Full(), InventoryOf("1"));
  EXPECT_EQ(c.Full(), unhealthy);
  EXPECT_EQ(a, same);
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(b == c);
}

}  // namespace
}  // namespace tessera::device
