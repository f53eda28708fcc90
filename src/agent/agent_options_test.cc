// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/agent/agent.h"
#include "src/base/file.h"

namespace tessera::agent {
namespace {

class AgentOptionsTest : public ::testing::Test {
 protected:
  AgentOptionsTest() {
    options_.state_dir = dir_.path() + "/state";
    options_.grant_socket = dir_.path() + "/grant.sock";
  }
  std::string FailureOf() {
    ::testing::internal::CaptureStderr();
    EXPECT_NE(RunAgent(options_), 0);
    return ::testing::internal::GetCapturedStderr();
  }

  TempDir dir_;
  AgentOptions options_;
};

TEST_F(AgentOptionsTest, AnInvalidMetricsAddressFailsBeforeAnyFileIsCreated) {
  options_.metrics_address = "nonsense";
  const std::string error = FailureOf();
  EXPECT_NE(error.find("--metrics-address"), std::string::npos) << error;
  EXPECT_TRUE(ListDir(dir_.path())->empty());
}

TEST_F(AgentOptionsTest, AnInvalidGpuManagerAddressFailsBeforeAnyFileIsCreated) {
  options_.manager_address = "nonsense";
  const std::string error = FailureOf();
  EXPECT_NE(error.find("--gpu-manager-address"), std::string::npos) << error;
  EXPECT_TRUE(ListDir(dir_.path())->empty());
}

TEST_F(AgentOptionsTest, ANamespaceInBothFailOpenAndStopBypassIsRejected) {
  options_.limits_fail_open = {"dev", "playground"};
  for (const char* stop : {"dev", "*"}) {
    options_.limits_stop_bypass = {stop};
    const std::string error = FailureOf();
    EXPECT_NE(error.find(std::string("--limits-stop-bypass=") + stop +
                         ": --limits-fail-open=dev,playground lets processes run"),
              std::string::npos)
        << error;
  }
}

TEST_F(AgentOptionsTest, NamesTheFlagOfAStateDirThatCannotBeMade) {
  options_.state_dir = "/proc/foo";
  const std::string error = FailureOf();
  EXPECT_NE(error.find("--state-dir"), std::string::npos) << error;
  EXPECT_NE(error.find("/proc/foo"), std::string::npos) << error;
}

}  // namespace
}  // namespace tessera::agent
