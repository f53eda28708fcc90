// SPDX-License-Identifier: Apache-2.0
#include "src/agent/node/validation_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "src/base/file.h"
#include "src/base/subprocess.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

const DriverRoot kOnHost{"/", "/driver-root"};
const DriverRoot kInContainer{"/run/nvidia/driver", "/driver-root/run/nvidia/driver"};

class ValidationFilesTest : public ::testing::Test {
 protected:
  std::string PathOf(const std::string& name) const { return dir_.path() + "/v/" + name; }
  bool Has(const std::string& name) const { return PathExists(PathOf(name)); }

  TempDir dir_;
  FakeTaskRunner runner_;
};

TEST_F(ValidationFilesTest, FilesFollowTheStateAndAreRemovedWithTheirWriter) {
  {
    ValidationFiles files(&runner_, dir_.path() + "/v");
    files.Set({.driver = kOnHost, .toolkit_ready = true});
    EXPECT_TRUE(Has("driver-ready") && Has("toolkit-ready"));
    EXPECT_FALSE(Has("plugin-ready"));
    files.Set({.toolkit_ready = true, .plugin_ready = true});
    EXPECT_FALSE(Has("driver-ready"));
    EXPECT_TRUE(Has("plugin-ready"));
  }
  EXPECT_EQ(*ListDir(dir_.path() + "/v"), std::vector<std::string>{});
}

TEST_F(ValidationFilesTest, AShellReadsTheRootsAsFromNvidiasFile) {
  ValidationFiles files(&runner_, dir_.path() + "/v");
  files.Set({.driver = kInContainer});
  const auto out = RunProgram(
      {"/bin/sh", "-ec",
       ". " + PathOf("driver-ready") +
           "; echo $IS_HOST_DRIVER $NVIDIA_DRIVER_ROOT $DRIVER_ROOT_CTR_PATH $NVIDIA_DEV_ROOT "
           "$DEV_ROOT_CTR_PATH"},
      5s);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->out, "false /run/nvidia/driver /run/nvidia/driver / /host\n");
  files.Set({.driver = kOnHost});
  EXPECT_NE(ReadFile(PathOf("driver-ready"))
                ->find("IS_HOST_DRIVER=true\nNVIDIA_DRIVER_ROOT=/\nDRIVER_ROOT_CTR_PATH=/host\n"),
            std::string::npos);
}

TEST_F(ValidationFilesTest, AFileOfAnotherWriterStays) {
  ASSERT_TRUE(MakeDirs(dir_.path() + "/v").ok());
  std::ofstream(PathOf("driver-ready")) << "NVIDIA_DRIVER_ROOT=/opt/driver\n";
  {
    ValidationFiles files(&runner_, dir_.path() + "/v");
    files.Set({.driver = kOnHost});
    files.Set({});
  }
  EXPECT_EQ(*ReadFile(PathOf("driver-ready")), "NVIDIA_DRIVER_ROOT=/opt/driver\n");
  EXPECT_EQ(DriverRootNamedIn(PathOf("driver-ready")), "/opt/driver");
}

TEST_F(ValidationFilesTest, RestoresAFileThatNvidiasValidatorRemoves) {
  ValidationFiles files(&runner_, dir_.path() + "/v");
  files.Set({.driver = kOnHost});
  runner_.RunUntilIdle();
  ASSERT_EQ(::unlink(PathOf("driver-ready").c_str()), 0);
  runner_.RunUntilIdle();
  EXPECT_TRUE(Has("driver-ready"));
}

TEST_F(ValidationFilesTest, NoDriverRootIsReadFromTheAgentsFileOrAnInvalidFile) {
  ValidationFiles files(&runner_, dir_.path() + "/v");
  files.Set({.driver = kInContainer});
  EXPECT_EQ(DriverRootNamedIn(PathOf("driver-ready")), "");
  EXPECT_EQ(DriverRootNamedIn(PathOf("none")), "");
  std::ofstream(PathOf("driver-ready")) << "NVIDIA_DRIVER_ROOT=relative\n";
  EXPECT_EQ(DriverRootNamedIn(PathOf("driver-ready")), "");
}

}  // namespace
}  // namespace tessera::agent
