// SPDX-License-Identifier: Apache-2.0
// For tests of graphs: a program with two streams, a kernel that computes and a slow kernel.
#pragma once

#include <gtest/gtest.h>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {

inline constexpr char kGraphTestProfile[] =
    "base: a100-sxm4-80gb\nnode:\n  gpus: 1\n  nvlink: none\n";
inline constexpr char kGraphPtx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry _Z5saxpyifPKfPf(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) "
    "{ ret; }\n.visible .entry slow() { ret; }\n";

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class GraphTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMGPU_KERNEL_NS", "slow=20000000", 1);
    node_ = new sim::testing::SimNode({.profile = kGraphTestProfile});
    cuda_ = new CudaLibrary(node_->library("libcuda.so.1"));
    ASSERT_OK(CU(*cuda_, cuInit)(0));
    ASSERT_OK(CU(*cuda_, cuDevicePrimaryCtxRetain)(&context_, 0));
  }
  static void TearDownTestSuite() {
    delete cuda_;
    delete node_;
  }
  void SetUp() override {
    Module module = nullptr;
    ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
    ASSERT_OK(CU(*cuda_, cuModuleLoadData)(&module, kGraphPtx));
    ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&saxpy_, module, "_Z5saxpyifPKfPf"));
    ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&slow_, module, "slow"));
    ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream_, 1));
    ASSERT_OK(CU(*cuda_, cuStreamCreate)(&second_stream_, 1));
    ASSERT_OK(CU(*cuda_, cuEventCreate)(&fork_, 0));
    ASSERT_OK(CU(*cuda_, cuEventCreate)(&join_, 0));
    ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&x_, sizeof(float)));
    ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&y_, sizeof(float)));
    ASSERT_OK(CU(*cuda_, cuMemsetD32_v2)(x_, 0x3f800000, 1));  // 1.0f
    ASSERT_OK(CU(*cuda_, cuMemsetD32_v2)(y_, 0, 1));
    ASSERT_OK(CU(*cuda_, cuCtxSynchronize)());
  }
  // y += a * x in the stream.
  Result LaunchSaxpy(Stream stream, float a) {
    int n = 1;
    void* parameters[] = {&n, &a, &x_, &y_};
    return CU(*cuda_, cuLaunchKernel)(saxpy_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }
  float ReadY() {
    float value = -1;
    EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(&value, y_, sizeof(value)));
    return value;
  }
  GraphExec Instantiate(Graph graph) {
    GraphExec exec = nullptr;
    EXPECT_OK(CU(*cuda_, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    return exec;
  }
  void Run(GraphExec exec) {
    EXPECT_OK(CU(*cuda_, cuGraphLaunch)(exec, stream_));
    EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(stream_));
  }

  static inline sim::testing::SimNode* node_ = nullptr;
  static inline CudaLibrary* cuda_ = nullptr;
  static inline Context context_ = nullptr;
  Function saxpy_ = nullptr, slow_ = nullptr;
  Stream stream_ = nullptr, second_stream_ = nullptr;
  Event fork_ = nullptr, join_ = nullptr;
  DevicePtr x_ = 0, y_ = 0;
};

}  // namespace tessera::cuda
