// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/device/dialects/gpu_manager_annotations.h"
#include "src/device/dialects/gpushare_annotations.h"

namespace tessera::device {
namespace {

TEST(GpushareTest, ReadsAndWritesTheFiveAnnotations) {
  const GpushareAnnotations gpushare{.gpu_minor = 1,
                                     .pod_units = 8,
                                     .gpu_units = 15,
                                     .assigned = false,
                                     .assume_time_ns = 1700000000123456789};
  const StringMap annotations{{"ALIYUN_COM_GPU_MEM_IDX", "1"},
                              {"ALIYUN_COM_GPU_MEM_POD", "8"},
                              {"ALIYUN_COM_GPU_MEM_DEV", "15"},
                              {"ALIYUN_COM_GPU_MEM_ASSIGNED", "false"},
                              {"ALIYUN_COM_GPU_MEM_ASSUME_TIME", "1700000000123456789"}};
  EXPECT_EQ(EncodeGpushare(gpushare), annotations);
  EXPECT_EQ(**DecodeGpushare(annotations), gpushare);
  EXPECT_EQ(*DecodeGpushare({{"other", "1"}}), std::nullopt);
  EXPECT_EQ(**DecodeGpushare({{"ALIYUN_COM_GPU_MEM_IDX", "0"}, {"ALIYUN_COM_GPU_MEM_POD", "2"}}),
            (GpushareAnnotations{.gpu_minor = 0, .pod_units = 2}));
}

TEST(GpushareTest, NamesTheAnnotationAndTheValue) {
  const struct {
    const char* key;
    const char* value;
    const char* reason;
  } kCases[] = {
      {"ALIYUN_COM_GPU_MEM_IDX", "-1", "-1 is not between 0 and 4095"},
      {"ALIYUN_COM_GPU_MEM_IDX", "GPU-a", "\"GPU-a\" is not a whole number"},
      {"ALIYUN_COM_GPU_MEM_IDX", "", "\"\" is not a whole number"},
      {"ALIYUN_COM_GPU_MEM_IDX", "01", "\"01\" is not a whole number"},
      {"ALIYUN_COM_GPU_MEM_POD", "1.5", "\"1.5\" is not a whole number"},
      {"ALIYUN_COM_GPU_MEM_POD", "-8", "-8 is not between 0 and 1073741824"},
      {"ALIYUN_COM_GPU_MEM_POD", "99999999999999999999",
       "\"99999999999999999999\" is not a whole number"},
      {"ALIYUN_COM_GPU_MEM_DEV", "1e3", "\"1e3\" is not a whole number"},
      {"ALIYUN_COM_GPU_MEM_ASSIGNED", "True", "\"True\" is neither true nor false"},
      {"ALIYUN_COM_GPU_MEM_ASSUME_TIME", "-1", "-1 is not between 0 and 9223372036854775807"},
  };
  for (const auto& test : kCases) {
    StringMap annotations = EncodeGpushare({.gpu_minor = 0, .pod_units = 1});
    annotations[test.key] = test.value;
    EXPECT_EQ(DecodeGpushare(annotations).status().message(),
              fmt::format("annotation {}: {}", test.key, test.reason));
  }
  EXPECT_EQ(DecodeGpushare({{"ALIYUN_COM_GPU_MEM_POD", "1"}}).status().message(),
            "annotation ALIYUN_COM_GPU_MEM_IDX: is missing");
  EXPECT_EQ(DecodeGpushare({{"ALIYUN_COM_GPU_MEM_IDX", "1"}}).status().message(),
            "annotation ALIYUN_COM_GPU_MEM_POD: is missing");
}

TEST(GpushareAllocationTest, ReadsUnitsByContainerAndGpu) {
  EXPECT_EQ(*DecodeGpushareAllocation(R"({"0":{"1":3},"2":{"0":4,"1":0}})"),
            (GpushareAllocation{{0, {{1, 3}}}, {2, {{0, 4}, {1, 0}}}}));
  EXPECT_EQ(*DecodeGpushareAllocation("{}"), GpushareAllocation{});
}

TEST(GpushareAllocationTest, RejectsMalformedInput) {
  const struct {
    const char* text;
    const char* reason;
  } kCases[] = {
      {"[]", "must be a JSON object"},
      {R"({"a":{}})", "\"a\" is not a whole number"},
      {R"({"-1":{}})", "-1 is not between 0 and 4095"},
      {R"({"0":[]})", "container 0: must be an object, not an array"},
      {R"({"0":{},"0":{}})", "container 0: occurs twice"},
      {R"({"0":{"0":1,"0":1}})", "container 0, GPU 0: occurs twice"},
      {R"({"0":{"00":1}})", "\"00\" is not a whole number"},
      {R"({"0":{"3":-1}})",
       "container 0, GPU 3: -1 is not a whole number between 0 and 1073741824"},
      {R"({"0":{"3":"1"}})",
       "container 0, GPU 3: \"1\" is not a whole number between 0 and 1073741824"},
  };
  for (const auto& test : kCases) {
    EXPECT_EQ(DecodeGpushareAllocation(test.text).status().message(),
              fmt::format("annotation scheduler.framework.gpushare.allocation: {}", test.reason));
  }
  EXPECT_FALSE(DecodeGpushareAllocation(std::string(17 << 10, ' ')).ok());
}

TEST(GpuManagerTest, ReadsAndWritesItsAnnotations) {
  const GpuManagerAnnotations gpu_manager{.minors = {{0, {3}}, {12, {0, 1}}},
                                          .node = "gpu-1.example",
                                          .time_ns = 1700000000123456789,
                                          .assigned = true};
  const StringMap annotations{{"tencent.com/predicate-gpu-idx-0", "3"},
                              {"tencent.com/predicate-gpu-idx-12", "0,1"},
                              {"tencent.com/predicate-node", "gpu-1.example"},
                              {"tencent.com/predicate-time", "1700000000123456789"},
                              {"tencent.com/gpu-assigned", "true"}};
  EXPECT_EQ(EncodeGpuManager(gpu_manager), annotations);
  EXPECT_EQ(**DecodeGpuManager(annotations), gpu_manager);
  EXPECT_EQ(*DecodeGpuManager({{"tencent.com/gpu-assigned", "false"}}), std::nullopt);
}

TEST(GpuManagerTest, AcceptsTheLongestNodeNameAndTheHighestMinorNumber) {
  const GpuManagerAnnotations gpu_manager{.minors = {{4095, {4095, 0}}},
                                          .node = "az-09." + std::string(247, 'z')};
  ASSERT_EQ(gpu_manager.node.size(), 253u);
  EXPECT_EQ(**DecodeGpuManager(EncodeGpuManager(gpu_manager)), gpu_manager);
}

TEST(GpuManagerTest, NamesTheAnnotationAndTheValue) {
  std::string many = "0";
  for (int i = 1; i <= 64; ++i) many += fmt::format(",{}", i);
  const struct {
    std::string key;
    std::string value;
    std::string reason;
  } kCases[] = {
      {"tencent.com/predicate-gpu-idx-0", "", "\"\" is not a whole number"},
      {"tencent.com/predicate-gpu-idx-0", "0,", "\"\" is not a whole number"},
      {"tencent.com/predicate-gpu-idx-0", "0, 1", "\" 1\" is not a whole number"},
      {"tencent.com/predicate-gpu-idx-0", "1,1", "1 occurs twice"},
      {"tencent.com/predicate-gpu-idx-0", "-1", "-1 is not between 0 and 4095"},
      {"tencent.com/predicate-gpu-idx-0", many, "names more than 64 GPUs"},
      {"tencent.com/predicate-gpu-idx-x", "0", "\"x\" is not a whole number"},
      {"tencent.com/predicate-gpu-idx-", "0", "\"\" is not a whole number"},
      {"tencent.com/predicate-gpu-idx-00", "0", "\"00\" is not a whole number"},
      {"tencent.com/predicate-node", "a b", "\"a b\" is not the name of a node"},
      {"tencent.com/predicate-node", "", "\"\" is not the name of a node"},
      {"tencent.com/predicate-node", std::string(254, 'a'),
       fmt::format("\"{}\" is not the name of a node", std::string(64, 'a'))},
      {"tencent.com/predicate-time", "yesterday", "\"yesterday\" is not a whole number"},
      {"tencent.com/gpu-assigned", "1", "\"1\" is neither true nor false"},
  };
  for (const auto& test : kCases) {
    StringMap annotations{{"tencent.com/predicate-gpu-idx-1", "0"}};
    annotations[test.key] = test.value;
    EXPECT_EQ(DecodeGpuManager(annotations).status().message(),
              fmt::format("annotation {}: {}", test.key, test.reason));
  }
}

}  // namespace
}  // namespace tessera::device
