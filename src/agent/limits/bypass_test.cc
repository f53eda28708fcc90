// SPDX-License-Identifier: Apache-2.0
#include "src/agent/limits/bypass.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "src/agent/limits/testing/paused_process.h"
#include "src/base/file.h"

namespace tessera::agent {
namespace {

constexpr std::string_view kHeap = "55d0c0000000-55d0c0021000 rw-p 00000000 00:00 0    [heap]\n";

std::string Map(const std::string& path) {
  return "7f0000000000-7f0000001000 r-xp 00000000 fe:01 4711    " + path + "\n";
}

std::string Describe(const std::string& maps) { return DescribeBypass(std::string(kHeap) + maps); }

TEST(BypassTest, NamesTheLibraryThatAProcessHasLoadedInsteadOfTheLimiter) {
  EXPECT_EQ(Describe(Map("/opt/own/lib/libcuda.so.535.54.03")),
            "the process has loaded /opt/own/lib/libcuda.so.535.54.03, which is not the node's "
            "driver; remove that library from the image or from its search path");
  EXPECT_EQ(Describe(Map("/run/tessera/real/libcuda")),
            "the process calls /run/tessera/real/libcuda directly and bypasses the limiter; load "
            "the library by the name libcuda.so.1");
  EXPECT_EQ(
      Describe(Map("/dev/tessera/real/libcuda") + Map("/dev/tessera/lib/libcuda.so.550.163.01")),
      "the process calls /dev/tessera/real/libcuda directly and bypasses the limiter; load the "
      "library by the name libcuda.so.1")
      << "the limiter is loaded, and never called";
  EXPECT_EQ(Describe(Map("/usr/lib/libcudart.so.12")),
            "the process calls the kernel driver without libcuda; use libcuda, or give the pod a "
            "whole GPU");
}

TEST(BypassTest, NamesTheContainersLogIfTheLimiterCannotRecordAProcess) {
  const std::string mapped = Map("/dev/tessera/lib/libcuda.so.550.163.01") +
                             Map("/dev/tessera/real/libcuda") + Map("/dev/tessera/limits/limits");
  EXPECT_EQ(Describe(mapped),
            "the limiter cannot record this process in the usage file; see the container's log for "
            "the reason");
  EXPECT_EQ(Describe(mapped + Map("/dev/tessera/usage/usage (deleted)")),
            "the container has deleted its usage file in /dev/tessera/usage, where its processes "
            "record their device memory; restart the container, and do not change that file");
}

class KillTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string proc = fmt::format("{}/{}", temp_.path(), child_.pid());
    std::filesystem::create_directories(proc);
    const std::string cgroup =
        "0::/kubepods/pod" + owner_.pod_uid.str() + "/" + owner_.container_id;
    ASSERT_TRUE(WriteFileAtomically(proc + "/cgroup", cgroup, 0644).ok());
  }

  TempDir temp_;
  const ProcessOwner owner_{Uid("fd3b355a-665c-4c95-8e7f-61fd2111689f"), "aa"};
  PausedProcess child_;
};

TEST_F(KillTest, EndsAProcessOfTheContainer) {
  const Status status = KillProcessOf(owner_, temp_.path(), child_.pid());
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(child_.Signal(), SIGKILL);
}

TEST_F(KillTest, APidThatBelongsToAnotherContainerNowIsLeftAlone) {
  const Status status = KillProcessOf({owner_.pod_uid, "bb"}, temp_.path(), child_.pid());
  EXPECT_EQ(status.code(), Code::kNotFound);
  ::usleep(10'000);
  EXPECT_TRUE(child_.IsAlive());
}

}  // namespace
}  // namespace tessera::agent
