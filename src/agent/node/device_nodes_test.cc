// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/device_nodes.h"

#include "src/agent/node/testing/device_node_fixture.h"

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

class DeviceNodesTest : public DeviceNodeFixture {
 protected:
  DeviceNodeReport Create() {
    return nodes_.Update({.proc_root = dir_.path() + "/proc", .dev_root = dir_.path()});
  }

  DeviceNodes nodes_;
};

TEST_F(DeviceNodesTest, WithoutADriverNothingIsMade) {
  const auto report = Create();
  EXPECT_TRUE(report.made_paths.empty());
  EXPECT_TRUE(report.problems.empty());
}

TEST_F(DeviceNodesTest, MakesMissingNodesOnly) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Model: \t\t NVIDIA A100\nDevice Minor: \t 0\n");
  AddGpu("0000:0f:00.0", "Device Minor: \t 3\n");
  SetDevices(kDevices);
  auto report = Create();
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.made_paths,
            (std::vector<std::string>{
                Dev("nvidia0"), Dev("char/195:0"), Dev("nvidia3"), Dev("char/195:3"),
                Dev("nvidiactl"), Dev("char/195:255"), Dev("nvidia-modeset"), Dev("char/195:254"),
                Dev("nvidia-uvm"), Dev("char/510:0"), Dev("nvidia-uvm-tools"), Dev("char/510:1")}));
  EXPECT_EQ(std::filesystem::read_symlink(Dev("char/195:3")), "../nvidia3");
  struct stat info;
  ASSERT_EQ(::stat(Dev("nvidia3").c_str(), &info), 0);
  EXPECT_EQ(info.st_rdev, ::makedev(195, 3));
  EXPECT_EQ(info.st_mode & 0777, 0666u);
  ASSERT_EQ(::stat(Dev("nvidia-uvm-tools").c_str(), &info), 0);
  EXPECT_EQ(info.st_rdev, ::makedev(510, 1));
  const ino_t inode = info.st_ino;
  report = Create();
  EXPECT_TRUE(report.made_paths.empty());
  ASSERT_EQ(::stat(Dev("nvidia-uvm-tools").c_str(), &info), 0);
  EXPECT_EQ(info.st_ino, inode);
}

TEST_F(DeviceNodesTest, RemovesOnlyItsOwnNodesOfGpusThatAreGone) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  AddGpu("0000:0f:00.0", "Device Minor: 1\n");
  AddGpu("0000:47:00.0", "Device Minor: 2\n");
  SetDevices(kDevices);
  ASSERT_TRUE(MakeDirs(dir_.path() + "/dev").ok());
  ASSERT_EQ(::mknod(Dev("nvidia1").c_str(), S_IFCHR | 0600, ::makedev(195, 1)), 0);
  EXPECT_EQ(Create().made_paths.size(), 13u) << "six nodes, seven links";
  RemoveGpu("0000:0f:00.0");
  RemoveGpu("0000:47:00.0");
  EXPECT_EQ(Create().removed_paths,
            (std::vector<std::string>{Dev("char/195:1"), Dev("char/195:2"), Dev("nvidia2")}));
  EXPECT_TRUE(PathExists(Dev("nvidia0")));
  EXPECT_TRUE(PathExists(Dev("nvidia1"))) << "another process made it";

  AddGpu("0000:07:00.0", "Device Minor: ?????\n");
  EXPECT_TRUE(Create().removed_paths.empty()) << "the GPU may be present";
  RemoveGpu("0000:07:00.0");
  EXPECT_EQ(Create().removed_paths.size(), 10u) << "no driver";
  EXPECT_EQ(*ListDir(dir_.path() + "/dev"), (std::vector<std::string>{"char", "nvidia1"}));
  EXPECT_TRUE(ListDir(Dev("char"))->empty());
}

