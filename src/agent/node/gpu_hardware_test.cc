// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/gpu_hardware.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

class GpuHardwareTest : public ::testing::Test {
 protected:
  void AddDevice(const std::string& bdf, const std::string& vendor, const std::string& pci_class) {
    const std::string device = dir_.path() + "/bus/pci/devices/" + bdf;
    ASSERT_TRUE(MakeDirs(device).ok());
    ASSERT_TRUE(WriteFileAtomically(device + "/vendor", vendor + "\n", 0644).ok());
    ASSERT_TRUE(WriteFileAtomically(device + "/class", pci_class + "\n", 0644).ok());
  }
  TempDir dir_;
};

TEST_F(GpuHardwareTest, FindsADisplayControllerOfNvidia) {
  EXPECT_FALSE(HasGpuHardware(dir_.path()));
  AddDevice("0000:00:02.0", "0x8086", "0x030000");
  EXPECT_FALSE(HasGpuHardware(dir_.path()));
  AddDevice("0000:07:00.0", "0x10de", "0x030200");
  EXPECT_TRUE(HasGpuHardware(dir_.path()));
}

TEST_F(GpuHardwareTest, AnNvSwitchIsNoGpu) {
  AddDevice("0000:c4:00.0", "0x10de", "0x068000");
  EXPECT_FALSE(HasGpuHardware(dir_.path()));
}

}  // namespace
}  // namespace tessera::agent
