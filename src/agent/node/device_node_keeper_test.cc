// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/device_node_keeper.h"

#include "src/agent/node/testing/device_node_fixture.h"

namespace tessera::agent {
namespace {

class DeviceNodeKeeperTest : public DeviceNodeFixture {
 protected:
  DeviceNodeKeeperTest() {
    EXPECT_TRUE(MakeDirs(dir_.path() + "/dev").ok());
    AddGpu("0000:07:00.0", "Device Minor: 0\n");
    SetDevices("Character devices:\n195 nvidia\n510 nvidia-uvm\n");
  }

  FakeTaskRunner runner_;
  bool has_gpus_ = true;
  int checks_ = 0;
  DeviceNodeKeeper keeper_{&runner_,
                           {.dev_root = dir_.path(),
                            .driver_root = [this] { return dir_.path(); },
                            .driver_has_gpus =
                                [this] {
                                  ++checks_;
                                  return has_gpus_;
                                }}};
};

TEST_F(DeviceNodeKeeperTest, MakesARemovedNodeAgain) {
  if (!MayMakeNodes()) GTEST_SKIP() << "needs CAP_MKNOD";
  keeper_.Start();
  ASSERT_TRUE(PathExists(Dev("nvidia0")));
  ASSERT_EQ(::unlink(Dev("nvidia0").c_str()), 0);
  runner_.RunUntilIdle();
  EXPECT_TRUE(PathExists(Dev("nvidia0")));
}

TEST_F(DeviceNodeKeeperTest, RetriesWhileTheDriverReportsNoGpu) {
  has_gpus_ = false;
  keeper_.Start();
  keeper_.Update();
  EXPECT_EQ(checks_, 2);
  runner_.AdvanceTimeAndRun(DeviceNodeKeeper::kRetryInterval);
  EXPECT_EQ(checks_, 3) << "one retry is planned at a time";
  has_gpus_ = true;
  runner_.AdvanceTimeAndRun(DeviceNodeKeeper::kRetryInterval);
  EXPECT_EQ(checks_, 4);
  runner_.AdvanceTimeAndRun(10 * DeviceNodeKeeper::kRetryInterval);
  EXPECT_EQ(checks_, 4);
}

}  // namespace
}  // namespace tessera::agent
