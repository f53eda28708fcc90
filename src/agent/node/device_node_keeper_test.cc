// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/device_node_keeper.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

class DeviceNodeKeeperTest : public ::testing::Test {
 protected:
  DeviceNodeKeeperTest() {
    EXPECT_TRUE(MakeDirs(dir_.path() + "/dev").ok());
    EXPECT_TRUE(MakeDirs(dir_.path() + "/proc/driver/nvidia/gpus/0000:07:00.0").ok());
    const std::string gpu = dir_.path() + "/proc/driver/nvidia/gpus/0000:07:00.0/information";
    EXPECT_TRUE(WriteFileAtomically(gpu, "Device Minor: 0\n", 0600).ok());
    EXPECT_TRUE(WriteFileAtomically(dir_.path() + "/proc/devices",
                                    "Character devices:\n195 nvidia\n510 nvidia-uvm\n", 0600)
                    .ok());
  }
  // mknod needs CAP_MKNOD, which root may lack in a container or user namespace.
  bool MayMakeNodes() const {
    const std::string probe = dir_.path() + "/probe";
    if (::mknod(probe.c_str(), S_IFCHR | 0600, ::makedev(1, 3)) != 0) return false;
    ::unlink(probe.c_str());
    return true;
  }

  TempDir dir_;
  const std::string node_ = dir_.path() + "/dev/nvidia0";
  FakeTaskRunner runner_;
  bool has_gpus_ = true;
  int looks_ = 0;
  DeviceNodeKeeper keeper_{&runner_,
                           {.dev_root = dir_.path(),
                            .driver_root = [this] { return dir_.path(); },
                            .driver_has_gpus =
                                [this] {
                                  ++looks_;
                                  return has_gpus_;
                                }}};
};

TEST_F(DeviceNodeKeeperTest, MakesARemovedNodeAgain) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  keeper_.Start();
  ASSERT_TRUE(PathExists(node_));
  ASSERT_EQ(::unlink(node_.c_str()), 0);
  runner_.RunUntilIdle();
  EXPECT_TRUE(PathExists(node_));
}

TEST_F(DeviceNodeKeeperTest, RetriesWhileTheDriverReportsNoGpu) {
  has_gpus_ = false;
  keeper_.Start();
  keeper_.Update();
  EXPECT_EQ(looks_, 2);
  runner_.AdvanceTimeAndRun(DeviceNodeKeeper::kRetry);
  EXPECT_EQ(looks_, 3) << "one retry is planned at a time";
  has_gpus_ = true;
  runner_.AdvanceTimeAndRun(DeviceNodeKeeper::kRetry);
  EXPECT_EQ(looks_, 4);
  runner_.AdvanceTimeAndRun(10 * DeviceNodeKeeper::kRetry);
  EXPECT_EQ(looks_, 4);
}

}  // namespace
}  // namespace tessera::agent
