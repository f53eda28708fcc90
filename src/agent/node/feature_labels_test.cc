// SPDX-License-Identifier: Apache-2.0
// tests/gpu compares whole label sets with recorded label sets.
#include "src/agent/node/feature_labels.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

device::Gpu GpuOf(const std::string& model, int index = 0) {
  return {.uuid = "GPU-" + std::to_string(index),
          .index = index,
          .model = model,
          .memory = MiB(40960),
          .pci_bus_id = fmt::format("0000:{:02x}:00.0", index + 1),
          .compute_capability = device::ComputeCapability{8, 0}};
}

class FeatureLabelsTest : public ::testing::Test {
 protected:
  // Returns the value of label "nvidia.com/" + name, or "-" if the label has no value.
  std::string Label(const std::string& name) const {
    return FeatureLabels(node_, hardware_).at("nvidia.com/" + name).value_or("-");
  }
  std::string FamilyOf(int major, int minor) {
    node_.gpus[0].compute_capability = device::ComputeCapability{major, minor};
    return Label("gpu.family");
  }
  device::NodeInventory node_{.driver_version = "550.163.01",
                              .cuda_version = 12040,
                              .gpus = {GpuOf("NVIDIA A100-SXM4-40GB")}};
  NodeHardware hardware_;
};

TEST_F(FeatureLabelsTest, LargestGroupOfEqualGpusIsDescribed) {
  node_.gpus = {GpuOf("Tesla T4", 0), GpuOf("Tesla T4", 1), GpuOf("NVIDIA H100", 2),
                GpuOf("NVIDIA H100", 3), GpuOf("NVIDIA H100", 4)};
  EXPECT_EQ(Label("gpu.product"), "NVIDIA-H100");
  EXPECT_EQ(Label("gpu.count"), "3");
}

TEST_F(FeatureLabelsTest, WithoutAGpuNoLabelHasAValue) {
  node_.gpus.clear();
  for (const auto& [name, value] : FeatureLabels(node_, hardware_)) {
    EXPECT_EQ(value, std::nullopt) << name;
  }
}

TEST_F(FeatureLabelsTest, MemoryThatTheDriverDoesNotReportIsLeftOut) {
  node_.gpus[0].memory = Bytes(0);
  EXPECT_EQ(Label("gpu.memory"), "-");
  EXPECT_EQ(Label("gpu.count"), "1");
}

TEST_F(FeatureLabelsTest, ADriverVersionOfTwoNumbersHasAnEmptyRevision) {
  node_.driver_version = "575.57";
  EXPECT_EQ(Label("cuda.driver.rev"), "");
  EXPECT_EQ(Label("cuda.driver-version.full"), "575.57");
}

TEST_F(FeatureLabelsTest, VersionsThatTheDriverDoesNotReportAreLeftOut) {
  node_.driver_version = "";
  node_.cuda_version = 0;
  EXPECT_EQ(Label("cuda.driver.major"), "-");
  EXPECT_EQ(Label("cuda.runtime-version.full"), "-");
}

TEST_F(FeatureLabelsTest, FamilyFollowsFromTheComputeCapability) {
  EXPECT_EQ(FamilyOf(7, 0), "volta");
  EXPECT_EQ(FamilyOf(7, 5), "turing");
  EXPECT_EQ(FamilyOf(8, 6), "ampere");
  EXPECT_EQ(FamilyOf(8, 9), "ada-lovelace");
  EXPECT_EQ(FamilyOf(9, 0), "hopper");
  EXPECT_EQ(FamilyOf(10, 0), "blackwell");
  EXPECT_EQ(FamilyOf(12, 0), "blackwell");
  EXPECT_EQ(FamilyOf(99, 0), "undefined");
}

TEST_F(FeatureLabelsTest, ReplicasAreZeroWhileAllGpusAreInMigMode) {
  node_.gpus = {GpuOf("NVIDIA A100", 0), GpuOf("NVIDIA A100", 1)};
  node_.gpus[0].mig.emplace();
  EXPECT_EQ(Label("gpu.replicas"), "1");
  node_.gpus[1].mig.emplace();
  EXPECT_EQ(Label("gpu.replicas"), "0");
  EXPECT_EQ(Label("gpu.count"), "2");
}

TEST_F(FeatureLabelsTest, OneMigCapableGpuMakesTheNodeCapable) {
  node_.gpus = {GpuOf("Tesla T4", 0), GpuOf("NVIDIA A100", 1)};
  EXPECT_EQ(Label("mig.capable"), "false");
  node_.gpus[1].mig_capable = true;
  EXPECT_EQ(Label("mig.capable"), "true");
}

TEST_F(FeatureLabelsTest, TheModeLabelIsKnownIfAllGpusHaveTheSamePciClass) {
  node_.gpus = {GpuOf("Tesla T4", 0), GpuOf("Tesla T4", 1)};
  EXPECT_EQ(Label("gpu.mode"), "unknown") << "no PCI device matches the GPUs";
  hardware_.nvidia_devices = {{.bus_id = "0000:01:00.0", .pci_class = "0x030200"},
                              {.bus_id = "0000:02:00.0", .pci_class = "0x030200"}};
  EXPECT_EQ(Label("gpu.mode"), "compute");
  hardware_.nvidia_devices[1].pci_class = "0x030000";
  EXPECT_EQ(Label("gpu.mode"), "unknown");
  hardware_.nvidia_devices[0].pci_class = "0x030000";
  EXPECT_EQ(Label("gpu.mode"), "graphics");
}

TEST_F(FeatureLabelsTest, MachineIsALabelValueOrUnknown) {
  EXPECT_EQ(Label("gpu.machine"), "unknown");
  hardware_.machine = "PowerEdge  R750xa (SKU=0A6B)";
  EXPECT_EQ(Label("gpu.machine"), "PowerEdge-R750xa-SKU0A6B");
}

TEST_F(FeatureLabelsTest, SetsTheCliqueLabelIfAllGpusShareIt) {
  node_.gpus = {GpuOf("NVIDIA GB200", 0), GpuOf("NVIDIA GB200", 1)};
  EXPECT_EQ(Label("gpu.clique"), "-");
  const std::string cluster = "7b968a6d-c8aa-45e1-9e07-e1e51be99c31";
  node_.gpus[0].fabric = {cluster, 1};
  EXPECT_EQ(Label("gpu.clique"), cluster + ".1");
  node_.gpus[1].fabric = {cluster, 2};
  EXPECT_EQ(Label("gpu.clique"), "-");
}

TEST_F(FeatureLabelsTest, AVgpuNamesItsHostsDriver) {
  hardware_.nvidia_devices = {{.bus_id = "0000:01:00.0"}};
  EXPECT_EQ(Label("vgpu.present"), "false");
  hardware_.nvidia_devices[0].vgpu_host = std::optional(VgpuHost{"460.16", "r460_00"});
  EXPECT_EQ(Label("vgpu.present"), "true");
  EXPECT_EQ(Label("vgpu.host-driver-version"), "460.16");
  EXPECT_EQ(Label("vgpu.host-driver-branch"), "r460_00");
}

TEST_F(FeatureLabelsTest, SetsNoVgpuLabelIfADeviceCannotBeRead) {
  hardware_.nvidia_devices = {
      {.bus_id = "0000:01:00.0", .vgpu_host = Error(Code::kOutOfRange, "64 bytes")}};
  EXPECT_EQ(Label("vgpu.present"), "-");
}

}  // namespace
}  // namespace tessera::agent
