// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/probe.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::gpu {
namespace {

TEST(ProbeTest, ReadsNumaNodes) {
  const TempDir sys;
  const auto write = [&](const std::string& bus_id, const std::string& text) {
    const std::string dir = sys.path() + "/bus/pci/devices/" + bus_id;
    ASSERT_TRUE(MakeDirs(dir).ok());
    ASSERT_TRUE(WriteFileAtomically(dir + "/numa_node", text, 0644).ok());
  };
  write("0000:07:00.0", "1\n");
  write("0000:08:00.0", "-1\n");
  write("0000:09:00.0", "junk\n");
  EXPECT_EQ(ReadNumaNode(sys.path(), "0000:07:00.0"), 1);
  EXPECT_EQ(ReadNumaNode(sys.path(), "0000:08:00.0"), std::nullopt);
  EXPECT_EQ(ReadNumaNode(sys.path(), "0000:09:00.0"), std::nullopt);
  EXPECT_EQ(ReadNumaNode(sys.path(), "0000:0a:00.0"), std::nullopt);
}

}  // namespace
}  // namespace tessera::gpu
