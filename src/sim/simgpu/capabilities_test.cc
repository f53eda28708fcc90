// SPDX-License-Identifier: Apache-2.0
// The capability files of MIG, as NVIDIA's user guide describes them.
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Numbers 0 to 2 belong to no GPU. A GPU has 15 GPU instances with 1 + 8 numbers each.
constexpr int kFirstNumberOfGpu1 = 3 + 15 * 9;

class CapabilitiesTest : public ::testing::Test {
 protected:
  CapabilitiesTest() : node_({.profile = "a100-sxm4-80gb", .gpus = 2}) {
    EXPECT_EQ(node_.state().SetMigMode(1, true), 0);
  }
  // A GPU instance with this name on GPU 1.
  uint32_t NewInstance(std::string_view profile) {
    uint32_t index = 0, instance = 0;
    while (profile != node_.state().facts(1).mig_profiles[index].name) ++index;
    EXPECT_EQ(node_.state().CreateGpuInstance(1, index, State::kAnyStart, &instance), 0);
    return instance;
  }
  uint32_t NewComputeInstance(uint32_t gpu_instance) {
    uint32_t instance = 0;
    EXPECT_EQ(node_.state().CreateComputeInstance(1, gpu_instance, 1, State::kAnyStart, &instance),
              0);
    return instance;
  }
  std::string Proc(const std::string& name) {
    return ReadFile(node_.driver_root() + "/proc/driver/" + name).value_or("missing");
  }
  std::string Device(int number) {
    return node_.dev_root() + "/dev/nvidia-caps/nvidia-cap" + std::to_string(number);
  }

  testing::SimNode node_;
};

TEST_F(CapabilitiesTest, TheNumbersAreThoseOfTheUserGuide) {
  const std::string minors = Proc("nvidia-caps/mig-minors");
  EXPECT_THAT(minors, StartsWith("config 1\nmonitor 2\ngpu0/gi0/access 3\n"
                                 "gpu0/gi0/ci0/access 4\ngpu0/gi0/ci1/access 5\n"));
  EXPECT_THAT(minors, HasSubstr("\ngpu0/gi1/access 12\n"));
  EXPECT_THAT(minors, HasSubstr("\ngpu31/gi14/ci7/access 4322\n"));
  EXPECT_EQ(Proc("nvidia/capabilities/mig/config"),
            "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n");
  EXPECT_THAT(Proc("nvidia/capabilities/mig/monitor"), HasSubstr("DeviceFileMode: 292\n"));
  EXPECT_THAT(*ReadFile(node_.driver_root() + "/proc/devices"), HasSubstr("511 nvidia-caps\n"));
  EXPECT_TRUE(PathExists(Device(1)));
  EXPECT_TRUE(PathExists(Device(2)));
}

TEST_F(CapabilitiesTest, AnInstanceHasItsFilesAsLongAsItLives) {
  const uint32_t parent = NewInstance("2g.20gb");
  const uint32_t compute = NewComputeInstance(parent);
  const uint32_t gi = node_.state().gpu_state(1).gpu_instances[parent].id;
  const int number = kFirstNumberOfGpu1 + 9 * int(gi);
  const std::string folder = "nvidia/capabilities/gpu1/mig/gi" + std::to_string(gi);
  EXPECT_EQ(Proc(folder + "/access"),
            fmt::format("DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n", number));
  EXPECT_THAT(Proc(folder + "/ci0/access"),
              HasSubstr(fmt::format("DeviceFileMinor: {}\n", number + 1)));
  EXPECT_TRUE(PathExists(Device(number)));
  EXPECT_TRUE(PathExists(Device(number + 1)));

  EXPECT_EQ(node_.state().DestroyComputeInstance(1, compute), 0);
  EXPECT_FALSE(PathExists(Device(number + 1)));
  EXPECT_EQ(node_.state().DestroyGpuInstance(1, parent), 0);
  EXPECT_FALSE(PathExists(Device(number)));
  EXPECT_FALSE(PathExists(node_.driver_root() + "/proc/driver/" + folder));
}

TEST_F(CapabilitiesTest, AForcedModeDestroysInstancesAndTheirFiles) {
  State& state = node_.state();
  const uint32_t parent = NewInstance("2g.20gb");
  NewComputeInstance(parent);
  const uint32_t gi = state.gpu_state(1).gpu_instances[parent].id;
  const int number = kFirstNumberOfGpu1 + 9 * int(gi);
  ASSERT_TRUE(PathExists(Device(number)));
  ASSERT_TRUE(PathExists(Device(number + 1)));
  EXPECT_EQ(state.SetMigMode(1, false), EBUSY) << "an instance exists";
  EXPECT_TRUE(state.IsMigEnabled(1));

  EXPECT_EQ(state.ForceMigMode(1, false), 0);
  EXPECT_FALSE(state.IsMigEnabled(1));
  EXPECT_EQ(state.InstanceByRank(1, 0, State::InstanceFilter::kAll), kMaxInstances);
  EXPECT_FALSE(PathExists(Device(number)));
  EXPECT_FALSE(PathExists(Device(number + 1)));
  EXPECT_FALSE(PathExists(node_.driver_root() + "/proc/driver/nvidia/capabilities/gpu1/mig/gi" +
                          std::to_string(gi)));
}

TEST_F(CapabilitiesTest, DestroyRemovesCapabilities) {
  NewComputeInstance(NewInstance("7g.80gb"));
  EXPECT_TRUE(PathExists(Device(kFirstNumberOfGpu1)));
  EXPECT_TRUE(DestroyDriverRoot(node_.driver_root(), "").ok());
  for (const int number : {1, 2, kFirstNumberOfGpu1, kFirstNumberOfGpu1 + 1})
    EXPECT_FALSE(PathExists(Device(number)));
}

TEST(CapabilityNodesTest, CapabilityDevicesHaveTheTypeOfTheGpusDevice) {
  if (geteuid() != 0) GTEST_SKIP() << "only root makes device nodes";
  testing::SimNode node({.profile = "a100-sxm4-80gb", .gpus = 1});
  const std::string gpu = node.dev_root() + "/dev/nvidia0";
  ASSERT_EQ(unlink(gpu.c_str()), 0);
  ASSERT_EQ(mknod(gpu.c_str(), S_IFCHR | 0666, makedev(195, 0)), 0);
  ASSERT_EQ(node.state().SetMigMode(0, true), 0);
  uint32_t instance = 0;
  ASSERT_EQ(node.state().CreateGpuInstance(0, 0, State::kAnyStart, &instance), 0);
  const MigCapability capability{0, node.state().gpu_state(0).gpu_instances[instance].id};
  struct stat info = {};
  ASSERT_EQ(stat((node.dev_root() + "/dev/" + capability.device()).c_str(), &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode));
  EXPECT_EQ(info.st_mode & 0777, 0444u);
  EXPECT_EQ(info.st_rdev, makedev(kCapabilityMajor, capability.number()));
}

TEST(CapabilityNodesTest, ANodeWithoutMigHasNoCapabilityFiles) {
  testing::SimNode node({.profile = "t4", .gpus = 1});
  EXPECT_FALSE(PathExists(node.driver_root() + "/proc/driver/nvidia-caps"));
  EXPECT_FALSE(PathExists(node.dev_root() + "/dev/nvidia-caps"));
}

}  // namespace
}  // namespace tessera::sim
