// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/process_owner.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "src/base/file.h"

namespace tessera::agent {
namespace {

const std::string kUid = "fd3b355a-665c-4c95-8e7f-61fd2111689f";
const std::string kId(64, 'a');

TEST(ProcessOwnerTest, ReadsEveryWayInWhichEnginesNameContainers) {
  const ProcessOwner owner{kUid, kId};
  const std::string slice = "kubepods-besteffort-podfd3b355a_665c_4c95_8e7f_61fd2111689f.slice";
  for (const std::string& path : {
           "/kubepods.slice/kubepods-besteffort.slice/" + slice + "/cri-containerd-" + kId +
               ".scope",
           "/kubepods.slice/kubepods-burstable.slice/" + slice + "/crio-" + kId + ".scope",
           "/kubepods/burstable/pod" + kUid + "/" + kId,
           "/kubepods/pod" + kUid + "/" + kId + "/nested/deeper",
           "/kubelet.slice/kubelet-kubepods.slice/" + slice + "/docker-" + kId + ".scope",
           "/../../../" + slice + "/cri-containerd-" + kId + ".scope",
       }) {
    EXPECT_EQ(ParseProcessOwner("0::" + path + "\n"), owner) << path;
    EXPECT_EQ(ParseProcessOwner("12:pids:/\n4:memory:" + path + "\n"), owner) << path;
  }
}

TEST(ProcessOwnerTest, KnowsStaticPods) {
  EXPECT_EQ(ParseProcessOwner("0::/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" + kId),
            (ProcessOwner{"0123456789abcdef0123456789abcdef", kId}));
}

TEST(ProcessOwnerTest, OtherProcessesAreNobodys) {
  for (const char* text :
       {"", "0::/\n", "0::/system.slice/containerd.service\n", "0::/user.slice/podman-1234.scope\n",
        "0::/machine/pod-of-mine/x\n", "nonsense", "1:a", "0::/kubepods/pod../x"}) {
    EXPECT_EQ(ParseProcessOwner(text), std::nullopt) << text;
  }
}

TEST(ProcessOwnerTest, AProcessThatIsGoneIsNobodys) {
  EXPECT_EQ(OwnerOf("/proc", 1 << 30), std::nullopt);
}

TEST(ProcessOwnerTest, AProcessKnowsItselfByItsInnermostPid) {
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
