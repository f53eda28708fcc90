// SPDX-License-Identifier: Apache-2.0
#include "src/sim/cuda/device/visible.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

using Gpus = std::vector<uint32_t>;

constexpr char kFourGpus[] =
    "base: t4\nnode:\n  gpus: 4\n  uuids: [GPU-aaaaaaaa-0000-0000-0000-000000000000,"
    " GPU-aaaabbbb-0000-0000-0000-000000000000, GPU-cccccccc-0000-0000-0000-000000000000,"
    " GPU-dddddddd-0000-0000-0000-000000000000]\n";

TEST(VisibleTest, AGpuWithoutADeviceNodeIsNotVisible) {
  sim::testing::SimNode node({.profile = kFourGpus});
  EXPECT_EQ(OpenableGpus(node.state()), (Gpus{0, 1, 2, 3}));
  ASSERT_EQ(unlink((node.dev_root() + "/dev/nvidia1").c_str()), 0);
  EXPECT_EQ(OpenableGpus(node.state()), (Gpus{0, 2, 3}));
}

TEST(VisibleTest, CudaVisibleDevicesFollowsTheDriversRules) {
  sim::testing::SimNode node({.profile = kFourGpus});
  const Gpus all = {0, 1, 2, 3};
  const auto apply = [&](const char* value) {
    return ApplyVisibleDevices(node.state(), all, value);
  };
  EXPECT_EQ(apply(nullptr), all);
  EXPECT_EQ(apply(""), Gpus{});
  EXPECT_EQ(apply("2,0"), (Gpus{2, 0}));
  EXPECT_EQ(apply("0, 3"), (Gpus{0, 3}));
  EXPECT_EQ(apply("1,-1,2"), Gpus{1}) << "the list ends at the first invalid entry";
  EXPECT_EQ(apply("1,9,2"), Gpus{1});
  EXPECT_EQ(apply("0,0"), Gpus{}) << "a repeated GPU";
  EXPECT_EQ(apply("GPU-cccccccc-0000-0000-0000-000000000000"), Gpus{2});
  EXPECT_EQ(apply("GPU-d,GPU-aaaab"), (Gpus{3, 1}));
  EXPECT_EQ(apply("GPU-aaaa"), Gpus{}) << "a prefix of two UUIDs";
  EXPECT_EQ(apply("NoDevFiles"), Gpus{});
}

}  // namespace
}  // namespace tessera::cuda
