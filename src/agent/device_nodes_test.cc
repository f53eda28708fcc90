// SPDX-License-Identifier: Apache-2.0
#include "src/agent/device_nodes.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <filesystem>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

constexpr const char* kDevices =
    "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n510 nvidia-uvm\n\n"
    "Block devices:\n511 nvidia-uvm\n";

TEST(FindMajorTest, ReadsCharacterDevicesOnly) {
  EXPECT_EQ(FindMajor(kDevices, {"nvidia-uvm"}), 510u);
  EXPECT_EQ(FindMajor(kDevices, {"nvidia-frontend", "nvidia"}), 195u);
  EXPECT_EQ(FindMajor("Character devices:\nBlock devices:\n8 sd\n", {"sd"}), std::nullopt);
  EXPECT_EQ(FindMajor("x nvidia\n99999999 nvidia\n-1 nvidia\n", {"nvidia"}), std::nullopt);
  EXPECT_EQ(FindMajor("", {"nvidia"}), std::nullopt);
}

class DeviceNodesTest : public testing::Test {
 protected:
  void AddGpu(const std::string& address, const std::string& text) {
    const std::string dir = dir_.path() + "/proc/driver/nvidia/gpus/" + address;
    ASSERT_TRUE(MakeDirs(dir).ok());
    ASSERT_TRUE(WriteFileAtomically(dir + "/information", text, 0600).ok());
  }
  void SetDevices(const std::string& text) {
    ASSERT_TRUE(MakeDirs(dir_.path() + "/proc").ok());
    ASSERT_TRUE(WriteFileAtomically(dir_.path() + "/proc/devices", text, 0600).ok());
  }
  DeviceNodeReport Create() {
    return nodes_.Update({.proc_root = dir_.path() + "/proc", .dev_root = dir_.path()});
  }
  std::string Dev(const std::string& name) const { return dir_.path() + "/dev/" + name; }
  // mknod wants CAP_MKNOD, which a container or user namespace may lack even for root.
  bool MayMakeNodes() {
    const std::string probe = dir_.path() + "/probe";
    if (::mknod(probe.c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) return false;
    ::unlink(probe.c_str());
    return true;
  }

  void RemoveGpu(const std::string& address) {
    std::filesystem::remove_all(dir_.path() + "/proc/driver/nvidia/gpus/" + address);
  }

  TempDir dir_;
  DeviceNodes nodes_;
};

TEST_F(DeviceNodesTest, WithoutADriverNothingIsMade) {
  const auto report = Create();
  EXPECT_TRUE(report.made.empty());
  EXPECT_TRUE(report.problems.empty());
}

TEST_F(DeviceNodesTest, MakesWhatIsMissingAndTouchesNothingElse) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Model: \t\t NVIDIA A100\nDevice Minor: \t 0\n");
  AddGpu("0000:0f:00.0", "Device Minor: \t 3\n");
  SetDevices(kDevices);
  auto report = Create();
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.made, (std::vector<std::string>{Dev("nvidia0"), Dev("nvidia3"), Dev("nvidiactl"),
                                                   Dev("nvidia-modeset"), Dev("nvidia-uvm"),
                                                   Dev("nvidia-uvm-tools")}));
  struct stat info;
  ASSERT_EQ(::stat(Dev("nvidia3").c_str(), &info), 0);
  EXPECT_EQ(info.st_rdev, ::makedev(195, 3));
  EXPECT_EQ(info.st_mode & 0777, 0666u);
  ASSERT_EQ(::stat(Dev("nvidia-uvm-tools").c_str(), &info), 0);
  EXPECT_EQ(info.st_rdev, ::makedev(510, 1));
  const ino_t inode = info.st_ino;
  report = Create();
  EXPECT_TRUE(report.made.empty());
  ASSERT_EQ(::stat(Dev("nvidia-uvm-tools").c_str(), &info), 0);
  EXPECT_EQ(info.st_ino, inode);
}

TEST_F(DeviceNodesTest, TakesAwayWhatItMadeForGpusThatAreGoneAndNothingElse) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  AddGpu("0000:0f:00.0", "Device Minor: 1\n");
  AddGpu("0000:47:00.0", "Device Minor: 2\n");
  SetDevices(kDevices);
  ASSERT_TRUE(MakeDirs(dir_.path() + "/dev").ok());
  ASSERT_EQ(::mknod(Dev("nvidia1").c_str(), S_IFCHR | 0600, ::makedev(195, 1)), 0);
  EXPECT_EQ(Create().made.size(), 6u);
  RemoveGpu("0000:0f:00.0");
  RemoveGpu("0000:47:00.0");
  EXPECT_EQ(Create().removed, std::vector<std::string>{Dev("nvidia2")});
  EXPECT_TRUE(PathExists(Dev("nvidia0")));
  EXPECT_TRUE(PathExists(Dev("nvidia1"))) << "somebody else made it";

  AddGpu("0000:07:00.0", "Device Minor: ?????\n");
  EXPECT_TRUE(Create().removed.empty()) << "it may well be there";
  RemoveGpu("0000:07:00.0");
  EXPECT_EQ(Create().removed.size(), 5u) << "no driver";
  EXPECT_EQ(*ListDir(dir_.path() + "/dev"), std::vector<std::string>{"nvidia1"});
}

TEST_F(DeviceNodesTest, ANodeThatSomebodyReplacedIsTheirs) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices(kDevices);
  Create();
  ASSERT_EQ(::unlink(Dev("nvidia0").c_str()), 0);
  ASSERT_EQ(::mknod(Dev("nvidia0").c_str(), S_IFCHR | 0600, ::makedev(1, 3)), 0);
  RemoveGpu("0000:07:00.0");
  Create();
  EXPECT_TRUE(PathExists(Dev("nvidia0")));
}

TEST_F(DeviceNodesTest, FileInTheWayStaysAndIsNamed) {
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices(kDevices);
  ASSERT_TRUE(MakeDirs(dir_.path() + "/dev").ok());
  ASSERT_TRUE(WriteFileAtomically(Dev("nvidia0"), "precious", 0600).ok());
  const auto report = Create();
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems[0].find(Dev("nvidia0") + " is no character device"), std::string::npos)
      << report.problems[0];
  EXPECT_EQ(*ReadFile(Dev("nvidia0")), "precious");
}

TEST_F(DeviceNodesTest, SaysHowToLoadUvm) {
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices("Character devices:\n195 nvidia\n");
  const auto report = Create();
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems[0].find("modprobe nvidia-uvm"), std::string::npos);
}

TEST_F(DeviceNodesTest, RubbishInTheDriversFilesIsNamed) {
  AddGpu("0000:07:00.0", "Device Minor: ?????\n");
  AddGpu("0000:0f:00.0", "Device Minor: 254\n");
  SetDevices(kDevices);
  EXPECT_EQ(Create().problems.size(), 2u + (MayMakeNodes() ? 0 : 4));
}

}  // namespace
}  // namespace tessera::agent
