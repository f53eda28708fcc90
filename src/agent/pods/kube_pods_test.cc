// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/kube_pods.h"

#include <gtest/gtest.h>

namespace tessera::agent {
namespace {

kube::PodObject PodWithMirror(const std::string& hash) {
  kube::PodObject pod;
  pod.meta.uid = Uid("9b3c1bb6-9f2c-4f2d-8b21-0f6f2f0a1c11");
  pod.meta.name = "static-n1";
  if (!hash.empty()) pod.meta.annotations["kubernetes.io/config.mirror"] = hash;
  return pod;
}

TEST(KubePodsTest, AStaticPodIsKnownByTheUidThatKubeletAndEngineHave) {
  const std::string hash = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(PodInfoOf(PodWithMirror(hash), device::MemoryUnit::kGiB)->uid, Uid(hash));
}

TEST(KubePodsTest, AnAnnotationCannotMakeAPodPassForAnother) {
  const Uid own = PodWithMirror("").meta.uid;
  for (const char* forged :
       {"", "fd3b355a-665c-4c95-8e7f-61fd2111689f", "0123456789ABCDEF0123456789ABCDEF",
        "0123456789abcdef0123456789abcde", "../23456789abcdef0123456789abcdef"}) {
    EXPECT_EQ(NodeUidOf(PodWithMirror(forged).meta), own) << forged;
  }
}

}  // namespace
}  // namespace tessera::agent
