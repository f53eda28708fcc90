// SPDX-License-Identifier: Apache-2.0
#include "src/agent/grants/local_choice.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/agent/kubelet/testing/four_gpus.h"
#include "src/agent/pods/testing/fake_pods.h"

namespace tessera::agent {
namespace {

class LocalChoiceTest : public ::testing::Test {
 protected:
  static StringMap Mem(const std::string& gib) {
    return {{std::string(names::kResourceGpuMem), gib}};
  }
  // vcuda-memory counts blocks of 256 MiB.
  static StringMap Core(const std::string& percent, int gib) {
    return {{std::string(names::kResourceVcudaCore), percent},
            {std::string(names::kResourceVcudaMemory), std::to_string(4 * gib)}};
  }
  // The GPU of container `of` after the choice for the starting container, or the error.
  std::string Choose(const PodInfo& pod, const std::string& starting, const std::string& of) {
    const LocalDemand demand{.pod_uid = pod.uid,
                             .request = &*pod.request,
                             .container = starting,
                             .assignment = assigned_};
    const auto chosen = ChooseLocally(
        demand, DeviceSet(std::make_shared<device::NodeInventory>(inventory_)), accounts_);
    if (!chosen.ok()) return chosen.status().ToString();
    const auto found = chosen->containers.find(of);
    return found == chosen->containers.end() ? "none" : found->second.at(0).uuid;
  }
  std::string Choose(const PodInfo& pod) { return Choose(pod, "main", "main"); }
  void Use(const std::string& uuid, int milli, int gib) {
    accounts_.Add(uuid, {.pod_uid = Uid("uid-other-" + std::to_string(++others_)),
                         .dialect = device::Dialect::kVcuda,
                         .compute = MilliGpu(milli),
                         .memory = GiB(gib)});
  }

  device::NodeInventory inventory_ = FourGpus()->inventory();
  GpuAccounts accounts_;
  device::Assignment assigned_;
  int others_ = 0;
};

TEST_F(LocalChoiceTest, OnlyAHealthyWholeGpuWithADeviceNodeIsChosen) {
  inventory_.gpus[0].health = device::Health::Unhealthy("XID 79");
  inventory_.gpus[1].minor.reset();
  inventory_.gpus[2].mig.emplace();
  PodInfo pod = FakeApiPods::Make("a", {{"main", Mem("4")}});
  EXPECT_EQ(Choose(pod), "GPU-3");
  pod.request->constraints.excluded_uuids = {"GPU-3"};
  EXPECT_EQ(Choose(pod).substr(0, 18), "RESOURCE_EXHAUSTED");
}

TEST_F(LocalChoiceTest, ChoosesTheGpuWithTheLeastComputeAmongEqualMemory) {
  Use("GPU-1", 100, 8);
  Use("GPU-2", 500, 8);
  Use("GPU-3", 600, 4);
  EXPECT_EQ(Choose(FakeApiPods::Make("a", {{"main", Core("20", 4)}})), "GPU-2");
  Use("GPU-2", 400, 0);
  EXPECT_EQ(Choose(FakeApiPods::Make("a", {{"main", Core("20", 4)}})), "GPU-1");
}

TEST_F(LocalChoiceTest, EqualGpusAreChosenInTheirOrder) {
  EXPECT_EQ(Choose(FakeApiPods::Make("a", {{"main", Core("20", 4)}})), "GPU-0");
}

TEST_F(LocalChoiceTest, AGpuNeedsRoomForTheLargestContainerOfItsGroup) {
  Use("GPU-0", 100, 8);
  const PodInfo pod = FakeApiPods::Make("a", {{"init", Core("10", 2)}, {"main", Core("20", 12)}});
  EXPECT_EQ(Choose(pod, "init", "init"), "GPU-1");
  EXPECT_EQ(Choose(pod, "init", "main"), "GPU-1");
}

TEST_F(LocalChoiceTest, ContainersWithGpuMemoryUseTheGpuThatThePodHas) {
  const PodInfo pod = FakeApiPods::Make("a", {{"first", Mem("4")}, {"second", Mem("4")}});
  assigned_.containers["first"] = {
      *device::ShareOn(pod.request->containers[0], inventory_, "GPU-2")};
  EXPECT_EQ(Choose(pod, "second", "second"), "GPU-2");
}

TEST_F(LocalChoiceTest, AContainerWithoutGpusOrWithASliceGetsNoGpu) {
  const PodInfo pod = FakeApiPods::Make(
      "a", {{"main", Mem("4")}, {"plain", {}}, {"slice", {{"nvidia.com/mig-1g.10gb", "1"}}}});
  ASSERT_TRUE(pod.request.ok()) << pod.request.status().ToString();
  EXPECT_EQ(Choose(pod, "main", "main"), "GPU-0");
  EXPECT_EQ(Choose(pod, "main", "plain"), "none");
  EXPECT_EQ(Choose(pod, "main", "slice"), "none");
}

TEST_F(LocalChoiceTest, OnlyTheStartingContainerGetsAWholeGpu) {
  const StringMap one{{std::string(names::kResourceGpu), "1"}};
  const PodInfo pod = FakeApiPods::Make("a", {{"first", one}, {"second", one}});
  EXPECT_EQ(Choose(pod, "second", "first"), "none");
  EXPECT_EQ(Choose(pod, "second", "second").substr(0, 4), "GPU-");
}

}  // namespace
}  // namespace tessera::agent
