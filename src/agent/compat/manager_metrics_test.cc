// SPDX-License-Identifier: Apache-2.0
#include "src/agent/compat/manager_metrics.h"

#include <gtest/gtest.h>

#include "src/agent/compat/manager_page.h"

namespace tessera::agent {
namespace {

const std::string kPodUid = "fd3b355a-665c-4c95-8e7f-61fd2111689f";

class ManagerStateTest : public ::testing::Test {
 protected:
  ManagerStateTest() {
    for (int i = 0; i < 2; ++i) {
      inventory_.gpus.push_back({.uuid = fmt::format("GPU-{}", i),
                                 .index = i,
                                 .model = "T4",
                                 .memory = GiB(16),
                                 .pci_bus_id = fmt::format("0000:0{}:00.0", i)});
      report_.gpus.push_back({.uuid = fmt::format("GPU-{}", i), .processes = {}});
    }
  }
  HeldContainer& Hold(const std::string& container, int gpu, int64_t milli, Bytes memory) {
    holdings_.accounts.Add(fmt::format("GPU-{}", gpu),
                           {.pod_uid = Uid(kPodUid), .compute = MilliGpu(milli), .memory = memory});
    return holdings_.containers.emplace_back(
        HeldContainer{.holder = {Uid(kPodUid), "default", "nginx", container},
                      .shares = {{fmt::format("GPU-{}", gpu), MilliGpu(milli), memory}},
                      .container_id = ""});
  }
  ManagerState State() {
    return ManagerStateOf("10.0.0.127", holdings_, inventory_, report_,
                          [this](int pid) -> std::optional<ProcessOwner> {
                            const auto found = owners_.find(pid);
                            if (found == owners_.end()) return std::nullopt;
                            return found->second;
                          });
  }
  Holdings holdings_;
  device::NodeInventory inventory_;
  gpu::ProcessReport report_;
  std::map<int, ProcessOwner> owners_;
};

// The output in TKEStack's article, except that its 0.30000001192092896 is printed as 0.3.
TEST_F(ManagerStateTest, TheMetricPageEqualsGpuManagersPublishedOutput) {
  Hold("nginx", 0, 300, GiB(5));
  EXPECT_EQ(ManagerMetricPage(State()),
            R"(# HELP container_gpu_memory_total gpu memory usage in MiB
# TYPE container_gpu_memory_total gauge
container_gpu_memory_total{container_name="nginx",gpu_memory="gpu0",namespace="default",node="10.0.0.127",pod_name="nginx"} 0
container_gpu_memory_total{container_name="nginx",gpu_memory="total",namespace="default",node="10.0.0.127",pod_name="nginx"} 0
# HELP container_gpu_utilization gpu utilization
# TYPE container_gpu_utilization gauge
container_gpu_utilization{container_name="nginx",gpu="gpu0",namespace="default",node="10.0.0.127",pod_name="nginx"} 0
container_gpu_utilization{container_name="nginx",gpu="total",namespace="default",node="10.0.0.127",pod_name="nginx"} 0
# HELP container_request_gpu_memory request of gpu memory in MiB
# TYPE container_request_gpu_memory gauge
container_request_gpu_memory{container_name="nginx",namespace="default",node="10.0.0.127",pod_name="nginx",req_of_gpu_memory="total"} 5120
# HELP container_request_gpu_utilization request of gpu utilization
# TYPE container_request_gpu_utilization gauge
container_request_gpu_utilization{container_name="nginx",namespace="default",node="10.0.0.127",pod_name="nginx",req_of_gpu="total"} 0.3
)");
}

TEST_F(ManagerStateTest, AProcessIsCountedForTheContainerOfItsCgroup) {
  Hold("nginx", 0, 300, GiB(5)).container_id = "aa";
  Hold("side", 0, 200, GiB(2)).container_id = "bb";
  report_.gpus[0].processes = {
      {10, MiB(100), 20}, {11, MiB(50), 5}, {12, MiB(7), 1}, {13, MiB(9), 9}};
  owners_ = {{10, {Uid(kPodUid), "aa"}}, {11, {Uid(kPodUid), "aa"}}, {12, {Uid(kPodUid), "bb"}}};
  const ManagerState state = State();
  EXPECT_EQ(state.containers[0].gpus[0].used, MiB(150));
  EXPECT_EQ(state.containers[0].gpus[0].percent, 25);
  EXPECT_EQ(state.containers[0].gpus[0].pids, (std::vector<int>{10, 11}));
  EXPECT_EQ(state.containers[1].gpus[0].used, MiB(7));
  EXPECT_EQ(state.gpus[0].used, MiB(166)) << "including processes of no container";
}

TEST_F(ManagerStateTest, APodWithOneGpuContainerNeedsNoContainerId) {
  Hold("nginx", 0, 300, GiB(5));
  report_.gpus[0].processes = {{10, MiB(100), 20}};
  owners_ = {{10, {Uid(kPodUid), "aa"}}};
  EXPECT_EQ(State().containers[0].gpus[0].used, MiB(100));
  Hold("side", 0, 200, GiB(2));
  EXPECT_EQ(State().containers[0].gpus[0].used, Bytes(0))
      << "the process may belong to either container";
}

TEST_F(ManagerStateTest, AProcessOfAContainerWithoutGpusDoesNotCount) {
  Hold("nginx", 0, 300, GiB(5)).container_id = "aa";
  report_.gpus[0].processes = {{10, MiB(100), 20}};
  owners_ = {{10, {Uid(kPodUid), "bb"}}};
  EXPECT_EQ(State().containers[0].gpus[0].used, Bytes(0));
}

TEST_F(ManagerStateTest, WholeGpusCountAllTheirMemory) {
  Hold("train", 0, 1000, GiB(16)).shares.push_back({"GPU-1", kWholeGpu, GiB(16)});
  const ManagerState state = State();
  EXPECT_EQ(state.containers[0].milli, 2000);
  EXPECT_EQ(state.containers[0].memory, GiB(32));
  EXPECT_EQ(state.containers[0].gpus.size(), 2u);
}

TEST_F(ManagerStateTest, UnknownUseIsLeftOut) {
  Hold("nginx", 0, 300, GiB(5));
  report_ = {.status = Status(Code::kNotFound, "no driver"), .gpus = {}};
  const std::string page = ManagerMetricPage(State());
  EXPECT_EQ(page.find("container_gpu_memory_total"), std::string::npos);
  EXPECT_NE(page.find("container_request_gpu_utilization{"), std::string::npos);
}

TEST_F(ManagerStateTest, OnlyTheUseOfAGpuThatDoesNotAnswerIsLeftOut) {
  Hold("nginx", 0, 300, GiB(5)).container_id = "aa";
  Hold("train", 0, 300, GiB(5)).container_id = "bb";
  holdings_.containers.back().shares.push_back({"GPU-1", kWholeGpu, GiB(16)});
  report_.gpus[0].processes = {{10, MiB(100), 20}, {11, MiB(50), 5}};
  report_.gpus.pop_back();
  owners_ = {{10, {Uid(kPodUid), "aa"}}, {11, {Uid(kPodUid), "bb"}}};
  const std::string page = ManagerMetricPage(State());
  const auto has = [&](const std::string& name, const std::string& gpu) {
    return page.find(fmt::format("{{container_name=\"{}\",gpu_memory=\"{}\"", name, gpu)) !=
           std::string::npos;
  };
  EXPECT_TRUE(has("nginx", "gpu0"));
  EXPECT_TRUE(has("nginx", "total"));
  EXPECT_TRUE(has("train", "gpu0"));
  EXPECT_FALSE(has("train", "gpu1"));
  EXPECT_FALSE(has("train", "total")) << "a sum without GPU 1 is not the total";
  const std::string usage = ManagerUsage(State()).Serialize();
  EXPECT_NE(usage.find(R"("card_idx":"1","device_mem":16384})"), std::string::npos) << usage;
  EXPECT_NE(ManagerGraph(State()).StringAt("graph").value().find(
                "|---GPU1 (pids: unknown, usedMemory: unknown, totalMemory: 17179869184, "),
            std::string::npos);
}

TEST_F(ManagerStateTest, UsageAndGraphAreInGpuManagersJson) {
  Hold("nginx", 0, 300, GiB(5));
  report_.gpus[0].processes = {{10, MiB(100), 20}};
  owners_ = {{10, {Uid(kPodUid), "aa"}}};
  EXPECT_EQ(
      ManagerUsage(State()).Serialize(),
      R"({"usage":{"fd3b355a-665c-4c95-8e7f-61fd2111689f":{"stat":{"nginx":{"dev":[{"id":)"
      R"("0000:00:00.0","card_idx":"0","gpu":20,"mem":100,"pids":[10],"device_mem":16384}]}},)"
      R"("project":"default","spec":{"nginx":{"gpu":0.3,"mem":5120}}}}})");
  EXPECT_EQ(ManagerGraph(State()).StringAt("graph").value(),
            "ROOT:1\n"
            "|---GPU0 (pids: [10], usedMemory: 104857600, totalMemory: 17179869184, "
            "allocatableCores: 70, allocatableMemory: 11811160064)\n"
            "|---GPU1 (pids: [], usedMemory: 0, totalMemory: 17179869184, "
            "allocatableCores: 100, allocatableMemory: 17179869184)\n");
}

}  // namespace
}  // namespace tessera::agent
