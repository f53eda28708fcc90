// SPDX-License-Identifier: Apache-2.0
// The kernels that run these tests have no dmem controller, and no known driver of NVIDIA registers
// regions. The files have the format of the kernel's documentation (admin-guide/cgroup-v2).
#include "src/oci/dmem.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::oci {
namespace {

constexpr std::string_view kCapacity =
    "drm/0000:03:00.0/vram0 85899345920\n"
    "drm/0000:03:00.0/stolen 67108864\n"
    "drm/0000:C1:00.0/vram0 85899345920\n"
    "no number\n\n";

TEST(DmemTest, ParsesTheRegions) {
  const auto regions = ParseDmemCapacity(kCapacity);
  ASSERT_EQ(regions.size(), 3u);
  EXPECT_EQ(regions[0].name, "drm/0000:03:00.0/vram0");
  EXPECT_EQ(regions[0].capacity, GiB(80));
}

TEST(DmemTest, TheLimitIsTheShareAndAnAllowance) {
  const auto regions = ParseDmemCapacity(kCapacity);
  EXPECT_EQ(DmemMaxValue(regions, {{"0000:03:00.0", GiB(5)}}), "drm/0000:03:00.0/vram0 9663676416");
  EXPECT_EQ(DmemMaxValue(regions, {{"0000:03:00.0", GiB(5)}, {"0000:c1:00.0", GiB(6)}}),
            "drm/0000:03:00.0/vram0 9663676416\ndrm/0000:C1:00.0/vram0 10737418240");
}

TEST(DmemTest, UnlimitedGpusGetNoLine) {
  const auto regions = ParseDmemCapacity(kCapacity);
  EXPECT_EQ(DmemMaxValue(regions, {{"0000:04:00.0", GiB(5)}}), "") << "another GPU";
  EXPECT_EQ(DmemMaxValue(regions, {{"0000:03:00.0", Bytes(0)}}), "") << "no share of memory";
  EXPECT_EQ(DmemMaxValue(regions, {{"0000:03:00.0", GiB(76)}}), "")
      << "the share is the whole capacity";
  EXPECT_EQ(DmemMaxValue({}, {{"0000:03:00.0", GiB(5)}}), "");
}

class DmemRegionsTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, std::string_view text) {
    ASSERT_TRUE(WriteFileAtomically(root_.path() + "/" + name, std::string(text), 0644).ok());
  }
  size_t Count() { return ReadDmemRegions(root_.path()).size(); }

  TempDir root_;
};

TEST_F(DmemRegionsTest, AreReadWhereContainersHaveTheController) {
  Write("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc dmem\n");
  Write("cgroup.subtree_control", "cpu memory pids dmem\n");
  Write("dmem.capacity", kCapacity);
  EXPECT_EQ(Count(), 3u);
}

TEST_F(DmemRegionsTest, AreNoneWhereTheControllerIsOff) {
  Write("cgroup.controllers", "cpu memory dmem\n");
  Write("cgroup.subtree_control", "cpu memory\n");
  Write("dmem.capacity", kCapacity);
  EXPECT_EQ(Count(), 0u);
}

TEST_F(DmemRegionsTest, AreNoneOnAnOlderKernelAndOnCgroupV1) {
  EXPECT_EQ(Count(), 0u) << "the root of cgroup v1 lacks these files";
  Write("cgroup.controllers", "cpu memory\n");
  Write("cgroup.subtree_control", "cpu memory\n");
  EXPECT_EQ(Count(), 0u);
}

}  // namespace
}  // namespace tessera::oci
