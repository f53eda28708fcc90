// SPDX-License-Identifier: Apache-2.0
// Which containers start with the GPUs that Allocate gave for their IDs.
#include "src/agent/grants/start_checks.h"

#include <gmock/gmock.h>

#include "src/agent/grants/testing/allocation_fixture.h"

namespace tessera::agent {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class StartChecksTest : public AllocationFixture {
 protected:
  // Allocates by the IDs alone, because the container is not known yet.
  Ids AllocateToUnknown(int gib) {
    const Ids ids = NewIds(gib);
    EXPECT_EQ(Allocate(kMem, ids), "GPU-0");
    return ids;
  }
  void HoldAs(const std::string& pod, const std::string& container, const Ids& ids) {
    kubelet_.answer->held_devices.push_back({"default", pod, container, kMem, ids});
  }
  // Adds a pod that an earlier device plugin has started with the GPU.
  void AddPodOfEarlierPlugin(const std::string& name, const std::string& gpu) {
    PodInfo pod = FakeApiPods::Make(name, {{"main", {{kGpu, "1"}}}});
    pod.container_ids["main"] = "containerd://1";
    pods_.Set(std::move(pod));
    kubelet_.Admit(name);
    Hold(name, kGpu, {gpu});
  }
};

TEST_F(StartChecksTest, AnotherContainerOfThePodDoesNotStartWithTheseIds) {
  Assign(FakeApiPods::Make("a", {{"main", {{kMem, "8"}}}, {"second", {{kMem, "4"}}}}),
         {{"main", {"GPU-1"}}, {"second", {"GPU-1"}}});
  kubelet_.Admit("a");
  const Ids ids = NewIds(8);
  ASSERT_EQ(Allocate(kMem, ids), "GPU-1");
  HoldAs("a", "second", ids);
  const Status status = PreStart(kMem, ids);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("container second of pod default/a has GPU-1, which "
                                          "Allocate gave it for container main of pod default/a"));
}

TEST_F(StartChecksTest, RejectsAContainerWithMoreIdsThanItsGrant) {
  AssignMem("a", 8, "GPU-1");
  Ids ids = NewIds(8);
  kubelet_.Admit("a");
  ASSERT_EQ(Allocate(kMem, ids), "GPU-1");
  Ids more = ids;
  more.push_back("m1");
  HoldAs("a", "main", more);
  EXPECT_EQ(PreStart(kMem, ids).code(), Code::kFailedPrecondition);
}

TEST_F(StartChecksTest, AnUnknownOwnerDoesNotStartWithIdsThatNoContainerHolds) {
  kubelet_.Admit("a");
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}));
  kubelet_.End("a");
  const Ids ids = AllocateToUnknown(5);
  const Status status = PreStart(kMem, ids);
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("the kubelet does not list them for one container"));
}

TEST_F(StartChecksTest, AnUnknownOwnerDoesNotStartWithIdsOfTwoContainers) {
  const Ids ids = AllocateToUnknown(6);
  for (const char* name : {"a", "b"}) {
    kubelet_.Admit(name);
    pods_.Set(FakeApiPods::Make(name, {{"main", {{kMem, "6"}}}}));
    HoldAs(name, "main", ids);
  }
  EXPECT_EQ(PreStart(kMem, ids).code(), Code::kFailedPrecondition);
}

TEST_F(StartChecksTest, AnUnknownContainerWithMoreIdsDoesNotStart) {
  Ids ids = AllocateToUnknown(6);
  Ids more = ids;
  more.push_back("m1");
  kubelet_.Admit("a");
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}));
  HoldAs("a", "main", more);
  EXPECT_EQ(PreStart(kMem, ids).code(), Code::kFailedPrecondition);
}

TEST_F(StartChecksTest, TheOwnerIsThePodOfThatNamespaceAndNameThatHasNotEnded) {
  const Ids ids = AllocateToUnknown(6);
  PodInfo ended = FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}, Uid("uid-0-ended"));
  ended.ended = true;
  pods_.Set(std::move(ended));
  PodInfo elsewhere = FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}, Uid("uid-1-elsewhere"));
  elsewhere.ns = "elsewhere";
  pods_.Set(std::move(elsewhere));
  pods_.Set(FakeApiPods::Make("other", {{"main", {{kMem, "6"}}}}, Uid("uid-2-other")));
  kubelet_.Admit("a");
  HoldAs("a", "main", ids);
  EXPECT_EQ(PreStart(kMem, ids).code(), Code::kUnavailable);
  pods_.Set(FakeApiPods::Make("a", {{"main", {{kMem, "6"}}}}));
  EXPECT_TRUE(PreStart(kMem, ids).ok());
  EXPECT_EQ(ledger_->entries().begin()->first, GrantLedger::Key(Uid("uid-a"), "main"));
}

TEST_F(StartChecksTest, TheLaterOfTwoGrantsForTheSameIdsCounts) {
  for (const auto& [first, second] : {std::pair("a", "z"), std::pair("y", "b")}) {
    AssignMem(first, 8, "GPU-1");
    AssignMem(second, 8, "GPU-2");
    const Ids ids = NewIds(8);
    ASSERT_EQ(AdmitMem(first, ids), "GPU-1");
    kubelet_.End(first);  // its GPU stays with it while the API server reports it as running
    runner_.AdvanceTimeAndRun(1s);
    ASSERT_EQ(AdmitMem(second, ids), "GPU-2");
    EXPECT_TRUE(PreStart(kMem, ids).ok()) << second;
    for (const char* name : {first, second}) {
      kubelet_.End(name);
      pods_.Remove(Uid("uid-" + std::string(name)));
    }
    runner_.AdvanceTimeAndRun(1min);
    ASSERT_TRUE(ledger_->entries().empty());
  }
}

TEST_F(StartChecksTest, WithoutAnApiServerNoContainerOfAnEarlierPluginStarts) {
  RestartAll(kWithoutApiServer);
  kubelet_.Admit("old");
  Hold("old", kGpu, {"GPU-2"});
  EXPECT_EQ(PreStart(kGpu, {"GPU-2"}).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(StartChecksTest, AnUnhealthyGpuOfAnEarlierPluginIsUnavailable) {
  AddPodOfEarlierPlugin("old", "GPU-1");
  SetHealthOfGpu1(device::Health::Unhealthy("XID 79"));
  const Status status = PreStart(kGpu, {"GPU-1"});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("XID 79"));
  EXPECT_TRUE(ledger_->entries().empty());
}

TEST_F(StartChecksTest, AContainerOfAnEarlierPluginDoesNotStartOnAnotherPodsGpu) {
  Assign(FakeApiPods::Make("holder", {{"main", {{kGpu, "1"}}}}), {{"main", {"GPU-2"}}});
  kubelet_.Admit("holder");
  ASSERT_EQ(Allocate(kGpu, {"GPU-0"}), "GPU-2");
  Hold("holder", kGpu, {"GPU-0"});
  AddPodOfEarlierPlugin("old", "GPU-2");
  EXPECT_EQ(PreStart(kGpu, {"GPU-2"}).code(), Code::kFailedPrecondition);
  EXPECT_EQ(ledger_->entries().size(), 1u);
  EXPECT_NE(ledger_->Find({Uid("uid-holder"), "default", "holder", "main"}), nullptr);
}

}  // namespace
}  // namespace tessera::agent
