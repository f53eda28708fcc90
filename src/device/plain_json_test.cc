// SPDX-License-Identifier: Apache-2.0
#include "src/device/plain_json.h"

#include <gtest/gtest.h>

#include "src/base/random.h"
#include "src/device/node_annotation.h"

namespace tessera::device {
namespace {

NodeInventory Inventory(size_t gpus) {
  NodeInventory node{.driver_version = "550.163.01", .cuda_version = 12040};
  node.links = LinkMatrix(gpus);
  for (size_t i = 0; i < gpus; ++i) {
    Gpu gpu{.uuid = fmt::format("GPU-{}", i), .index = static_cast<int>(i), .memory = GiB(80)};
    gpu.minor = static_cast<int>(i);
    gpu.model = "NVIDIA A100-SXM4-80GB";
    gpu.pci_bus_id = "0000:07:00.0";
    gpu.numa_node = static_cast<int>(i % 2);
    gpu.compute_capability = ComputeCapability{8, 0};
    node.gpus.push_back(gpu);
    for (size_t j = 0; j < i; ++j) node.links.Set(i, j, {.pcie = PcieLevel::kSystem, .nvlinks = 4});
  }
  return node;
}

Assignment SomeAssignment() {
  Assignment assignment;
  assignment.containers["main"] = {{"GPU-a", MilliGpu(300), GiB(5)}, {"GPU-b", kWholeGpu, GiB(80)}};
  assignment.containers["side"] = {{"GPU-c", MilliGpu(0), Bytes(0)}};
  return assignment;
}

// Adds a member that only the decoder with json_fields.h accepts.
std::string WithUnknownMember(const std::string& text) { return "{\"x\":[]," + text.substr(1); }

TEST(PlainJsonTest, ReadsTheEncodersOutput) {
  for (const size_t gpus : {0, 1, 2, 8, 64}) {
    const std::string text = *EncodeNodeInventory(Inventory(gpus));
    ASSERT_TRUE(ReadPlainInventory(text).has_value()) << text;
    EXPECT_TRUE(*ReadPlainInventory(text) == Inventory(gpus)) << text;
  }
  const std::string text = *EncodeAssignment(SomeAssignment());
  ASSERT_TRUE(ReadPlainAssignment(text).has_value());
  EXPECT_EQ(*ReadPlainAssignment(text), SomeAssignment());
}

TEST(PlainJsonTest, ReadsTextsUpToTheLimits) {
  const auto fill = [](std::string text, size_t size) {
    return text + std::string(size - text.size(), ' ');
  };
  const std::string inventory = *EncodeNodeInventory(Inventory(2));
  EXPECT_TRUE(ReadPlainInventory(fill(inventory, kMaxNodeAnnotationBytes)).has_value());
  EXPECT_FALSE(ReadPlainInventory(fill(inventory, kMaxNodeAnnotationBytes + 1)).has_value());
  const std::string assignment = *EncodeAssignment(SomeAssignment());
  EXPECT_TRUE(ReadPlainAssignment(fill(assignment, kMaxAssignmentBytes)).has_value());
  EXPECT_FALSE(ReadPlainAssignment(fill(assignment, kMaxAssignmentBytes + 1)).has_value());
}

TEST(PlainJsonTest, LeavesEscapesAndNonAsciiToTheFullDecoder) {
  NodeInventory node = Inventory(1);
  for (const char* driver : {"\x80", "\xc3\xa9"}) {
    node.driver_version = driver;
    EXPECT_FALSE(ReadPlainInventory(*EncodeNodeInventory(node)).has_value());
  }
  std::string text = *EncodeAssignment(SomeAssignment());
  text.replace(text.find("GPU-a"), 5, "GPU-\\u0061");
  EXPECT_FALSE(ReadPlainAssignment(text).has_value());
  EXPECT_EQ(*DecodeAssignment(text), SomeAssignment());
}

TEST(PlainJsonTest, LeavesTooManyRowsOfLinksToTheFullDecoder) {
  EXPECT_FALSE(ReadPlainInventory(R"({"version":1,"gpus":[{"uuid":"G","index":0,"bytes":1}],)"
                                  R"("links":[[],["SYS"]]})")
                   .has_value());
}

TEST(PlainJsonTest, ReadsComputeCapabilitiesOfAnyTwoDigits) {
  NodeInventory node = Inventory(1);
  for (const ComputeCapability capability : {ComputeCapability{0, 9}, ComputeCapability{9, 0}}) {
    node.gpus[0].compute_capability = capability;
    ASSERT_TRUE(ReadPlainInventory(*EncodeNodeInventory(node)).has_value());
    EXPECT_TRUE(*ReadPlainInventory(*EncodeNodeInventory(node)) == node);
  }
}

TEST(PlainJsonTest, LeavesOtherTextsToTheFullDecoder) {
  NodeInventory node = Inventory(2);
  node.gpus[1].health = Health::Unhealthy("XID 79");
  EXPECT_FALSE(ReadPlainInventory(*EncodeNodeInventory(node)).has_value());
  EXPECT_FALSE(
      ReadPlainInventory(WithUnknownMember(*EncodeNodeInventory(Inventory(2)))).has_value());
  EXPECT_FALSE(
      ReadPlainAssignment(WithUnknownMember(*EncodeAssignment(SomeAssignment()))).has_value());
  EXPECT_TRUE(DecodeNodeInventory(WithUnknownMember(*EncodeNodeInventory(node))).ok());
}

// Both decoders agree on every text that the plain decoder accepts.
TEST(PlainJsonTest, AgreesWithTheFullDecoderOnDamagedTexts) {
  constexpr std::string_view kBytes = "{}[]:,\"\\ 0189.eE+-tfnaGPU\xc3\xa9";
  const std::string inventory = *EncodeNodeInventory(Inventory(3));
  const std::string assignment = *EncodeAssignment(SomeAssignment());
  Random random(3);
  int read = 0;
  for (int i = 0; i < 40000; ++i) {
    std::string text = i % 2 == 0 ? inventory : assignment;
    for (uint64_t n = random.Below(3) + 1; n > 0; --n) {
      const size_t at = random.Below(text.size());
      if (random.Below(4) == 0) {
        text.erase(at, random.Below(12));
      } else if (random.Below(3) == 0) {
        text.insert(at, text.substr(random.Below(text.size()), random.Below(20)));
      } else {
        text[at] = kBytes[random.Below(kBytes.size())];
      }
    }
    if (text.empty() || text[0] != '{') continue;
    if (i % 2 == 0) {
      const auto plain = ReadPlainInventory(text);
      if (!plain) continue;
      const auto other = DecodeNodeInventory(WithUnknownMember(text));
      ASSERT_TRUE(other.ok()) << text << "\n" << other.status().ToString();
      ASSERT_TRUE(*plain == *other) << text;
    } else {
      const auto plain = ReadPlainAssignment(text);
      const auto other = DecodeAssignment(WithUnknownMember(text));
      ASSERT_EQ(DecodeAssignment(text).ok(), other.ok()) << text;
      if (!plain || !other.ok()) continue;
      ASSERT_EQ(*plain, *other) << text;
    }
    ++read;
  }
  EXPECT_GT(read, 500);
}

}  // namespace
}  // namespace tessera::device
