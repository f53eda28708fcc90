// SPDX-License-Identifier: Apache-2.0
#include "src/device/pod_annotations.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

// Two GPUs of different size whose minor numbers differ from their indices, and a GPU with MIG
// slices.
NodeInventory Inventory() {
  NodeInventory inventory;
  inventory.gpus = {{.uuid = "GPU-a", .index = 0, .minor = 3, .memory = MiB(15109)},
                    {.uuid = "GPU-b", .index = 1, .minor = 0, .memory = GiB(80)},
                    {.uuid = "GPU-c", .index = 2, .minor = 1, .memory = GiB(80)},
                    {.uuid = "GPU-d", .index = 3, .memory = GiB(80)}};
  inventory.gpus[2].mig = {{.uuid = "MIG-1", .profile = "1g.10gb", .memory = MiB(9728)}};
  return inventory;
}

ContainerSpec Container(std::string name, std::string resource, std::string amount) {
  ContainerSpec spec{.name = std::move(name)};
  spec.limits[std::move(resource)] = std::move(amount);
  return spec;
}

DeviceRequest RequestOf(std::vector<ContainerSpec> containers) {
  return *ParseRequest({.containers = std::move(containers)}, {});
}

const Binding kBinding{.node = "gpu-1", .time_ns = 1700000000000000000};

TEST(PodAnnotationsTest, WritesAndReadsTheAnnotationsOfGpushare) {
  ContainerSpec init = Container("init", "aliyun.com/gpu-mem", "2");
  init.phase = Phase::kInit;
  const DeviceRequest request = RequestOf({init,
                                           Container("a", "aliyun.com/gpu-mem", "8"),
                                           {.name = "b"},
                                           Container("c", "aliyun.com/gpu-mem", "4")});
  const Assignment assignment{{{"init", {{"GPU-a", MilliGpu(0), GiB(2)}}},
                               {"a", {{"GPU-a", MilliGpu(0), GiB(8)}}},
                               {"c", {{"GPU-a", MilliGpu(0), GiB(4)}}}}};
  StringMap annotations = *AnnotationsFor(request, assignment, Inventory(), kBinding);
  EXPECT_EQ(annotations.extract("tessera.dev/assignment").mapped(), *EncodeAssignment(assignment));
  EXPECT_EQ(annotations, (StringMap{{"ALIYUN_COM_GPU_MEM_IDX", "3"},
                                    {"ALIYUN_COM_GPU_MEM_POD", "12"},
                                    {"ALIYUN_COM_GPU_MEM_DEV", "14"},
                                    {"ALIYUN_COM_GPU_MEM_ASSIGNED", "false"},
                                    {"ALIYUN_COM_GPU_MEM_ASSUME_TIME", "1700000000000000000"}}));
  // Without Tessera's annotation, only the containers that gpushare counts remain.
  Assignment counted = assignment;
  counted.containers.erase("init");
  EXPECT_EQ(**AssignmentFrom(annotations, request, Inventory(), MemoryUnit::kGiB), counted);
}

TEST(PodAnnotationsTest, WritesAndReadsTheAnnotationsOfGpuManager) {
  const DeviceRequest request = RequestOf(
      {{.name = "none"},
       Container("whole", "tencent.com/vcuda-core", "200"),
       {.name = "part",
        .limits = {{"tencent.com/vcuda-core", "30"}, {"tencent.com/vcuda-memory", "20"}}}});
  const Assignment assignment{
      {{"whole", {{"GPU-b", kWholeGpu, GiB(80)}, {"GPU-c", kWholeGpu, GiB(80)}}},
       {"part", {{"GPU-a", MilliGpu(300), GiB(5)}}}}};
  StringMap annotations = *AnnotationsFor(request, assignment, Inventory(), kBinding);
  EXPECT_EQ(annotations.extract("tessera.dev/assignment").mapped(), *EncodeAssignment(assignment));
  EXPECT_EQ(annotations, (StringMap{{"tencent.com/predicate-gpu-idx-1", "0,1"},
                                    {"tencent.com/predicate-gpu-idx-2", "3"},
                                    {"tencent.com/predicate-node", "gpu-1"},
                                    {"tencent.com/predicate-time", "1700000000000000000"},
                                    {"tencent.com/gpu-assigned", "false"}}));
  EXPECT_EQ(**AssignmentFrom(annotations, request, Inventory(), MemoryUnit::kGiB), assignment);
}

