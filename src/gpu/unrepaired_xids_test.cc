// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/unrepaired_xids.h"

#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/base/log.h"

namespace tessera::gpu {
namespace {

TEST(UnrepairedXidFileTest, RemembersUntilTheNodeReboots) {
  const TempDir dir;
  const std::string path = dir.path() + "/xids";
  UnrepairedXidFile(path, "one").Save({{"GPU-a", 48}, {"GPU-b", 79}});
  EXPECT_EQ(UnrepairedXidFile(path, "one").xids(), (UnrepairedXids{{"GPU-a", 48}, {"GPU-b", 79}}));
  EXPECT_TRUE(UnrepairedXidFile(path, "two").xids().empty());
}

TEST(UnrepairedXidFileTest, ADamagedFileIsIgnored) {
  const TempDir dir;
  const std::string path = dir.path() + "/xids";
  ASSERT_TRUE(
      WriteFileAtomically(path, "boot one\nGPU-a\nGPU-b -4\nGPU-c x\nGPU-d 48\n", 0600).ok());
  EXPECT_EQ(UnrepairedXidFile(path, "one").xids(), (UnrepairedXids{{"GPU-d", 48}}));
  ASSERT_TRUE(WriteFileAtomically(path, "\x01", 0600).ok());
  EXPECT_TRUE(UnrepairedXidFile(path, "one").xids().empty());
}

TEST(UnrepairedXidFileTest, WritesOnlyChangesAndLogsAFailureOnce) {
  const TempDir dir;
  const std::string path = dir.path() + "/xids";
  UnrepairedXidFile memory(path, "one");
  memory.Save({});
  EXPECT_FALSE(PathExists(path));
  int lines = 0;
  const ScopedLogSinkForTest sink([&](std::string_view) { ++lines; });
  UnrepairedXidFile nowhere(dir.path() + "/no/xids", "one");
  nowhere.Save({{"GPU-a", 48}});
  nowhere.Save({{"GPU-a", 48}});
  EXPECT_EQ(lines, 1);
}

}  // namespace
}  // namespace tessera::gpu
