// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/driver_files.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::gpu {
namespace {

TEST(DriverFilesTest, TheFilesOfASimulatedDriverAreUsedWhileTheyExist) {
  TempDir dir;
  const std::string root = dir.path() + "/driver";
  EXPECT_EQ(ProcRootOf(root), "/proc");
  EXPECT_EQ(SysRootOf(root), "/sys");
  ASSERT_TRUE(MakeDirs(root + "/proc/driver/nvidia").ok());
  EXPECT_EQ(ProcRootOf(root), root + "/proc");
  EXPECT_EQ(SysRootOf(root), "/sys");
  ASSERT_TRUE(MakeDirs(root + "/sys/bus/pci").ok());
  EXPECT_EQ(SysRootOf(root), root + "/sys");
  EXPECT_EQ(SysRootOf(dir.path() + "/other", "/elsewhere"), "/elsewhere");
  EXPECT_EQ(ProcRootOf("", "/elsewhere"), "/elsewhere");
}

}  // namespace
}  // namespace tessera::gpu
