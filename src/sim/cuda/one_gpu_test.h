// SPDX-License-Identifier: Apache-2.0
// For tests of device memory: a program with its context on a node with one GPU. Every test must
// free all of its memory.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {

class OneGpuTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;

  static void SetUpTestSuite() {
    node_ = new sim::testing::SimNode(
        {.profile = "base: a100-sxm4-80gb\ndriver: {version: 580.65.06}\ngpu:\n  memory_mib: "
                    "1100\n  reserved_mib: 100\n"
                    "  context_mib: 100\nnode:\n  gpus: 1\n  nvlink: none\n"});
    cuda_ = new CudaLibrary(node_->library("libcuda.so.1"));
    ASSERT_EQ(CU(*cuda_, cuInit)(0), Result::kSuccess);
    Context context = nullptr;
    ASSERT_EQ(CU(*cuda_, cuDevicePrimaryCtxRetain)(&context, 0), Result::kSuccess);
    ASSERT_EQ(CU(*cuda_, cuCtxSetCurrent)(context), Result::kSuccess);
  }
  static void TearDownTestSuite() {
    delete cuda_;
    delete node_;
  }
  void TearDown() override { EXPECT_EQ(UsedBytes(), 0u); }

  // Used bytes of the GPU without the context.
  static uint64_t UsedBytes() { return node_->state().UsedBytes(0) - 100 * kMiB; }

  static inline sim::testing::SimNode* node_ = nullptr;
  static inline CudaLibrary* cuda_ = nullptr;
};

}  // namespace tessera::cuda
