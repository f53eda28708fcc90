// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/unredeemed.h"

#include <gtest/gtest.h>

#include "src/agent/grants/testing/grants_fixture.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;

class UnredeemedTest : public GrantsFixture {
 protected:
  // A pod whose container the kubelet has given a GPU and the engine has started.
  void Run(const std::string& name, bool starts = true) {
    PodInfo pod = FakeApiPods::Make(name, {{"main", {{kGpu, "1"}}}});
    pod.created = runner_.clock().WallNow();
    if (starts) pod.container_ids["main"] = "containerd://1";
    Assign(pod, {{"main", {"GPU-1"}}});
    kubelet_.Admit(name);
    kubelet_.Hold(name, kGpu, "GPU-1");
  }
  std::vector<std::string> Find(WallTime since = {}) {
    return UnredeemedContainers(*kubelet_.answer, pods_, *ledger_, since);
  }
};

TEST_F(UnredeemedTest, AContainerThatRunsWithAnUnredeemedTokenIsFound) {
  Run("a");
  EXPECT_EQ(Find(), (std::vector<std::string>{"default/a/main"}));
  EXPECT_EQ(GpuOf("a", {Token(kGpu, 1)}), "GPU-1");
  EXPECT_TRUE(Find().empty());
}

TEST_F(UnredeemedTest, AContainerThatDoesNotRunYetIsNotFound) {
  Run("a", false);
  EXPECT_TRUE(Find().empty());
}

TEST_F(UnredeemedTest, PodsOlderThanTheAgentAndDevicesOfOtherPluginsAreNotFound) {
  Run("a");
  EXPECT_TRUE(Find(runner_.clock().WallNow() + 1s).empty());
  kubelet_.answer->held_devices.front().resource = "vendor.com/nic";
  EXPECT_TRUE(Find().empty());
}

TEST_F(UnredeemedTest, AnotherPodOfTheNamespaceIsNotReported) {
  Run("a");
  kubelet_.End("a");
  kubelet_.Hold("unknown", kGpu, "GPU-1");
  EXPECT_TRUE(Find().empty());
  kubelet_.answer->held_devices.front().pod_namespace = "other";
  kubelet_.answer->held_devices.front().pod_name = "a";
  EXPECT_TRUE(Find().empty());
}

TEST_F(UnredeemedTest, APodThatWasCreatedWhenTheAgentStartedIsFound) {
  Run("a");
  EXPECT_EQ(Find(runner_.clock().WallNow()), (std::vector<std::string>{"default/a/main"}));
}

TEST_F(UnredeemedTest, TheServiceReportsContainersThatTwoChecksFind) {
  std::vector<std::vector<std::string>> reports;
  on_unredeemed_ = [&](const std::vector<std::string>& now) { reports.push_back(now); };
  Restart();
  pods_.Sync();
  Run("a");
  runner_.AdvanceTimeAndRun(UnredeemedWatch::kInterval);
  EXPECT_TRUE(reports.empty());
  runner_.AdvanceTimeAndRun(UnredeemedWatch::kInterval);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0], (std::vector<std::string>{"default/a/main"}));
  EXPECT_EQ(metrics_.unredeemed_tokens, 1u);
  pods_.Remove(Uid("uid-a"));
  runner_.AdvanceTimeAndRun(UnredeemedWatch::kInterval);
  EXPECT_EQ(reports.size(), 2u);
  EXPECT_TRUE(reports.back().empty());
}

}  // namespace
}  // namespace tessera::agent
