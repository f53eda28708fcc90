// SPDX-License-Identifier: Apache-2.0
#include "src/agent/admission.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/agent/allocation.h"
#include "src/agent/fake_pods.h"
#include "src/agent/four_gpus.h"
#include "src/agent/node_view.h"

namespace tessera::agent {
namespace {

const std::string kGpuName(names::kResourceGpu);
const std::string kMemName(names::kResourceGpuMem);

Admission::Waiting Container(const std::string& pod, int64_t gpus, std::vector<std::string> uuids) {
  Admission::Waiting waiting{.pod_uid = pod, .container = "main"};
  waiting.asks[kGpuName] = gpus;
  for (std::string& uuid : uuids) waiting.shares.push_back({.uuid = std::move(uuid)});
  return waiting;
}

TEST(AdmissionTest, TheOldestWhoAsksForSoManyAndHasNoneIsNext) {
  Admission admission;
  admission.Set({Container("a", 2, {}), Container("b", 1, {}), Container("c", 1, {})});
  ASSERT_EQ(admission.Next(kGpuName, 1)->pod_uid, "b");
  admission.GiveNext(kGpuName, 1);
  EXPECT_EQ(admission.Next(kGpuName, 1)->pod_uid, "c");
  EXPECT_EQ(admission.Next(kGpuName, 2)->pod_uid, "a");
  EXPECT_FALSE(admission.Next(kGpuName, 3));
  EXPECT_FALSE(admission.Next(kMemName, 1));
}

TEST(AdmissionTest, PreferredAllocationNamesWhatTheNextPodWasAssigned) {
  const auto set = FourGpus();
  Admission admission;
  SystemClock clock;
  const grant::TokenSealer sealer(std::string(32, 'k'));
  const Allocator allocator(kGpuName, &sealer, &clock, &admission);
  const std::vector<std::string> all = {"GPU-0", "GPU-1", "GPU-2", "GPU-3"};
  admission.Set({Container("a", 2, {"GPU-3", "GPU-1"}), Container("b", 2, {"GPU-0", "GPU-2"})});
  EXPECT_EQ(*allocator.Prefer(*set, all, {}, 2), (std::vector<std::string>{"GPU-3", "GPU-1"}));
  ASSERT_TRUE(allocator.Allocate(*set, {"GPU-3", "GPU-1"}).ok());
  EXPECT_EQ(*allocator.Prefer(*set, all, {}, 2), (std::vector<std::string>{"GPU-0", "GPU-2"}));
  EXPECT_EQ(allocator.Prefer(*set, {"GPU-0", "GPU-1"}, {}, 2)->size(), 2u)
      << "what is not there to be had is not named";
  EXPECT_EQ(allocator.Prefer(*set, all, {}, 1)->size(), 1u);
}

TEST(NodeViewTest, WaitingAreThoseWithGpusThatNobodyHasGivenYet) {
  const auto set = FourGpus();
  FakeApiPods pods;
  size_t skipped = 0;
  class NoLog : public grant::RecordLog {
    Status Append(std::string_view) override { return Status::Ok(); }
    Status Replace(const std::vector<std::string>&) override { return Status::Ok(); }
  } log;
  class NoListener : public Pods::Listener {
    void OnPod(const std::string&) override {}
    void OnPodsSynced() override {}
  } listener;
  GrantLedger ledger(&log, {}, &skipped);
  NodeView view(&ledger, &pods);
  const auto assign = [&](const std::string& name, int second, const std::string& uuid) {
    PodInfo pod = FakeApiPods::Make(name, {{"main", {{kMemName, "8"}}}});
    device::Assignment assignment;
    assignment.containers["main"] = {{.uuid = uuid, .memory = GiB(8)}};
    pod.annotations[std::string(names::kAnnotationAssignment)] =
        *device::EncodeAssignment(assignment);
    pod.created = WallTime(std::chrono::seconds(second));
    pods.Set(pod);
  };
  assign("young", 3, "GPU-1");
  assign("old", 1, "GPU-2");
  assign("known", 2, "GPU-3");
  pods.Set(FakeApiPods::Make("past", {{"main", {{kMemName, "8"}}}}));
  view.SetHeld({.held = {{"default", "known", "main", kMemName, {"m0000"}}}});
  auto waiting = view.Waiting(set, device::MemoryUnit::kGiB);
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(waiting[0].pod_uid, "uid-old");
  EXPECT_EQ(waiting[1].pod_uid, "uid-young");
  EXPECT_EQ(waiting[0].asks.at(kMemName), 8);
  EXPECT_EQ(view.Accounts(set).UseOf("GPU-3").memory, GiB(8));
  // From here on the kubelet sees them come as we do.
  pods.Start(&listener);
  pods.Sync();
  view.Came("uid-young");
  view.Came("uid-old");
  waiting = view.Waiting(set, device::MemoryUnit::kGiB);
  EXPECT_EQ(waiting[0].pod_uid, "uid-young");
}

}  // namespace
}  // namespace tessera::agent