TEST(PodAnnotationsTest, TesserasAnnotationPrecedesOthersAndSufficesForWholeGpusAndSlices) {
  const DeviceRequest request = RequestOf(
      {Container("gpu", "nvidia.com/gpu", "1"), Container("mig", "nvidia.com/mig-1g.10gb", "1")});
  const Assignment assignment{
      {{"gpu", {{"GPU-d", kWholeGpu, GiB(80)}}}, {"mig", {{"MIG-1", kWholeGpu, MiB(9728)}}}}};
  StringMap annotations = *AnnotationsFor(request, assignment, Inventory(), kBinding);
  EXPECT_EQ(annotations.size(), 1u);
  annotations["ALIYUN_COM_GPU_MEM_IDX"] = "broken";
  EXPECT_EQ(**AssignmentFrom(annotations, request, Inventory(), MemoryUnit::kGiB), assignment);
  EXPECT_EQ(*AssignmentFrom({}, request, Inventory(), MemoryUnit::kGiB), std::nullopt);
  EXPECT_EQ(AssignmentFrom({{"tessera.dev/assignment", "{}"}}, request, {}, MemoryUnit::kGiB)
                .status()
                .message(),
            "annotation tessera.dev/assignment: version: is missing");
}

TEST(PodAnnotationsTest, AllocationAnnotationPrecedesIndexAnnotations) {
  const DeviceRequest request = RequestOf({Container("a", "aliyun.com/gpu-mem", "8")});
  const StringMap annotations{
      {"scheduler.framework.gpushare.allocation", R"({"0":{"0":5,"3":3,"1":0}})"},
      {"ALIYUN_COM_GPU_MEM_IDX", "1"},
      {"ALIYUN_COM_GPU_MEM_POD", "8"}};
  EXPECT_EQ(
      **AssignmentFrom(annotations, request, Inventory(), MemoryUnit::kMiB),
      (Assignment{{{"a", {{"GPU-b", MilliGpu(0), MiB(5)}, {"GPU-a", MilliGpu(0), MiB(3)}}}}}));
  EXPECT_EQ(
      **AssignmentFrom({{"scheduler.framework.gpushare.allocation", R"({"0":{"0":1048576}})"}},
                       request, Inventory(), MemoryUnit::kGiB),
      (Assignment{{{"a", {{"GPU-b", MilliGpu(0), kMaxShareMemory}}}}}));
}

