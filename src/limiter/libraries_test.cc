// SPDX-License-Identifier: Apache-2.0
// What the limiter's libraries ask of an image.
#include <gmock/gmock.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

namespace tessera::limiter {
namespace {

std::string ReadElf(const std::string& what, const std::string& library) {
  std::string text;
  FILE* pipe = ::popen(("readelf -W " + what + " " + library).c_str(), "r");
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, got);
  EXPECT_EQ(::pclose(pipe), 0) << "readelf, of package binutils, is missing";
  return text;
}

std::vector<std::string> Needed(const std::string& library) {
  std::istringstream dynamic(ReadElf("--dynamic", library));
  std::vector<std::string> needed;
  for (std::string line; std::getline(dynamic, line);) {
    const size_t name = line.find('[');
    if (line.find("(NEEDED)") == std::string::npos) continue;
    needed.push_back(line.substr(name + 1, line.find(']') - name - 1));
  }
  return needed;
}

// Symbols of the C library are at most of glibc 2.17; what is exported begins with `prefix`.
void CheckSymbols(const std::string& library, const std::string& prefix) {
  std::istringstream symbols(ReadElf("--dyn-syms", library));
  int versioned = 0;
  for (std::string line; std::getline(symbols, line);) {
    const size_t at = line.find("@GLIBC_");
    if (at != std::string::npos) {
      int major = 0, minor = 0;
      ASSERT_EQ(std::sscanf(line.c_str() + at, "@GLIBC_%d.%d", &major, &minor), 2) << line;
      EXPECT_LE(major * 100 + minor, 217) << line;
      ++versioned;
    } else if (line.find(" GLOBAL DEFAULT ") != std::string::npos &&
               line.find(" UND ") == std::string::npos) {
      EXPECT_NE(line.find(" " + prefix), std::string::npos) << "exported: " << line;
    }
  }
  EXPECT_GT(versioned, 5);
}

// Images are older than the machine that the libraries are built on, and need not have a C++
// runtime.
TEST(LibrariesTest, NeedOnlyAnOldCLibraryAndTheDriver) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's library needs its runtime";
#endif
  EXPECT_THAT(Needed(LIMITER_CUDA_LIBRARY),
              ::testing::ElementsAre("/run/tessera/real/libcuda", "libc.so.6"));
  EXPECT_THAT(Needed(LIMITER_NVML_LIBRARY),
              ::testing::ElementsAre("/run/tessera/real/libnvidia-ml", "libc.so.6"));
  CheckSymbols(LIMITER_CUDA_LIBRARY, "cu");
  CheckSymbols(LIMITER_NVML_LIBRARY, "nvml");
}

}  // namespace
}  // namespace tessera::limiter
