// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/node_occupancy.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/agent/kubelet/testing/four_gpus.h"
#include "src/agent/pods/testing/fake_pods.h"

namespace tessera::agent {
namespace {

const std::string kMemName(names::kResourceGpuMem);

TEST(NodeOccupancyTest, WaitingListsAssignedContainersWithoutGpus) {
  const auto set = FourGpus();
  FakeApiPods pods;
  size_t skipped = 0;
  class NoLog : public grant::RecordLog {
    Status Append(std::string_view) override { return Status::Ok(); }
    Status Replace(const std::vector<std::string>&) override { return Status::Ok(); }
  } log;
  class NoDelegate : public Pods::Delegate {
    void OnPod(const Uid&) override {}
    void OnPodsSynced() override {}
  } delegate;
  GrantLedger ledger(&log, {}, &skipped);
  NodeOccupancy occupancy(&ledger, &pods);
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
  pods.Set(FakeApiPods::Make("unassigned", {{"main", {{kMemName, "8"}}}}));
  occupancy.SetKubeletDevices(
      {.held_devices = {{"default", "known", "main", kMemName, {"m0000"}}}});
  auto waiting = occupancy.WaitingContainers(set, device::MemoryUnit::kGiB);
  ASSERT_EQ(waiting.size(), 2u);
  EXPECT_EQ(waiting[0].pod_uid, Uid("uid-old"));
  EXPECT_EQ(waiting[1].pod_uid, Uid("uid-young"));
  EXPECT_EQ(waiting[0].units.at(kMemName), 8);
  EXPECT_EQ(occupancy.Accounts(set).UseOf("GPU-3").memory, GiB(8));
  // From here on pods arrive in the same order at kubelet and agent.
  pods.Start(&delegate);
  pods.Sync();
  occupancy.OnPodAdded(Uid("uid-young"));
  occupancy.OnPodAdded(Uid("uid-old"));
  waiting = occupancy.WaitingContainers(set, device::MemoryUnit::kGiB);
  EXPECT_EQ(waiting[0].pod_uid, Uid("uid-young"));
}

}  // namespace
}  // namespace tessera::agent