TEST(PodAnnotationsTest, RejectsOlderAnnotationsThatDoNotMatchTheNodeOrThePod) {
  const DeviceRequest mem = RequestOf({Container("a", "aliyun.com/gpu-mem", "8")});
  const DeviceRequest core = RequestOf({Container("a", "tencent.com/vcuda-core", "200")});
  const struct {
    const DeviceRequest& request;
    StringMap annotations;
    const char* message;
  } kCases[] = {
      {mem,
       {{"ALIYUN_COM_GPU_MEM_IDX", "2"}, {"ALIYUN_COM_GPU_MEM_POD", "8"}},
       "annotation ALIYUN_COM_GPU_MEM_IDX: the node has no GPU with minor number 2"},
      {mem,
       {{"scheduler.framework.gpushare.allocation", R"({"1":{}})"}},
       "annotation scheduler.framework.gpushare.allocation: container 1: the pod has only 1 "
       "container"},
      {mem,
       {{"scheduler.framework.gpushare.allocation", R"({"0":{"0":1073741824}})"}},
       "annotation scheduler.framework.gpushare.allocation: container 0, GPU 0: 1073741824 GiB are "
       "more than any GPU has"},
      {mem,
       {{"tencent.com/predicate-gpu-idx-0", "0"}},
       "annotation tencent.com/predicate-gpu-idx-0: the container at this position does not "
       "request tencent.com/vcuda-core"},
      {core,
       {{"tencent.com/predicate-gpu-idx-7", "0"}},
       "annotation tencent.com/predicate-gpu-idx-7: the container at this position does not "
       "request tencent.com/vcuda-core"},
      {core,
       {{"tencent.com/predicate-gpu-idx-0", "0"}},
       "annotation tencent.com/predicate-gpu-idx-0: names 1 GPUs, but container \"a\" requests 2"},
      {core,
       {{"tencent.com/predicate-gpu-idx-0", "0,2"}},
       "annotation tencent.com/predicate-gpu-idx-0: the node has no GPU with minor number 2"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(AssignmentFrom(test.annotations, test.request, Inventory(), MemoryUnit::kGiB)
                  .status()
                  .message(),
              test.message);
  }
}

TEST(PodAnnotationsTest, RejectsAssignmentsThatDifferFromTheRequest) {
  const DeviceRequest two = RequestOf(
      {Container("a", "aliyun.com/gpu-mem", "8"), Container("b", "aliyun.com/gpu-mem", "8")});
  const DeviceRequest mig = RequestOf({Container("a", "nvidia.com/mig-2g.20gb", "1")});
  const DeviceShare share{"GPU-a", MilliGpu(0), GiB(8)};
  const struct {
    const DeviceRequest& request;
    Assignment assignment;
    const char* message;
  } kCases[] = {
      {two, {{{"a", {share}}}}, "container \"b\": 0 devices are assigned, but it requests 1"},
      {two,
       {{{"a", {share}}, {"b", {{"GPU-b", MilliGpu(0), GiB(8)}}}}},
       "container \"b\" is assigned GPU-b, and another container GPU-a: all containers with "
       "aliyun.com/gpu-mem must be on one GPU"},
      {two,
       {{{"a", {share}}, {"b", {share}}, {"c", {share}}}},
       "3 containers are assigned devices, but the pod has only 2 of them"},
      {two,
       {{{"a", {share}}, {"b", {{"GPU-a", MilliGpu(1), GiB(8)}}}}},
       "container \"b\": 1 thousandths and 8589934592 bytes of GPU-a are assigned, but it "
       "requests 0 and 8589934592"},
      {two,
       {{{"a", {{"GPU-x", MilliGpu(0), GiB(8)}}}}},
       "container \"a\": GPU-x is not a GPU of the node"},
      {mig,
       {{{"a", {{"MIG-1", kWholeGpu, MiB(9728)}}}}},
       "container \"a\": MIG-1 is not a MIG slice of this node with profile 2g.20gb"},
  };
  for (const auto& test : kCases) {
    const Result<StringMap> annotations =
        AnnotationsFor(test.request, test.assignment, Inventory(), kBinding);
    EXPECT_EQ(annotations.status().code(), Code::kInvalidArgument);
    EXPECT_EQ(annotations.status().message(), test.message);
  }
}

TEST(PodAnnotationsTest, NamesTheAnnotationThatNeedsAMissingMinorNumber) {
  const Status gpushare =
      AnnotationsFor(RequestOf({Container("a", "aliyun.com/gpu-mem", "8")}),
                     {{{"a", {{"GPU-d", MilliGpu(0), GiB(8)}}}}}, Inventory(), kBinding)
          .status();
  EXPECT_EQ(gpushare.code(), Code::kFailedPrecondition);
  EXPECT_EQ(gpushare.message(),
            "GPU-d has no minor number, which annotation ALIYUN_COM_GPU_MEM_IDX needs");
  const Status gpu_manager =
      AnnotationsFor(RequestOf({{.name = "none"}, Container("a", "tencent.com/vcuda-core", "100")}),
                     {{{"a", {{"GPU-d", kWholeGpu, GiB(80)}}}}}, Inventory(), kBinding)
          .status();
  EXPECT_EQ(gpu_manager.code(), Code::kFailedPrecondition);
  EXPECT_EQ(gpu_manager.message(),
            "GPU-d has no minor number, which annotation tencent.com/predicate-gpu-idx-1 needs");
}

TEST(PodAnnotationsTest, AssignmentsAreDistinguishedFromRequests) {
  const DeviceRequest request = RequestOf(
      {Container("a", "aliyun.com/gpu-mem", "8"), Container("b", "tencent.com/vcuda-core", "100")});
  const Assignment assignment{
      {{"a", {{"GPU-a", MilliGpu(0), GiB(8)}}}, {"b", {{"GPU-b", kWholeGpu, GiB(80)}}}}};
  const auto written = AnnotationsFor(request, assignment, Inventory(), kBinding);
  ASSERT_TRUE(written.ok()) << written.status().ToString();
  EXPECT_GT(written->size(), 8u);
  for (const auto& [key, value] : *written) EXPECT_TRUE(IsAssignmentKey(key)) << key;
  for (const char* key :
       {"scheduler.framework.gpushare.allocation", "ALIYUN_COM_GPU_MEM_ASSIGN_TIME"}) {
    EXPECT_TRUE(IsAssignmentKey(key)) << key;
  }
  for (const char* key : {"tessera.dev/gpu-models", "tessera.dev/gpu-uuids", "tessera.dev/policy",
                          "tencent.com/vcuda-core-limit", "tencent.com/predicate", ""}) {
    EXPECT_FALSE(IsAssignmentKey(key)) << key;
  }
}

}  // namespace
}  // namespace tessera::device