TEST_F(DeviceNodesTest, KeepsANodeThatAnotherProcessReplaced) {
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

TEST_F(DeviceNodesTest, KeepsAndNamesAFileInPlaceOfADeviceNode) {
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices(kDevices);
  ASSERT_TRUE(MakeDirs(dir_.path() + "/dev").ok());
  ASSERT_TRUE(WriteFileAtomically(Dev("nvidia0"), "precious", 0600).ok());
  const auto report = Create();
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems[0].find(Dev("nvidia0") + " is not a character device"),
            std::string::npos)
      << report.problems[0];
  EXPECT_EQ(*ReadFile(Dev("nvidia0")), "precious");
}

TEST_F(DeviceNodesTest, LinksFollowTheCurrentDeviceNumbers) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices(kDevices);
  ASSERT_TRUE(MakeDirs(Dev("char")).ok());
  // The first link leads to the number of an earlier load of the module, the second to no file.
  ASSERT_EQ(::mknod(Dev("old").c_str(), S_IFCHR | 0600, ::makedev(1, 3)), 0);
  std::filesystem::create_symlink("../old", Dev("char/195:0"));
  std::filesystem::create_symlink("../nowhere", Dev("char/510:0"));
  // The third link is correct, although its path is spelled differently.
  std::filesystem::create_symlink(Dev("nvidiactl"), Dev("char/195:255"));
  EXPECT_TRUE(Create().problems.empty());
  EXPECT_EQ(std::filesystem::read_symlink(Dev("char/195:0")), "../nvidia0");
  EXPECT_EQ(std::filesystem::read_symlink(Dev("char/510:0")), "../nvidia-uvm");
  EXPECT_EQ(std::filesystem::read_symlink(Dev("char/195:255")), Dev("nvidiactl"));
}

TEST_F(DeviceNodesTest, KeepsAndNamesAFileInPlaceOfALink) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices(kDevices);
  ASSERT_TRUE(MakeDirs(Dev("char")).ok());
  ASSERT_TRUE(WriteFileAtomically(Dev("char/195:0"), "precious", 0600).ok());
  const auto report = Create();
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_NE(report.problems[0].find(Dev("char/195:0") + " is not a symbolic link"),
            std::string::npos);
  EXPECT_EQ(*ReadFile(Dev("char/195:0")), "precious");
}

TEST_F(DeviceNodesTest, RequestsTheUvmModuleAndMakesItsNodesOnceLoaded) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices("Character devices:\n195 nvidia\n");
  std::vector<std::string> requested_modules;
  DeviceNodeOptions options{.proc_root = dir_.path() + "/proc", .dev_root = dir_.path()};
  options.load_module = [&](const std::string& module) { requested_modules.push_back(module); };
  EXPECT_EQ(nodes_.Update(options).problems.size(), 1u);
  EXPECT_EQ(requested_modules, std::vector<std::string>{"nvidia-uvm"});
  SetDevices(kDevices);
  EXPECT_TRUE(nodes_.Update(options).problems.empty());
  EXPECT_EQ(requested_modules.size(), 1u);
  EXPECT_TRUE(PathExists(Dev("nvidia-uvm")));
}

TEST_F(DeviceNodesTest, TheErrorNamesTheCommandThatLoadsUvm) {
  AddGpu("0000:07:00.0", "Device Minor: 0\n");
  SetDevices("Character devices:\n195 nvidia\n");
  const auto report = Create();
  ASSERT_FALSE(report.problems.empty());
  EXPECT_NE(report.problems[0].find("modprobe nvidia-uvm"), std::string::npos);
}

TEST_F(DeviceNodesTest, ReportsInvalidFilesOfTheDriver) {
  AddGpu("0000:07:00.0", "Device Minor: ?????\n");
  AddGpu("0000:0f:00.0", "Device Minor: 254\n");
  SetDevices(kDevices);
  EXPECT_EQ(Create().problems.size(), 2u + (MayMakeNodes() ? 0 : 4));
}

}  // namespace
}  // namespace tessera::agent
