// SPDX-License-Identifier: Apache-2.0
// Device memory of contexts, on the simulated driver. A context of the simulated node takes
// kContextBytes.
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::Context;
using cuda::CudaLibrary;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;

class ContextMemoryTest : public LimiterTest {
 protected:
  // Creates contexts until the limiter refuses. A floating context is current to no thread.
  static std::vector<Context> CreateAll(const CudaLibrary& cuda, bool floating) {
    std::vector<Context> contexts;
    Context context = nullptr;
    while (CU(cuda, cuCtxCreate_v2)(&context, 0, 0) == Result::kSuccess && contexts.size() < 20) {
      contexts.push_back(context);
      if (!floating) continue;
      EXPECT_OK(CU(cuda, cuCtxPopCurrent_v2)(&context));
    }
    return contexts;
  }
};

TEST_F(ContextMemoryTest, ContextsAreRefusedAtTheLimit) {
  for (const bool floating : {false, true}) {
    LimitedNode node({4 * kContextBytes});
    EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
      ASSERT_OK(CU(cuda, cuInit)(0));
      const std::vector<Context> contexts = CreateAll(cuda, floating);
      EXPECT_EQ(contexts.size(), 5u) << "the first context is free of charge";
      EXPECT_EQ(node.Held(0), 4 * kContextBytes);
      EXPECT_EQ(node.DeviceBytes(0), 5 * kContextBytes);
      EXPECT_EQ(node.usage(0).refused, 1u);
      for (const Context context : contexts) EXPECT_OK(CU(cuda, cuCtxDestroy_v2)(context));
      EXPECT_EQ(node.Held(0), 0u);
      EXPECT_EQ(node.DeviceBytes(0), 0u);
      EXPECT_EQ(CreateAll(cuda, floating).size(), 5u) << "all contexts were released";
    }));
  }
}

TEST_F(ContextMemoryTest, AContextThatExceedsTheLimitIsDestroyed) {
  LimitedNode node({kContextBytes - 2 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    // The size of the second context is not known before the driver has created it.
    EXPECT_EQ(CreateAll(cuda, false).size(), 1u);
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
    cuda::DevicePtr pointer = 0;
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, kContextBytes - 2 * kMiB));
  }));
}

TEST_F(ContextMemoryTest, TheLastRemainingContextIsNotChargedWhicheverEndsFirst) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Context first = nullptr, second = nullptr;
    ASSERT_OK(CU(cuda, cuInit)(0));
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&first, 0, 0));
    EXPECT_EQ(node.Held(0), 0u);
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&second, 0, 0));
    EXPECT_EQ(node.Held(0), kContextBytes);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(first));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(CU(cuda, cuCtxDestroy_v2)(first), Result::kInvalidContext);
    EXPECT_EQ(node.Held(0), 0u);
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&first, 0, 1));
    EXPECT_EQ(node.Held(0), 0u) << "of another GPU";
  }));
}

TEST_F(ContextMemoryTest, ThePrimaryContextIsChargedLikeAnyOther) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Context primary = nullptr, own = nullptr;
    ASSERT_OK(CU(cuda, cuInit)(0));
    ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&own, 0, 0));
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&primary, 0));
    EXPECT_EQ(node.Held(0), kContextBytes);
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&primary, 0));
    EXPECT_EQ(node.Held(0), kContextBytes);
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRelease_v2)(0));
    EXPECT_EQ(node.Held(0), kContextBytes) << "retained twice";
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRelease_v2)(0));
    EXPECT_EQ(node.Held(0), 0u);
    node.SetMemory(0, kContextBytes - 2 * kMiB);
    EXPECT_EQ(CU(cuda, cuDevicePrimaryCtxRetain)(&primary, 0), Result::kOutOfMemory);
    EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
    int active = 1;
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxGetState)(0, nullptr, &active));
    EXPECT_EQ(active, 0);
  }));
}

}  // namespace
}  // namespace tessera::limiter
