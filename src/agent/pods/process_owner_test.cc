// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/process_owner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

const std::string kUid = "fd3b355a-665c-4c95-8e7f-61fd2111689f";
const std::string kId(64, 'a');

TEST(ProcessOwnerTest, ReadsTheFilesOfBothCgroupVersions) {
  const ProcessOwner owner{Uid(kUid), kId};
  const std::string path = "/kubepods/burstable/pod" + kUid + "/" + kId;
  EXPECT_EQ(ParseProcessOwner("0::" + path + "\n"), owner);
  EXPECT_EQ(ParseProcessOwner("12:pids:/\n4:memory:" + path + "\n"), owner);
}

TEST(ProcessOwnerTest, OtherProcessesHaveNoOwner) {
  for (const char* text :
       {"", "0::/\n", "0::/system.slice/containerd.service\n", "0::/user.slice/podman-1234.scope\n",
        "0::/machine/pod-of-mine/x\n", "nonsense", "1:a", "0::/kubepods/pod../x"}) {
    EXPECT_EQ(ParseProcessOwner(text), std::nullopt) << text;
  }
}

TEST(ProcessOwnerTest, AProcessThatIsGoneHasNoOwner) {
  EXPECT_EQ(OwnerOf("/proc", 1 << 30), std::nullopt);
}

TEST(ProcessOwnerTest, OwnPidIsThePidInTheInnermostNamespace) {
  EXPECT_EQ(OwnPidOf("/proc", ::getpid()), ::getpid());
  EXPECT_EQ(OwnPidOf("/proc", 1 << 30), std::nullopt);
  const TempDir proc;
  ASSERT_TRUE(MakeDirs(proc.path() + "/71").ok());
  const auto write = [&](const std::string& text) {
    ASSERT_TRUE(WriteFileAtomically(proc.path() + "/71/status", text, 0644).ok());
  };
  write("Name:\tx\nNSpid:\t71\t9\t4\nThreads:\t1\n");
  EXPECT_EQ(OwnPidOf(proc.path(), 71), 4);
  write("Name:\tx\n");
  EXPECT_EQ(OwnPidOf(proc.path(), 71), std::nullopt) << "Linux before 4.1";
}

}  // namespace
}  // namespace tessera::agent
