// SPDX-License-Identifier: Apache-2.0
#include "src/sim/simgpu/pci_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <vector>

#include "src/base/file.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::sim {
namespace {

namespace fs = std::filesystem;

template <typename T>
T At(const std::string& config, size_t offset) {
  T value;
  std::memcpy(&value, config.data() + offset, sizeof(value));
  return value;
}

std::vector<uint8_t> CapabilityIds(const std::string& config) {
  std::vector<uint8_t> ids;
  for (auto at = At<uint8_t>(config, 0x34); at != 0 && ids.size() < 48;
       at = At<uint8_t>(config, at + 1)) {
    ids.push_back(At<uint8_t>(config, at));
  }
  return ids;
}

struct Line {
  uint64_t start = 0, end = 0, flags = 0;
};

std::vector<Line> Lines(const std::string& text) {
  std::vector<Line> lines;
  std::istringstream in(text);
  in >> std::hex;
  for (Line line; in >> line.start >> line.end >> line.flags;) lines.push_back(line);
  return lines;
}

GpuFacts FactsOf(const std::string& profile) { return LoadProfile(profile)->gpu; }

TEST(PciFilesTest, ConfigSpaceAgreesWithTheTextFiles) {
  const std::string config = PciConfigSpace(FactsOf("t4"), 0);
  ASSERT_EQ(config.size(), 4096u);
  EXPECT_EQ(At<uint16_t>(config, 0x00), 0x10DE);
  EXPECT_EQ(At<uint16_t>(config, 0x02), 0x1EB8);
  EXPECT_EQ(At<uint32_t>(config, 0x08) >> 8, 0x030200u);
  EXPECT_EQ(At<uint16_t>(config, 0x2C), 0x10DE);
  EXPECT_EQ(At<uint16_t>(config, 0x2E), 0x12A2);
}

TEST(PciFilesTest, CapabilitiesAreThoseOfAPhysicalGpu) {
  const std::string config = PciConfigSpace(FactsOf("a100-sxm4-40gb"), 3);
  EXPECT_TRUE((At<uint16_t>(config, 0x06) & 0x10) != 0);
  EXPECT_THAT(CapabilityIds(config), ::testing::ElementsAre(0x01, 0x05, 0x10, 0x09, 0x11));
  EXPECT_EQ(config.find("VF"), std::string::npos);  // the mark of a vGPU
}

TEST(PciFilesTest, TheLinkHasTheSpeedAndWidthOfTheProfile) {
  const std::string config = PciConfigSpace(FactsOf("h100-sxm5-80gb"), 0);
  const auto status = At<uint16_t>(config, 0x78 + 0x12);
  EXPECT_EQ(status & 0xF, 5);
  EXPECT_EQ(status >> 4, 16);
}

TEST(PciFilesTest, RegistersAndResourceFileAgree) {
  for (const char* profile : {"t4", "h100-sxm5-80gb"}) {
    const GpuFacts gpu = FactsOf(profile);
    const std::string config = PciConfigSpace(gpu, 1);
    const std::vector<Line> lines = Lines(PciResources(gpu, 1));
    ASSERT_EQ(lines.size(), 13u);
    for (size_t i = 0; i < 6; ++i) {
      if (lines[i].start == 0) continue;
      uint64_t start = At<uint32_t>(config, 0x10 + 4 * i);
      EXPECT_EQ(start & 0xF, lines[i].flags & 0xF) << profile << " " << i;
      if ((start & 4) != 0) start |= uint64_t{At<uint32_t>(config, 0x14 + 4 * i)} << 32;
      EXPECT_EQ(start & ~uint64_t{0xF}, lines[i].start) << profile << " " << i;
    }
  }
}

TEST(PciFilesTest, RegionsAreAlignedAndNeverOverlap) {
  for (const uint64_t mib : {1, 256, 65536, 100'000, 1 << 20}) {
    GpuFacts gpu = FactsOf("t4");
    gpu.bar1_bytes = mib << 20;
    std::vector<Line> all;
    for (uint32_t gpu_index = 0; gpu_index < kMaxGpus; ++gpu_index) {
      for (const Line& line : Lines(PciResources(gpu, gpu_index))) {
        if (line.start == 0) continue;
        EXPECT_EQ(line.start % (line.end - line.start + 1), 0u) << mib;
        all.push_back(line);
      }
    }
    ASSERT_EQ(all.size(), 3 * kMaxGpus);
    std::ranges::sort(all, {}, &Line::start);
    for (size_t i = 1; i < all.size(); ++i) EXPECT_GT(all[i].start, all[i - 1].end) << mib;
  }
}

TEST(PciFilesTest, RegionOneOfATuringGpuIsItsBar1) {
  const std::vector<Line> lines = Lines(PciResources(FactsOf("t4"), 0));
  EXPECT_EQ(lines[1].end - lines[1].start + 1, 256u << 20);
  EXPECT_LT(lines[0].end, uint64_t{1} << 32);
}

TEST(PciFilesTest, LinksLeadToDriverAndIommuGroup) {
  testing::SimNode node({.profile = "t4", .gpus = 2});
  const fs::path device = node.driver_root() + "/sys/bus/pci/devices/0000:0f:00.0";
  EXPECT_EQ(fs::canonical(device / "driver").filename(), "nvidia");
  EXPECT_EQ(fs::canonical(device / "iommu_group").filename(), "3");
  EXPECT_THAT(*ReadFile(device / "uevent"), ::testing::HasSubstr("PCI_ID=10DE:1EB8\n"));
  EXPECT_EQ(*ReadFile(device / "current_link_speed"), "8.0 GT/s PCIe\n");
}

}  // namespace
}  // namespace tessera::sim
