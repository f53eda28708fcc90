// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/exec_process.h"

#include <gtest/gtest.h>

#include "src/base/file.h"

namespace tessera::runtime {
namespace {

class ExecProcessTest : public ::testing::Test {
 protected:
  void WriteConfig(const std::string& env) {
    ASSERT_TRUE(WriteFileAtomically(JoinPath(dir_.path(), "config.json"),
                                    R"({"root":{"path":"rootfs"},"process":{"env":)" + env + "}}",
                                    0600)
                    .ok());
  }
  std::string Edited(const std::string& process) {
    const std::string file = JoinPath(dir_.path(), "process.json");
    EXPECT_TRUE(WriteFileAtomically(file, process, 0600).ok());
    const Status status = EditExecProcess(dir_.path(), file);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return *ReadFile(file);
  }

  TempDir dir_;
};

TEST_F(ExecProcessTest, AddsDriverDirsAndGrantedDevices) {
  WriteConfig(R"(["PATH=/bin:/dev/tessera/bin","NVIDIA_VISIBLE_DEVICES=GPU-1"])");
  EXPECT_EQ(
      Edited(
          R"({"args":["nvidia-smi"],"env":["PATH=/bin","NVIDIA_VISIBLE_DEVICES=void"],"x":1.0})"),
      R"({"args":["nvidia-smi"],"env":["PATH=/bin:/dev/tessera/bin",)"
      R"("NVIDIA_VISIBLE_DEVICES=GPU-1"],"x":1.0})");
}

TEST_F(ExecProcessTest, KeepsValuesThatTheCallerSet) {
  WriteConfig(R"(["PATH=/bin:/dev/tessera/bin","NVIDIA_VISIBLE_DEVICES=GPU-1"])");
  EXPECT_EQ(Edited(R"({"env":["PATH=/mine","NVIDIA_VISIBLE_DEVICES=none"]})"),
            R"({"env":["PATH=/mine:/dev/tessera/bin","NVIDIA_VISIBLE_DEVICES=none"]})");
}

TEST_F(ExecProcessTest, ProcessWithoutEnvironmentGetsTheContainers) {
  WriteConfig(R"(["PATH=/bin:/dev/tessera/bin","LD_LIBRARY_PATH=/dev/tessera/lib"])");
  EXPECT_EQ(Edited("{}"),
            R"({"env":["PATH=/bin:/dev/tessera/bin","LD_LIBRARY_PATH=/dev/tessera/lib"]})");
}

TEST_F(ExecProcessTest, NoVariableLoadsTheDriverBeforeTheLimiter) {
  WriteConfig(R"(["PATH=/dev/tessera/bin"])");
  EXPECT_EQ(Edited(R"({"env":["PATH=/dev/tessera/bin","LD_PRELOAD=/dev/tessera/real/libcuda"]})"),
            R"({"env":["PATH=/dev/tessera/bin","LD_PRELOAD="]})");
}

TEST_F(ExecProcessTest, InvalidDocumentIsNotChanged) {
  WriteConfig(R"(["PATH=/dev/tessera/bin"])");
  const std::string file = JoinPath(dir_.path(), "process.json");
  ASSERT_TRUE(WriteFileAtomically(file, "{\"env\":[", 0600).ok());
  EXPECT_FALSE(EditExecProcess(dir_.path(), file).ok());
  EXPECT_EQ(*ReadFile(file), "{\"env\":[");
}

TEST_F(ExecProcessTest, BundleIsTheDirOfTheLog) {
  EXPECT_EQ(BundleOfExec("/run/containerd/task/abc/log.json"), "/run/containerd/task/abc");
  EXPECT_EQ(BundleOfExec(nullptr), ".");
}

TEST_F(ExecProcessTest, BundleWithAStageIsAGpuBundle) {
  EXPECT_FALSE(IsGpuBundle(dir_.path()));
  ASSERT_TRUE(MakeDirs(JoinPath(dir_.path(), "tessera")).ok());
  EXPECT_TRUE(IsGpuBundle(dir_.path()));
}

}  // namespace
}  // namespace tessera::runtime
