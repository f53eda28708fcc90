// SPDX-License-Identifier: Apache-2.0
#include "src/placement/demand_of.h"

#include <gtest/gtest.h>

#include "src/placement/fit.h"
#include "src/placement/testing/sample_nodes.h"

namespace tessera::placement {
namespace {

using device::ContainerRequest;
using device::Dialect;
using device::Phase;
using testing::MakeNode;

ContainerRequest Whole(std::string name, int count, Phase phase = Phase::kMain) {
  return {.name = std::move(name),
          .phase = phase,
          .dialect = Dialect::kNvidiaGpu,
          .count = count,
          .per_gpu = {kWholeGpu, Bytes(0)},
          .exclusive = true};
}

ContainerRequest Vcuda(std::string name, int milli, Bytes bytes, Phase phase = Phase::kMain) {
  return {.name = std::move(name),
          .phase = phase,
          .dialect = Dialect::kVcuda,
          .count = 1,
          .per_gpu = {MilliGpu(milli), bytes}};
}

ContainerRequest GpuMem(std::string name, Bytes bytes, Phase phase = Phase::kMain) {
  return {.name = std::move(name),
          .phase = phase,
          .dialect = Dialect::kGpuMem,
          .count = 1,
          .per_gpu = {MilliGpu(0), bytes}};
}

class DemandOfTest : public ::testing::Test {
 protected:
  DemandOfTest() {
    NodeSpec spec = MakeNode("a", 8, GiB(80), "NVIDIA A100-SXM4-80GB");
    spec.gpus[7].mig_profile = "1g.10gb";
    node_ = *cluster_.AddNode(spec);
  }
  PodDemand Demanded(const device::DeviceRequest& request) {
    const auto pod = DemandOf(request, 4000, GiB(8), cluster_);
    EXPECT_TRUE(pod.ok()) << pod.status().ToString();
    return pod.value_or({});
  }
  device::Assignment Assigned(const device::DeviceRequest& request) {
    const PodDemand pod = Demanded(request);
    Pick pick;
    EXPECT_TRUE(PickTightest(cluster_.node(node_), pod.demand, &pick));
    return AssignmentOf(request, pod, pick, cluster_, node_);
  }

