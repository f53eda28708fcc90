// SPDX-License-Identifier: Apache-2.0
#include "src/ledger/pod_request.h"

#include <gtest/gtest.h>

#include "api/names.h"
#include "src/ledger/feed.h"
#include "src/ledger/testing/objects.h"

namespace tessera::ledger {
namespace {

using testing::GpuPod;

kube::Container Container(kube::ContainerKind kind, const char* cpu, const char* memory) {
  return {.name = "c", .kind = kind, .requests = {{"cpu", cpu}, {"memory", memory}}};
}

TEST(PodRequestTest, CpuAndMemoryAreTheMostThatContainersHoldAtOneTime) {
  using enum kube::ContainerKind;
  kube::PodObject pod = GpuPod("a", {});
  pod.containers = {Container(kInit, "4", "1Gi"), Container(kSidecar, "1", "1Gi"),
                    Container(kInit, "5", "9Gi"), Container(kMain, "2", "3Gi"),
                    Container(kMain, "1", "4Gi")};
  PodRequest request = PodRequestOf(pod, {}).value();
  EXPECT_EQ(request.cpu, device::MilliCpu(6000)) << "the second init container beside the sidecar";
  EXPECT_EQ(request.memory, GiB(10));
  pod.containers[2] = Container(kInit, "1", "1Gi");
  request = PodRequestOf(pod, {}).value();
  EXPECT_EQ(request.cpu, device::MilliCpu(4000)) << "the sidecar and both main containers";
  EXPECT_EQ(request.memory, GiB(8));
}

TEST(PodRequestTest, ASumBeyondSixtyFourBitsIsRejected) {
  using enum kube::ContainerKind;
  kube::PodObject pod = GpuPod("a", {});
  for (const kube::ContainerKind second : {kMain, kInit}) {
    pod.containers = {Container(kSidecar, "1", "7Ei"), Container(second, "1", "7Ei")};
    const Status status = PodRequestOf(pod, {}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_NE(status.message().find("requests.memory: \"7Ei\" and the earlier containers"),
              std::string::npos)
        << status.message();
  }
}

constexpr std::string_view kGpuResources[] = {
    names::kResourceGpu, names::kResourceGpuMem, names::kResourceVcudaCore,
    names::kResourceVcudaMemory, "nvidia.com/mig-1g.10gb"};

TEST(PodRequestTest, ALimitOrARequestOfAnyGpuResourceNamesGpus) {
  for (const std::string_view resource : kGpuResources) {
    kube::PodObject pod = GpuPod("a", {{resource, "1"}, {"cpu", "1"}});
    EXPECT_FALSE(HasNoGpus(pod)) << resource;
    pod.containers[0].limits.clear();
    EXPECT_FALSE(HasNoGpus(pod)) << resource;
    pod.containers[0].limits.swap(pod.containers[0].requests);
    EXPECT_FALSE(HasNoGpus(pod)) << resource;
    EXPECT_TRUE(KeptPodFields().resource(resource)) << resource;
  }
  EXPECT_TRUE(HasNoGpus(GpuPod("a", {{"cpu", "1"}, {"rdma/hca", "1"}})));
}

TEST(PodRequestTest, APodObjectRequestsGpusByAnyOfItsContainers) {
  const auto requests_gpus = [](const char* text) { return RequestsGpus(*ParseJson(text)); };
  EXPECT_TRUE(requests_gpus(
      R"({"spec":{"containers":[{},{"resources":{"limits":{"cpu":1,"nvidia.com/gpu":1}}}]}})"));
  EXPECT_TRUE(requests_gpus(
      R"({"spec":{"initContainers":[{"resources":{"requests":{"aliyun.com/gpu-mem":1}}}]}})"));
  EXPECT_FALSE(requests_gpus(R"({"spec":{"containers":[{"resources":{"limits":{"cpu":1}}}]}})"));
  EXPECT_FALSE(requests_gpus(R"({"spec":{"containers":[{"resources":{"limits":null}}]}})"));
}

TEST(PodRequestTest, InformersKeepOnlyFieldsThatAreRead) {
  const kube::KeptFields pods = KeptPodFields(),
                         nodes = KeptNodeFields({.pool = "pool", .model = "model"});
  for (const char* resource : {"cpu", "memory"}) {
    EXPECT_TRUE(pods.resource(resource));
    EXPECT_TRUE(nodes.resource(resource));
  }
  EXPECT_FALSE(pods.resource("rdma/hca"));
  EXPECT_TRUE(nodes.resource(names::kResourceGpuMem));
  EXPECT_FALSE(nodes.resource(names::kResourceGpu));
  EXPECT_TRUE(nodes.label("pool"));
  EXPECT_TRUE(nodes.label("model"));
  EXPECT_FALSE(nodes.label("zone"));
  EXPECT_TRUE(nodes.annotation(names::kAnnotationDevices));
  EXPECT_FALSE(nodes.annotation(names::kAnnotationAssignment));
  EXPECT_TRUE(pods.annotation(names::kAnnotationAssignment));
  EXPECT_FALSE(pods.annotation(names::kAnnotationDevices));
  EXPECT_FALSE(pods.label("app"));
  EXPECT_TRUE(KeptPodFields({.pod_labels = true}).label("app"));
}

TEST(QuotaInTest, IsEmptyWhereTheConfigMapHasNoSuchKey) {
  const kube::ConfigMapObject map{.data = {{"quota", R"({"ns":{"quota":{"A100":1}}})"}}};
  EXPECT_EQ(QuotaIn(map, "quota")->size(), 1u);
  EXPECT_TRUE(QuotaIn(map, "other")->empty());
}

}  // namespace
}  // namespace tessera::ledger
