// SPDX-License-Identifier: Apache-2.0
#include "src/grant/pod_cgroup.h"

#include <gtest/gtest.h>

namespace tessera::grant {
namespace {

const std::string kUid = "fd3b355a-665c-4c95-8e7f-61fd2111689f";
const std::string kSlice = "kubepods-besteffort-podfd3b355a_665c_4c95_8e7f_61fd2111689f.slice";
const std::string kId(64, 'a');

TEST(PodCgroupTest, ParsesContainerNamesOfEveryEngine) {
  for (const std::string& path : {
           "/kubepods.slice/kubepods-besteffort.slice/" + kSlice + "/cri-containerd-" + kId +
               ".scope",
           "/kubepods.slice/kubepods-burstable.slice/" + kSlice + "/crio-" + kId + ".scope",
           "/kubepods/burstable/pod" + kUid + "/" + kId,
           "/kubepods/pod" + kUid + "/" + kId + "/nested/deeper",
           "/kubelet.slice/kubelet-kubepods.slice/" + kSlice + "/docker-" + kId + ".scope",
           "/../../../" + kSlice + "/cri-containerd-" + kId + ".scope",
       }) {
    EXPECT_EQ(ParsePodCgroup(path), (PodCgroup{Uid(kUid), kId})) << path;
  }
}

TEST(PodCgroupTest, ParsesTheCgroupsPathOfTheSystemdDriver) {
  EXPECT_EQ(ParsePodCgroup(kSlice + ":cri-containerd:" + kId), (PodCgroup{Uid(kUid), ""}));
}

TEST(PodCgroupTest, ParsesStaticPods) {
  EXPECT_EQ(ParsePodCgroup("/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" + kId),
            (PodCgroup{Uid("0123456789abcdef0123456789abcdef"), kId}));
}

TEST(PodCgroupTest, OtherPathsBelongToNoPod) {
  for (const char* path : {"", "/", "/system.slice/containerd.service", "/kubepods/podx/abc",
                           "/user.slice/podman-1234.scope", "/machine/pod-of-mine/x",
                           "/kubepods/pod../x", "/system.slice:docker:abc"}) {
    EXPECT_EQ(ParsePodCgroup(path), std::nullopt) << path;
  }
}

}  // namespace
}  // namespace tessera::grant
