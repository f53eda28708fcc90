// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/node_hardware.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

// A configuration space whose only capability, at 0x40, is vendor specific and holds `records`
// behind the signature "VF".
std::string ConfigSpace(const std::string& signature, const std::string& records) {
  std::string config(256, '\0');
  config[0x06] = 0x10;
  config[0x34] = 0x40;
  const std::string body = signature + records;
  const std::string capability = {0x09, 0x00, static_cast<char>(3 + body.size())};
  config.replace(0x40, 3 + body.size(), capability + body);
  return config;
}

std::string Record(char id, std::string data) {
  return std::string{id, static_cast<char>(2 + data.size())} + data;
}

std::string Padded(std::string text, size_t length) {
  text.resize(length, '\0');
  return text;
}

class NodeHardwareTest : public ::testing::Test {
 protected:
  void AddDevice(const std::string& bus_id, const std::string& vendor, const std::string& pci_class,
                 const std::string& config = std::string(256, '\0')) {
    const std::string device = dir_.path() + "/bus/pci/devices/" + bus_id;
    ASSERT_TRUE(MakeDirs(device).ok());
    ASSERT_TRUE(WriteFileAtomically(device + "/vendor", vendor + "\n", 0644).ok());
    ASSERT_TRUE(WriteFileAtomically(device + "/class", pci_class + "\n", 0644).ok());
    ASSERT_TRUE(WriteFileAtomically(device + "/config", config, 0644).ok());
  }
  NodeHardware Read() const { return ReadNodeHardware(dir_.path(), dir_.path() + "/product_name"); }
  TempDir dir_;
};

TEST_F(NodeHardwareTest, FindsADisplayControllerOfNvidia) {
  EXPECT_FALSE(Read().HasGpu());
  AddDevice("0000:00:02.0", "0x8086", "0x030000");
  EXPECT_FALSE(Read().HasGpu());
  AddDevice("0000:07:00.0", "0x10de", "0x030200");
  EXPECT_TRUE(Read().HasGpu());
  EXPECT_EQ(Read().Find("0000:07:00.0")->pci_class, "0x030200");
  EXPECT_EQ(Read().Find("0000:00:02.0"), nullptr);
}

TEST_F(NodeHardwareTest, AnNvSwitchIsNoGpu) {
  AddDevice("0000:c4:00.0", "0x10de", "0x068000");
  EXPECT_FALSE(Read().HasGpu());
  EXPECT_EQ(Read().nvidia_devices.size(), 1u);
}

TEST_F(NodeHardwareTest, TheMachineHasItsNameFromTheFile) {
  EXPECT_EQ(Read().machine, "");
  ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/product_name", "DGX Station\n", 0644).ok());
  EXPECT_EQ(Read().machine, "DGX Station");
}

TEST_F(NodeHardwareTest, AVgpuNamesItsHost) {
  const std::string host = Padded("460.16", 10) + Padded("r460_00", 10);
  AddDevice("0000:07:00.0", "0x10de", "0x030000", ConfigSpace("VF", Record(0, host)));
  const NodeHardware hardware = Read();
  ASSERT_TRUE(hardware.nvidia_devices[0].vgpu_host.ok());
  EXPECT_EQ(*hardware.nvidia_devices[0].vgpu_host, (VgpuHost{"460.16", "r460_00"}));
}

TEST_F(NodeHardwareTest, ADeviceWithoutConfigurationSpaceIsListedWithAnError) {
  AddDevice("0000:07:00.0", "0x10de", "0x030200", std::string(64, '\0'));
  EXPECT_EQ(Read().Find("0000:07:00.0")->vgpu_host.status().code(), Code::kOutOfRange);
}

TEST(VgpuHostTest, RecordsBeforeTheRecordOfTheDriverAreSkipped) {
  const std::string records =
      Record(7, "other") + Record(0, Padded("535.129.03", 10) + Padded("r535_104", 10));
  EXPECT_EQ(**ParseVgpuHost(ConfigSpace("VF", records)), (VgpuHost{"535.129.03", "r535_104"}));
}

TEST(VgpuHostTest, AGpuWithAnotherVendorCapabilityIsPhysical) {
  EXPECT_EQ(*ParseVgpuHost(ConfigSpace("\x01\x02", "")), std::nullopt);
  EXPECT_EQ(*ParseVgpuHost(std::string(256, '\0')), std::nullopt);
}

TEST(VgpuHostTest, DamagedCapabilitiesCauseNoEndlessLoop) {
  std::string circle = ConfigSpace("VF", "");
  circle[0x40] = 0x01;
  circle[0x41] = 0x40;
  EXPECT_EQ(*ParseVgpuHost(circle), std::nullopt);
  EXPECT_EQ(*ParseVgpuHost(std::string(256, '\xff')), std::nullopt);
  EXPECT_FALSE(ParseVgpuHost(ConfigSpace("VF", Record(7, ""))).ok());
  EXPECT_FALSE(ParseVgpuHost(ConfigSpace("VF", std::string("\x07\x00", 2))).ok());
  EXPECT_FALSE(ParseVgpuHost(ConfigSpace("VF", Record(0, "short"))).ok());
}

}  // namespace
}  // namespace tessera::agent
