// SPDX-License-Identifier: Apache-2.0
// The simulated driver in an image that is older than the machine on which the driver was built:
// Debian 11, with glibc 2.31. sim_old_glibc_test checks older versions of glibc by their symbols.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/subprocess.h"
#include "src/sim/testing/sim_node.h"
#include "tests/driver/driver_packages.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

class OldImage : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto packages =
        ::tessera::testing::FetchPackages("old-images", "main", {"debian11=bullseye:libc6"});
    if (!packages.ok()) {
      GTEST_SKIP() << "the C library of Debian 11 cannot be downloaded: "
                   << packages.status().message();
    }
    libraries_ = *packages + "/debian11/lib/x86_64-linux-gnu";
  }
  // Runs a program with the image's loader and C library. LD_BIND_NOW makes the loader look up
  // every function at the start.
  SubprocessResult Run(std::vector<std::string> command) {
    command.insert(command.begin(),
                   {libraries_ + "/ld-2.31.so", "--library-path",
                    libraries_ + ":" + node_.driver_root() + "/" + testing::kLibraryDir});
    auto result = RunProgram(command, std::chrono::seconds(60), {"LD_BIND_NOW=1"});
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? *result : SubprocessResult{};
  }

  sim::testing::SimNode node_{{.gpus = 2}};
  std::string libraries_;
};

TEST_F(OldImage, NvidiaSmiListsTheGpus) {
  const SubprocessResult result = Run({node_.driver_root() + "/usr/bin/nvidia-smi", "-L"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("GPU 1: NVIDIA A100-SXM4-80GB"));
}

TEST_F(OldImage, AProgramComputes) {
  const SubprocessResult result = Run({VECTORADD, "--bytes", "1000"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace tessera
