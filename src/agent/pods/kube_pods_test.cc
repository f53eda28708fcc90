// SPDX-License-Identifier: Apache-2.0
#include "src/agent/pods/kube_pods.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "src/base/file.h"
#include "src/kube/testing/fake_api_server.h"
#include "src/net/testing/loopback.h"

namespace tessera::agent {
namespace {

kube::PodObject PodWithMirror(const std::string& hash) {
  kube::PodObject pod;
  pod.meta.uid = Uid("9b3c1bb6-9f2c-4f2d-8b21-0f6f2f0a1c11");
  pod.meta.name = "static-n1";
  if (!hash.empty()) pod.meta.annotations["kubernetes.io/config.mirror"] = hash;
  return pod;
}

TEST(KubePodsTest, AStaticPodHasTheUidOfTheKubeletAndNotOfItsMirrorPod) {
  const std::string hash = "0123456789abcdef0123456789abcdef";
  EXPECT_EQ(PodInfoOf(PodWithMirror(hash), device::MemoryUnit::kGiB)->uid, Uid(hash));
}

TEST(KubePodsTest, AForgedMirrorAnnotationDoesNotChangeTheUid) {
  const Uid own = PodWithMirror("").meta.uid;
  for (const char* forged :
       {"", "fd3b355a-665c-4c95-8e7f-61fd2111689f", "0123456789ABCDEF0123456789ABCDEF",
        "0123456789abcdef0123456789abcde", "../23456789abcdef0123456789abcdef"}) {
    EXPECT_EQ(NodeUidOf(PodWithMirror(forged).meta), own) << forged;
  }
}

// Records the patches that the API server receives.
class KubePodsWriteTest : public ::testing::Test, private Pods::Delegate {
 protected:
  KubePodsWriteTest() {
    const std::string kubeconfig = dir_.path() + "/kubeconfig";
    EXPECT_TRUE(WriteFileAtomically(kubeconfig, server_.Kubeconfig(), 0600).ok());
    server_.OnRequest([this](const net::Request& request) {
      if (request.method == "PATCH") patches_.push_back(request.body);
    });
    pods_ = ConnectPods(&io_, &runner_, kubeconfig, "n1", device::MemoryUnit::kGiB).value();
  }
  void Sync() {
    pods_->Start(this);
    ASSERT_TRUE(runner_.RunUntil([&] { return pods_->synced(); }));
  }
  void PutPod(const std::string& uid) {
    server_.Put("/api/v1/namespaces/a/pods/p",
                *ParseJson(fmt::format(
                    R"({{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"p","namespace":"a",)"
                    R"("uid":"{}"}},"spec":{{"nodeName":"n1","containers":[{{"name":"main"}}]}}}})",
                    uid)));
  }
  void Annotate(const std::string& uid, const std::string& key) {
    pods_->Annotate({.uid = Uid(uid), .ns = "a", .name = "p"}, {{key, "1"}});
  }
  // Waits until the API server has received a patch.
  std::string FirstPatch() {
    EXPECT_TRUE(runner_.RunUntil([&] { return !patches_.empty(); }));
    return patches_.empty() ? "" : patches_.front();
  }

  TempDir dir_;
  net::testing::TestRunner runner_;
  net::IoThread io_;
  kube::testing::FakeApiServer server_{io_, runner_};
  std::vector<std::string> patches_;
  std::unique_ptr<Pods> pods_;

 private:
  void OnPod(const Uid&) override {}
  void OnPodsSynced() override {}
};

TEST_F(KubePodsWriteTest, WritesAnnotationsThatCameBeforeThePodWasListed) {
  PutPod("u1");
  Annotate("u1", "early");
  Sync();
  EXPECT_NE(FirstPatch().find("early"), std::string::npos) << FirstPatch();
}

TEST_F(KubePodsWriteTest, ForgetsAnnotationsOfAPodThatIsGone) {
  Annotate("u1", "before-the-list");
  Sync();
  Annotate("u1", "after-the-list");
  runner_.RunFor(std::chrono::milliseconds(20));
  // A static pod that is created again keeps its UID.
  PutPod("u1");
  ASSERT_TRUE(runner_.RunUntil([&] { return pods_->Find(Uid("u1")) != nullptr; }));
  Annotate("u1", "new");
  EXPECT_NE(FirstPatch().find("new"), std::string::npos) << FirstPatch();
  EXPECT_EQ(FirstPatch().find("the-list"), std::string::npos) << FirstPatch();
}

}  // namespace
}  // namespace tessera::agent
