// SPDX-License-Identifier: Apache-2.0
#include "src/device/node.h"

#include <gtest/gtest.h>

#include "src/device/node_annotation.h"

namespace tessera::device {
namespace {

NodeFields FieldsOf(const NodeInventory& inventory) {
  return {.name = "gpu-1",
          .allocatable = {{"cpu", "7910m"}, {"memory", "32Gi"}, {"nvidia.com/gpu", "2"}},
          .annotations = {{"tessera.dev/devices", *EncodeNodeInventory(inventory)}}};
}

TEST(NodeTest, IsReadFromTheNodeObject) {
  NodeInventory inventory;
  inventory.gpus = {{.uuid = "GPU-a", .index = 0, .model = "Tesla T4", .memory = MiB(15360)},
                    {.uuid = "GPU-b", .index = 1, .model = "Tesla T4", .memory = MiB(15360)}};
  inventory.links = LinkMatrix(2);
  NodeFields fields = FieldsOf(inventory);
  fields.labels = {{"gaia.tencent.com/gpu-pool", "public"}};
  Result<Node> node = ParseNode(fields);
  ASSERT_TRUE(node.ok()) << node.status().ToString();
  EXPECT_EQ(node->name, "gpu-1");
  EXPECT_EQ(node->cpu, MilliCpu(7910));
  EXPECT_EQ(node->memory, GiB(32));
  EXPECT_EQ(node->inventory.Full(), inventory);
  EXPECT_EQ(node->pool, "public");
  EXPECT_EQ(node->model, "T4");

  fields.labels = {{"pool", "a"}, {"model", "M40"}};
  node = ParseNode(fields, {.pool = "pool", .model = "model"});
  EXPECT_EQ(node->pool, "a");
  EXPECT_EQ(node->model, "M40");
}

TEST(NodeTest, GpusOfDifferentModelsHaveNoCommonModel) {
  NodeInventory inventory;
  inventory.gpus = {
      {.uuid = "GPU-a", .index = 0, .model = "Tesla T4", .memory = MiB(15360)},
      {.uuid = "GPU-b", .index = 1, .model = "NVIDIA A100-SXM4-80GB", .memory = GiB(80)},
      {.uuid = "GPU-c", .index = 2, .memory = Bytes(0)}};
  inventory.links = LinkMatrix(3);
  const Result<Node> node = ParseNode(FieldsOf(inventory));
  ASSERT_TRUE(node.ok());
  EXPECT_EQ(node->model, "");
  EXPECT_EQ(ShortModelOf(inventory), "mixed");
  EXPECT_EQ(node->inventory.without_uuids().gpus[1].memory, GiB(80));
}

TEST(NodeTest, ProductsOfOneChipAreOneModel) {
  NodeInventory inventory;
  inventory.gpus = {{.uuid = "GPU-a", .model = "NVIDIA A100-SXM4-80GB"},
                    {.uuid = "GPU-b", .index = 1, .model = "NVIDIA A100 80GB PCIe"}};
  inventory.links = LinkMatrix(2);
  EXPECT_EQ(ParseNode(FieldsOf(inventory))->model, "A100");
  EXPECT_EQ(ShortModelOf(inventory), "A100");
}

TEST(NodeTest, ANodeWithoutTheAnnotationHasNoGpus) {
  const Result<Node> node = ParseNode({.name = "cpu-1"});
  ASSERT_TRUE(node.ok());
  EXPECT_TRUE(node->inventory.without_uuids().gpus.empty());
  EXPECT_EQ(node->model, "");
  EXPECT_EQ(ShortModelOf(node->inventory.without_uuids()), "");
  EXPECT_EQ(node->cpu, MilliCpu(0));
}

TEST(NodeTest, NamesTheNodeAndTheField) {
  EXPECT_EQ(ParseNode({.name = "n", .allocatable = {{"cpu", "many"}}}).status().message(),
            "node n: allocatable cpu: \"many\" is not a quantity like 2, 2k or 1Gi");
  EXPECT_EQ(ParseNode({.name = "n", .allocatable = {{"memory", "-1"}}}).status().message(),
            "node n: allocatable memory: \"-1\" is negative");
  EXPECT_EQ(
      ParseNode({.name = "n", .annotations = {{"tessera.dev/devices", "{}"}}}).status().message(),
      "node n: tessera.dev/devices: version: is missing");
}

}  // namespace
}  // namespace tessera::device
