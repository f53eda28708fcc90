// SPDX-License-Identifier: Apache-2.0
#include "src/gpu/nvml_library.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::gpu {
namespace {

TEST(NvmlLibraryTest, AMissingDriverIsReportedWithAdvice) {
  TempDir dir;
  for (const std::string& root : {dir.path(), std::string("/")}) {
    const auto loaded = NvmlLibraryLoader(root).Load();
    if (root == "/" && loaded.ok()) continue;  // the machine has a driver
    ASSERT_FALSE(loaded.ok()) << root;
    const std::string& message = loaded.status().message();
    EXPECT_NE(message.find("libnvidia-ml.so.1"), std::string::npos) << message;
    EXPECT_NE(message.find("install the NVIDIA driver"), std::string::npos) << message;
    EXPECT_NE(message.find("--driver-root"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace tessera::gpu
