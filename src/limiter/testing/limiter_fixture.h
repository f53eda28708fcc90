// SPDX-License-Identifier: Apache-2.0
// For tests: the limiter on the simulated driver, as a program in a limited container loads it.
#pragma once

#include <gtest/gtest.h>

#include "src/limiter/testing/limited_node.h"

namespace tessera::limiter::testing {

#define ASSERT_OK(call) ASSERT_EQ(call, cuda::Result::kSuccess)
#define EXPECT_OK(call) EXPECT_EQ(call, cuda::Result::kSuccess)

inline constexpr uint64_t kContextBytes = 10 * kMiB;  // of the node's profile

class LimiterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!LimitedNode::Possible()) GTEST_SKIP() << "needs root for a mount namespace of its own";
  }
};

inline cuda::Context MakeContext(const cuda::CudaLibrary& cuda, cuda::Device device = 0) {
  cuda::Context context = nullptr;
  EXPECT_OK(CU(cuda, cuInit)(0));
  EXPECT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, device));
  return context;
}

}  // namespace tessera::limiter::testing
