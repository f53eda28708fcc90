// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/proc_info.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tessera::gpu {
namespace {

constexpr char kInfo[] =
    "Model: \t\t NVIDIA A100-SXM4-80GB\n"
    "IRQ:   \t\t 42\n"
    "GPU UUID: \t GPU-12345678-1234-1234-1234-123456780007\n"
    "Video BIOS: \t 92.00.45.00.03\n"
    "Bus Type: \t PCIe\n"
    "Bus Location: \t 0000:bd:00.0\n"
    "Device Minor: \t 7\n"
    "GPU Excluded:\t No\n";

TEST(ProcGpuTest, ReadsWhatTheKernelModuleWrites) {
  const std::optional<ProcGpu> gpu = ParseProcGpu(kInfo);
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->uuid, "GPU-12345678-1234-1234-1234-123456780007");
  EXPECT_EQ(gpu->model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(gpu->pci_bus_id, "0000:bd:00.0");
  EXPECT_EQ(gpu->minor, 7);
}

TEST(ProcGpuTest, PassesOverAGpuThatNeverWoke) {
  const std::string marks(8, '?');
  EXPECT_FALSE(ParseProcGpu("GPU UUID: \t GPU-" + marks + "-0000-0000-0000-000000000000\n"));
  EXPECT_FALSE(ParseProcGpu("Model: x\n"));
  EXPECT_FALSE(ParseProcGpu(""));
  EXPECT_FALSE(ParseProcGpu(std::string(1000, '\0')));
}

class ProcFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "proc-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
};

TEST_F(ProcFolderTest, ListsGpusByPciAddress) {
  Write("driver/nvidia/gpus/0000:bd:00.0/information", kInfo);
  Write("driver/nvidia/gpus/0000:07:00.0/information",
        "GPU UUID: GPU-12345678-1234-1234-1234-123456780000\n");
  Write("driver/nvidia/gpus/0000:08:00.0/other", "");
  const std::vector<ProcGpu> gpus = ReadProcGpus(root_.string());
  ASSERT_EQ(gpus.size(), 2u);
  EXPECT_EQ(gpus[0].uuid, "GPU-12345678-1234-1234-1234-123456780000");
  EXPECT_TRUE(ReadProcGpus((root_ / "nowhere").string()).empty());
}

TEST_F(ProcFolderTest, ReadsNumaNodes) {
  Write("bus/pci/devices/0000:07:00.0/numa_node", "1\n");
  Write("bus/pci/devices/0000:08:00.0/numa_node", "-1\n");
  Write("bus/pci/devices/0000:09:00.0/numa_node", "junk\n");
  EXPECT_EQ(ReadNumaNode(root_.string(), "0000:07:00.0"), 1);
  EXPECT_EQ(ReadNumaNode(root_.string(), "0000:08:00.0"), std::nullopt);
  EXPECT_EQ(ReadNumaNode(root_.string(), "0000:09:00.0"), std::nullopt);
  EXPECT_EQ(ReadNumaNode(root_.string(), "0000:0a:00.0"), std::nullopt);
}

}  // namespace
}  // namespace tessera::gpu
