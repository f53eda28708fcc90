// SPDX-License-Identifier: Apache-2.0
// The libraries and symbols that the limiter needs from an image.
#include <gmock/gmock.h>

#include "src/sim/testing/elf_file.h"

namespace tessera::limiter {
namespace {

using sim::testing::ExportedSymbols;
using sim::testing::NeededLibraries;
using sim::testing::SymbolsNewerThanGlibc;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Images may be older than the build machine, and need not have a C++ runtime.
TEST(LibrariesTest, NeedOnlyAnOldCLibraryAndTheDriver) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's library needs its runtime";
#endif
  EXPECT_THAT(NeededLibraries(LIMITER_CUDA_LIBRARY),
              ElementsAre("/run/tessera/real/libcuda", "libc.so.6"));
  EXPECT_THAT(NeededLibraries(LIMITER_NVML_LIBRARY),
              ElementsAre("/run/tessera/real/libnvidia-ml", "libc.so.6"));
  EXPECT_THAT(ExportedSymbols(LIMITER_CUDA_LIBRARY), Each(StartsWith("cu")));
  EXPECT_THAT(ExportedSymbols(LIMITER_NVML_LIBRARY), Each(StartsWith("nvml")));
  for (const char* library : {LIMITER_CUDA_LIBRARY, LIMITER_NVML_LIBRARY}) {
    EXPECT_THAT(SymbolsNewerThanGlibc(17, library), IsEmpty()) << library;
  }
}

}  // namespace
}  // namespace tessera::limiter
