// SPDX-License-Identifier: Apache-2.0
#include "src/device/dialects.h"

#include <gtest/gtest.h>

namespace tessera::device {
namespace {

Result<ContainerRequest> Parse(StringMap limits, StringMap requests = {},
                               MemoryUnit unit = MemoryUnit::kGiB) {
  return ParseContainer(
      {.name = "main", .limits = std::move(limits), .requests = std::move(requests)},
      {.gpu_mem_unit = unit});
}

std::string Rejection(StringMap limits, StringMap requests = {}) {
  const Result<ContainerRequest> request = Parse(std::move(limits), std::move(requests));
  EXPECT_EQ(request.status().code(), Code::kInvalidArgument);
  return request.status().message();
}

TEST(DialectsTest, NvidiaGpuRequestsWholeGpus) {
  const ContainerRequest request = *Parse({{"nvidia.com/gpu", "2"}, {"cpu", "500m"}});
  EXPECT_EQ(request, (ContainerRequest{.name = "main",
                                       .dialect = Dialect::kNvidiaGpu,
                                       .count = 2,
                                       .per_gpu = {.compute = kWholeGpu},
                                       .exclusive = true}));
}

TEST(DialectsTest, NvidiaMigRequestsSlicesOfAProfile) {
  const ContainerRequest request = *Parse({{"nvidia.com/mig-1g.10gb.me", "3"}});
  EXPECT_EQ(request, (ContainerRequest{.name = "main",
                                       .dialect = Dialect::kNvidiaMig,
                                       .count = 3,
                                       .per_gpu = {.compute = kWholeGpu},
                                       .mig_profile = "1g.10gb.me"}));
}

TEST(DialectsTest, GpuMemIsInTheUnitOfTheCluster) {
  ContainerRequest request{
      .name = "main", .dialect = Dialect::kGpuMem, .count = 1, .per_gpu = {.memory = GiB(8)}};
  EXPECT_EQ(*Parse({{"aliyun.com/gpu-mem", "8"}}), request);
  request.per_gpu.memory = MiB(8000);
  EXPECT_EQ(*Parse({{"aliyun.com/gpu-mem", "8k"}}, {}, MemoryUnit::kMiB), request);
}

TEST(DialectsTest, VcudaCoreBelowAHundredIsAShareAndOtherwiseWholeGpus) {
  EXPECT_EQ(*Parse({{"tencent.com/vcuda-core", "30"}, {"tencent.com/vcuda-memory", "20"}}),
            (ContainerRequest{.name = "main",
                              .dialect = Dialect::kVcuda,
                              .count = 1,
                              .per_gpu = {.compute = MilliGpu(300), .memory = MiB(5120)}}));
  const ContainerRequest two{.name = "main",
                             .dialect = Dialect::kVcuda,
                             .count = 2,
                             .per_gpu = {.compute = kWholeGpu},
                             .exclusive = true};
  EXPECT_EQ(*Parse({{"tencent.com/vcuda-core", "200"}}), two);
  EXPECT_EQ(*Parse({{"tencent.com/vcuda-core", "200"}, {"tencent.com/vcuda-memory", "20"}}), two);
}

TEST(DialectsTest, ZeroAmountsAreIgnored) {
  const ContainerRequest none{.name = "main"};
  EXPECT_EQ(*Parse({}), none);
  EXPECT_EQ(*Parse({{"cpu", "1"}, {"rdma/hca", "1"}, {"nvidia.com/gpu.shared", "1"}}), none);
  EXPECT_EQ(*Parse({{"nvidia.com/gpu", "0"}}), none);
  EXPECT_EQ(*Parse({{"tencent.com/vcuda-core", "0"}, {"tencent.com/vcuda-memory", "0"}}), none);
  EXPECT_EQ(Parse({{"nvidia.com/gpu", "1"}, {"aliyun.com/gpu-mem", "0"}})->dialect,
            Dialect::kNvidiaGpu);
}

TEST(DialectsTest, VcudaCoreIsOneToNinetyNineOrAMultipleOfAHundred) {
  for (int64_t core = 1; core <= 1000; ++core) {
    const Result<ContainerRequest> request = Parse(
        {{"tencent.com/vcuda-core", std::to_string(core)}, {"tencent.com/vcuda-memory", "1"}});
    EXPECT_EQ(request.ok(), core < 100 || core % 100 == 0) << core;
  }
  EXPECT_EQ(Rejection({{"tencent.com/vcuda-core", "150"}}),
            "container \"main\": tencent.com/vcuda-core: 150 is neither 1 to 99 nor a multiple of "
            "100: request 100 or 200");
  EXPECT_EQ(Rejection({{"tencent.com/vcuda-core", "30"}}),
            "container \"main\": tencent.com/vcuda-memory: is missing or 0 beside "
            "tencent.com/vcuda-core: 30: request 1 or more blocks of 256 MiB");
  EXPECT_EQ(Rejection({{"tencent.com/vcuda-memory", "20"}}),
            "container \"main\": tencent.com/vcuda-core: is missing or 0 beside "
            "tencent.com/vcuda-memory: 20: request 1 to 99, or a multiple of 100");
}

TEST(DialectsTest, RejectsFractionalNegativeAndHugeNumbers) {
  EXPECT_EQ(
      Rejection({{"nvidia.com/gpu", "500m"}}),
      "container \"main\": nvidia.com/gpu: \"500m\" is not a whole number: request whole GPUs, "
      "or a part of one with tencent.com/vcuda-core or aliyun.com/gpu-mem");
  EXPECT_EQ(Rejection({{"aliyun.com/gpu-mem", "1.5"}}),
            "container \"main\": aliyun.com/gpu-mem: \"1.5\" is not a whole number: request whole "
            "units, GiB or MiB as the cluster is configured");
  EXPECT_EQ(Rejection({{"nvidia.com/mig-1g.5gb", "-1"}}),
            "container \"main\": nvidia.com/mig-1g.5gb: \"-1\" is negative: request whole slices");
  EXPECT_EQ(Rejection({{"nvidia.com/gpu", "1025"}}),
            "container \"main\": nvidia.com/gpu: 1025 devices are more than any node has: request "
            "less, or use several pods");
  EXPECT_EQ(
      Rejection({{"tencent.com/vcuda-core", "9223372036854775807"}}),
      "container \"main\": tencent.com/vcuda-core: 92233720368547758 devices are more than any "
      "node has: request less, or use several pods");
  EXPECT_EQ(
      Rejection({{"aliyun.com/gpu-mem", "9223372036854775807"}}),
      "container \"main\": aliyun.com/gpu-mem: 9223372036854775807 units of 1024 MiB are more than "
      "any GPU has: request less");
  EXPECT_EQ(
      Rejection({{"tencent.com/vcuda-core", "1"}, {"tencent.com/vcuda-memory", "1e18"}}),
      "container \"main\": tencent.com/vcuda-memory: 1000000000000000000 units of 256 MiB are more "
      "than any GPU has: request less");
  EXPECT_EQ(
      Rejection({{"nvidia.com/gpu", "1e99"}}),
      "container \"main\": nvidia.com/gpu: \"1e99\" is more than 9223372036854775807: request "
      "whole GPUs, or a part of one with tencent.com/vcuda-core or aliyun.com/gpu-mem");
}

TEST(DialectsTest, AcceptsTheLargestGpuCountAndMemory) {
  EXPECT_EQ(Parse({{"nvidia.com/gpu", "1024"}})->count, 1024);
  EXPECT_EQ(Parse({{"aliyun.com/gpu-mem", "1048576"}})->per_gpu.memory, kMaxShareMemory);
  EXPECT_FALSE(Parse({{"aliyun.com/gpu-mem", "1048577"}}).ok());
  PodSpec pod;
  pod.containers.resize(kMaxContainers);
  EXPECT_TRUE(ParseRequest(pod, {}).ok());
}

TEST(DialectsTest, RejectsInvalidProfiles) {
  EXPECT_EQ(Rejection({{"nvidia.com/mig-tiny", "1"}}),
            "container \"main\": nvidia.com/mig-tiny: \"tiny\" is not a MIG profile: request one "
            "like nvidia.com/mig-1g.10gb");
  EXPECT_EQ(
      Rejection({{"nvidia.com/mig-1g.5gb", "1"}, {"nvidia.com/mig-2g.10gb", "1"}}),
      "container \"main\": nvidia.com/mig-2g.10gb: the container requests nvidia.com/mig-1g.5gb "
      "too: request one profile in each container");
}

TEST(DialectsTest, RejectsTwoDialectsInOneContainer) {
  const struct {
    StringMap limits;
    const char* pair;
  } kCases[] = {
      {{{"nvidia.com/gpu", "1"}, {"aliyun.com/gpu-mem", "8"}},
       "aliyun.com/gpu-mem and nvidia.com/gpu"},
      {{{"nvidia.com/gpu", "1"}, {"nvidia.com/mig-1g.5gb", "1"}},
       "nvidia.com/gpu and nvidia.com/mig-*"},
      {{{"tencent.com/vcuda-core", "1"}, {"aliyun.com/gpu-mem", "8"}},
       "aliyun.com/gpu-mem and tencent.com/vcuda-core"},
      {{{"tencent.com/vcuda-memory", "1"}, {"nvidia.com/gpu", "1"}},
       "nvidia.com/gpu and tencent.com/vcuda-core"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(Rejection(test.limits),
              fmt::format("container \"main\": requests both {}: keep one of them", test.pair));
  }
}

TEST(DialectsTest, RequestsMustEqualLimits) {
  EXPECT_TRUE(Parse({{"nvidia.com/gpu", "1000m"}}, {{"nvidia.com/gpu", "1"}}).ok());
  EXPECT_TRUE(Parse({{"cpu", "2"}}, {{"cpu", "1"}}).ok());
  EXPECT_EQ(
      Rejection({{"nvidia.com/gpu", "2"}}, {{"nvidia.com/gpu", "1"}}),
      "container \"main\": nvidia.com/gpu: the request 1 is not the limit 2: leave the request "
      "out, or make them equal");
  EXPECT_EQ(Rejection({}, {{"aliyun.com/gpu-mem", "4"}}),
            "container \"main\": aliyun.com/gpu-mem: is requested without a limit: write 4 into "
            "resources.limits");
}

TEST(DialectsTest, APodSharesOneGpuIfAnyContainerRequestsGpuMem) {
  const DeviceRequest request = *ParseRequest(
      {.containers = {{.name = "warm", .phase = Phase::kInit, .limits = {{"nvidia.com/gpu", "1"}}},
                      {.name = "a", .limits = {{"aliyun.com/gpu-mem", "8"}}},
                      {.name = "b", .limits = {{"aliyun.com/gpu-mem", "4"}}},
                      {.name = "c"}}},
      {});
  ASSERT_EQ(request.containers.size(), 4u);
  EXPECT_TRUE(request.one_gpu);
  EXPECT_TRUE(request.requests_devices());
  EXPECT_EQ(request.OneGpuShare().memory, GiB(12));
  EXPECT_FALSE(ParseRequest({.containers = {{.name = "c"}}}, {})->requests_devices());
}

TEST(DialectsTest, ContainersWithWholeGpusMayUseDifferentGpus) {
  EXPECT_FALSE(ParseRequest({.containers = {{.name = "a", .limits = {{"nvidia.com/gpu", "1"}}},
                                            {.name = "b", .limits = {{"nvidia.com/gpu", "1"}}}}},
                            {})
                   ->one_gpu);
}

PodSpec OneGpuPod(StringMap annotations) {
  return {.containers = {{.name = "main", .limits = {{"nvidia.com/gpu", "1"}}}},
          .annotations = std::move(annotations)};
}

TEST(DialectsTest, AnnotationsConstrainThePod) {
  const DeviceRequest request =
      *ParseRequest(OneGpuPod({{"tessera.dev/gpu-models", "A100, h100"},
                               {"tessera.dev/gpu-uuids", "GPU-a"},
                               {"tessera.dev/gpu-uuids-excluded", "GPU-b,GPU-c"},
                               {"tessera.dev/policy", "spread"},
                               {"tencent.com/vcuda-core-limit", "60"}}),
                    {});
  EXPECT_EQ(request.constraints, (Constraints{{"A100", "h100"}, {"GPU-a"}, {"GPU-b", "GPU-c"}}));
  EXPECT_EQ(request.policy, PackingPolicy::kSpread);
  EXPECT_EQ(request.elastic_limit, MilliGpu(600));
}

TEST(DialectsTest, RejectsEmptyAndContradictoryAnnotations) {
  const struct {
    StringMap annotations;
    const char* message;
  } kCases[] = {
      {{{"tessera.dev/gpu-models", " , "}},
       "annotation tessera.dev/gpu-models: is empty: write a list like a,b or leave it out"},
      {{{"tessera.dev/gpu-uuids", "GPU-a"}, {"tessera.dev/gpu-uuids-excluded", "GPU-a"}},
       "annotation tessera.dev/gpu-uuids-excluded: GPU-a is also in tessera.dev/gpu-uuids: keep "
       "one "
       "of them"},
      {{{"tessera.dev/policy", "random"}},
       "annotation tessera.dev/policy: \"random\" is not a policy: write binpack or spread"},
      {{{"tencent.com/vcuda-core-limit", "0"}},
       "annotation tencent.com/vcuda-core-limit: 0 is not between 1 and 100"},
      {{{"tencent.com/vcuda-core-limit", "60%"}},
       "annotation tencent.com/vcuda-core-limit: \"60%\" is not a whole number"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(ParseRequest(OneGpuPod(test.annotations), {}).status().message(), test.message);
    EXPECT_TRUE(
        ParseRequest({.containers = {{.name = "c"}}, .annotations = test.annotations}, {}).ok());
  }
}

TEST(DialectsTest, RejectsInvalidPods) {
  PodSpec pod;
  pod.containers.resize(kMaxContainers + 1);
  EXPECT_EQ(ParseRequest(pod, {}).status().message(),
            "1025 containers in one pod are more than 1024");
  pod.containers = {{.name = "a"}, {.name = "b", .phase = Phase::kSidecar}};
  EXPECT_EQ(ParseRequest(pod, {}).status().message(),
            "container \"b\": an init container after a main container");
}

TEST(RequestTextTest, IsInTheUnitsOfTheDialect) {
  const auto text = [](StringMap limits, MemoryUnit unit = MemoryUnit::kGiB) {
    return RequestText(*Parse(std::move(limits), {}, unit), unit);
  };
  EXPECT_EQ(text({{"nvidia.com/gpu", "2"}}), "gpu: 2");
  EXPECT_EQ(text({{"nvidia.com/mig-1g.10gb", "1"}}), "mig-1g.10gb: 1");
  EXPECT_EQ(text({{"aliyun.com/gpu-mem", "8"}}), "gpu-mem: 8 GiB");
  EXPECT_EQ(text({{"aliyun.com/gpu-mem", "512"}}, MemoryUnit::kMiB), "gpu-mem: 512 MiB");
  EXPECT_EQ(text({{"tencent.com/vcuda-core", "30"}, {"tencent.com/vcuda-memory", "20"}}),
            "vcuda-core: 30, vcuda-memory: 20");
  EXPECT_EQ(text({{"tencent.com/vcuda-core", "200"}}), "vcuda-core: 200");
  EXPECT_EQ(text({{"cpu", "1"}}), "");
}

TEST(RequestTextTest, OmitsContainersWithoutDevices) {
  DeviceRequest request{.containers = {{.name = "helper"}}};
  EXPECT_EQ(RequestText(request, MemoryUnit::kGiB), "");
  request.containers.push_back(*Parse({{"nvidia.com/gpu", "1"}}));
  request.containers.push_back({.name = "helper"});
  request.containers.push_back(*Parse({{"nvidia.com/gpu", "2"}}));
  EXPECT_EQ(RequestText(request, MemoryUnit::kGiB), "gpu: 1 + gpu: 2");
}

TEST(MemoryUnitTest, HasTwoNames) {
  EXPECT_EQ(MemoryUnitFromName("GiB"), MemoryUnit::kGiB);
  EXPECT_EQ(MemoryUnitFromName("MiB"), MemoryUnit::kMiB);
  EXPECT_EQ(MemoryUnitFromName("GB"), std::nullopt);
}

}  // namespace
}  // namespace tessera::device
