// SPDX-License-Identifier: Apache-2.0
// The simulated driver is mounted into containers, so it must run with the C library of old images.
#include <gmock/gmock.h>

#include "src/sim/testing/elf_file.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::sim {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(OldGlibcTest, TheDriverNeedsOnlyGlibc217AndNoCppRuntime) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's library needs its runtime";
#endif
  const testing::SimNode node;
  for (const std::string& file : {node.library("libcuda.so.1"), node.library("libnvidia-ml.so.1"),
                                  node.driver_root() + "/usr/bin/nvidia-smi"}) {
    EXPECT_THAT(testing::SymbolsNewerThanGlibc(17, file), IsEmpty()) << file;
    EXPECT_THAT(testing::NeededLibraries(file), Not(Contains(HasSubstr("++")))) << file;
  }
}

}  // namespace
}  // namespace tessera::sim