  Cluster cluster_;
  NodeId node_ = 0;
};

TEST_F(DemandOfTest, EachContainerThatRunsBesideOthersHasItsOwnGpus) {
  const device::DeviceRequest request{
      .containers = {Whole("main", 2), {.name = "proxy"}, Vcuda("side", 300, GiB(5))}};
  const PodDemand pod = Demanded(request);
  EXPECT_EQ(pod.demand.cpu_milli, 4000);
  EXPECT_EQ(pod.demand.gpu_demands,
            (std::vector<GpuDemand>{{2, kWholeGpu, Bytes(0)}, {1, MilliGpu(300), GiB(5)}}));
  EXPECT_EQ(pod.containers, (std::vector<std::vector<size_t>>{{0}, {2}}));
  const device::Assignment assignment = Assigned(request);
  using Shares = std::vector<device::DeviceShare>;
  EXPECT_EQ(assignment.containers.size(), 2u);
  EXPECT_EQ(assignment.containers.find("main")->second,
            (Shares{{"GPU-a-0", kWholeGpu, GiB(80)}, {"GPU-a-1", kWholeGpu, GiB(80)}}));
  EXPECT_EQ(assignment.containers.find("side")->second,
            (Shares{{"GPU-a-2", MilliGpu(300), GiB(5)}}));
}

TEST_F(DemandOfTest, ContainersOfGpuMemShareOneGpu) {
  const device::DeviceRequest request{.containers = {GpuMem("init", GiB(20), Phase::kInit),
                                                     GpuMem("a", GiB(8)), GpuMem("b", GiB(4))},
                                      .one_gpu = true};
  const PodDemand pod = Demanded(request);
  EXPECT_EQ(pod.demand.gpu_demands, (std::vector<GpuDemand>{{1, MilliGpu(0), GiB(20)}}));
  const device::Assignment assignment = Assigned(request);
  for (const auto& [name, bytes] : {std::pair("init", GiB(20)), {"a", GiB(8)}, {"b", GiB(4)}}) {
    EXPECT_EQ(assignment.containers.find(name)->second,
              (std::vector<device::DeviceShare>{{"GPU-a-0", MilliGpu(0), bytes}}));
  }
}

TEST_F(DemandOfTest, AnInitContainerSharesGpusWithLaterContainers) {
  device::DeviceRequest request{.containers = {Whole("init", 1, Phase::kInit), Whole("main", 2)}};
  EXPECT_EQ(Demanded(request).demand.gpu_demands,
            (std::vector<GpuDemand>{{2, kWholeGpu, Bytes(0)}}));
  EXPECT_EQ(Assigned(request).containers.find("init")->second.size(), 1u);
  request.containers[0].count = 3;
  EXPECT_EQ(Demanded(request).demand.gpu_demands,
            (std::vector<GpuDemand>{{3, kWholeGpu, Bytes(0)}}));
  EXPECT_EQ(Assigned(request).containers.find("main")->second.size(), 2u);
}

TEST_F(DemandOfTest, AnInitContainerIsNotPutOnTheGpusOfASidecar) {
  const device::DeviceRequest request{
      .containers = {Whole("sidecar", 1, Phase::kSidecar), Whole("init", 1, Phase::kInit)}};
  EXPECT_EQ(Demanded(request).demand.gpus(), 2);
}

TEST_F(DemandOfTest, InitContainerThatWouldEnlargeAllGpuDemandsGetsItsOwnDemand) {
  ContainerRequest small = Vcuda("main", 100, GiB(1));
  small.count = 6;
  const device::DeviceRequest request{
      .containers = {Vcuda("init", 900, GiB(1), Phase::kInit), small}};
  EXPECT_EQ(Demanded(request).demand.gpu_demands.size(), 2u)
      << "joining would enlarge six GPU demands to 0.9";
  const device::DeviceRequest memory{
      .containers = {Vcuda("init", 100, GiB(70), Phase::kInit), small}};
  EXPECT_EQ(Demanded(memory).demand.gpu_demands.size(), 2u)
      << "joining would enlarge six GPU demands to 70 GiB";
}

TEST_F(DemandOfTest, ModelsAreResolvedToKnownModels) {
  device::DeviceRequest request{.containers = {Whole("main", 1)}};
  request.constraints.models = {"a100"};
  EXPECT_TRUE(Fits(cluster_.node(node_), Demanded(request).demand));
  for (int i = 0; i < 1000; ++i) {
    request.constraints.models = {fmt::format("X{}", i)};
    EXPECT_FALSE(Fits(cluster_.node(node_), Demanded(request).demand));
  }
  EXPECT_LT(cluster_.model_count(), 5u) << "pods cannot use up the numbers that nodes need";
}

TEST_F(DemandOfTest, SlicesAreRequestedByProfile) {
  ContainerRequest slice{.name = "main",
                         .dialect = Dialect::kNvidiaMig,
                         .count = 1,
                         .per_gpu = {kWholeGpu, Bytes(0)},
                         .mig_profile = "1g.10gb"};
  EXPECT_EQ(Assigned({.containers = {slice}}).containers.find("main")->second[0].uuid, "GPU-a-7");
  for (int i = 0; i < 1000; ++i) {
    slice.mig_profile = fmt::format("{}g.1gb", i + 1);
    EXPECT_FALSE(Fits(cluster_.node(node_), Demanded({.containers = {slice}}).demand));
  }
}

TEST_F(DemandOfTest, GpusAreAllowedAndExcludedByUuid) {
  device::DeviceRequest request{.containers = {Whole("main", 1)}};
  const auto uuid = [&] { return Assigned(request).containers.find("main")->second.at(0).uuid; };
  request.constraints = {.models = {"A100"}, .uuids = {"GPU-a-3", "GPU-a-5", "GPU-elsewhere"}};
  EXPECT_EQ(uuid(), "GPU-a-3");
  request.constraints.excluded_uuids = {"GPU-a-3"};
  EXPECT_EQ(uuid(), "GPU-a-5");
  request.constraints = {.excluded_uuids = {"GPU-a-0", "GPU-a-1", "GPU-elsewhere"}};
  EXPECT_EQ(uuid(), "GPU-a-2");
  request.constraints = {.excluded_uuids = {"GPU-elsewhere"}};
  EXPECT_EQ(Demanded(request).demand, Demanded({.containers = {Whole("main", 1)}}).demand);
}

TEST_F(DemandOfTest, APodThatAllowsOnlyUnknownGpusFitsOnNoNode) {
  device::DeviceRequest request{.containers = {Whole("main", 1)}};
  request.constraints.uuids = {"GPU-elsewhere"};
  EXPECT_FALSE(Fits(cluster_.node(node_), Demanded(request).demand));
  request.constraints = {.uuids = {"GPU-a-0"}, .excluded_uuids = {"GPU-a-0"}};
  EXPECT_FALSE(Fits(cluster_.node(node_), Demanded(request).demand));
  // A pod that requests no device ignores the models and GPUs that it names.
  EXPECT_EQ(Demanded({.containers = {{.name = "a"}}, .constraints = request.constraints}).demand,
            Demanded({.containers = {{.name = "a"}}}).demand);
}

TEST_F(DemandOfTest, ASliceMatchesItsUuidAndItsGpusUuid) {
  NodeSpec spec = MakeNode("b", 3, GiB(10), "NVIDIA A100-SXM4-80GB");
  for (int i = 0; i < 3; ++i) {
    spec.gpus[i].mig_profile = "1g.10gb";
    spec.gpus[i].uuid = fmt::format("MIG-{}", i);
    spec.gpus[i].parent_uuid = i < 2 ? "GPU-b" : "GPU-c";
  }
  node_ = *cluster_.AddNode(spec);
  const ContainerRequest slice{.name = "main",
                               .dialect = Dialect::kNvidiaMig,
                               .count = 1,
                               .per_gpu = {kWholeGpu, Bytes(0)},
                               .mig_profile = "1g.10gb"};
  const auto uuid = [&](const device::Constraints& constraints) {
    return Assigned({.containers = {slice}, .constraints = constraints})
        .containers.find("main")
        ->second.at(0)
        .uuid;
  };
  EXPECT_EQ(uuid({.uuids = {"MIG-1"}}), "MIG-1");
  EXPECT_EQ(uuid({.uuids = {"GPU-c"}}), "MIG-2");
  EXPECT_EQ(uuid({.uuids = {"GPU-b"}, .excluded_uuids = {"MIG-0"}}), "MIG-1");
  EXPECT_EQ(uuid({.excluded_uuids = {"GPU-b"}}), "MIG-2");
}

TEST_F(DemandOfTest, InvalidRequestsAreRejected) {
  const auto code = [&](const device::DeviceRequest& request) {
    return DemandOf(request, 0, Bytes(0), cluster_).status().code();
  };
  EXPECT_EQ(code({.containers = {Whole("a", 65)}}), Code::kInvalidArgument);
  EXPECT_EQ(code({.containers = std::vector(17, Whole("a", 1))}), Code::kInvalidArgument);
  device::DeviceRequest named{.containers = {Whole("a", 1)}};
  for (int i = 0; i < 17; ++i) {
    const NodeSpec spec = MakeNode(fmt::format("large{}", i), 64);
    for (const GpuSpec& gpu : spec.gpus) named.constraints.excluded_uuids.push_back(gpu.uuid);
    ASSERT_TRUE(cluster_.AddNode(spec).ok());
  }
  EXPECT_EQ(code(named), Code::kInvalidArgument) << "more UUIDs than a demand may keep";
  EXPECT_TRUE(Demanded({.containers = {{.name = "none"}}}).demand.gpu_demands.empty());
}

TEST_F(DemandOfTest, SequentialContainersOnOneGpuNeedTheirMaximum) {
  const device::DeviceRequest request{
      .containers = {Vcuda("init", 300, GiB(4), Phase::kInit), Vcuda("main", 200, GiB(8))}};
  EXPECT_EQ(Demanded(request).demand.gpu_demands,
            (std::vector<GpuDemand>{{1, MilliGpu(300), GiB(8)}}));
}

TEST_F(DemandOfTest, OnlyContainersOfGpuMemAddUpOnOneGpu) {
  device::DeviceRequest request{.containers = {GpuMem("a", GiB(8)), Vcuda("b", 300, GiB(4))},
                                .one_gpu = true};
  EXPECT_EQ(Demanded(request).demand.gpu_demands,
            (std::vector<GpuDemand>{{1, MilliGpu(300), GiB(4)}, {1, MilliGpu(0), GiB(8)}}));
  request.one_gpu = false;
  request.containers = {GpuMem("a", GiB(8)), GpuMem("b", GiB(4))};
  EXPECT_EQ(Demanded(request).demand.gpu_demands,
            (std::vector<GpuDemand>{{1, MilliGpu(0), GiB(8)}, {1, MilliGpu(0), GiB(4)}}));
}

TEST_F(DemandOfTest, AnExclusiveContainerHoldsAllOfItsGpu) {
  device::DeviceRequest request{.containers = {Whole("main", 1)}};
  request.containers[0].per_gpu = {};
  EXPECT_EQ(Assigned(request).containers.find("main")->second,
            (std::vector<device::DeviceShare>{{"GPU-a-0", kWholeGpu, GiB(80)}}));
}

}  // namespace
}  // namespace tessera::placement
