// SPDX-License-Identifier: Apache-2.0
// The charge of stacks, heaps and buffers that cuCtxSetLimit sets, on the simulated driver.
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
using testing::MakeContext;

constexpr size_t kDefaultHeap = 8 * kMiB;

class LimitedContextTest : public LimiterTest {};

TEST_F(LimitedContextTest, AHeapIsChargedBeyondItsDefaultUntilTheContextEnds) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Context context = MakeContext(cuda);
    const auto set = CU(cuda, cuCtxSetLimit);
    EXPECT_OK(set(cuda::kLimitMallocHeap, kDefaultHeap + 60 * kMiB));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + kContextBytes);
    EXPECT_EQ(set(cuda::kLimitMallocHeap, kDefaultHeap + 101 * kMiB), Result::kOutOfMemory);
    size_t value = 0;
    EXPECT_OK(CU(cuda, cuCtxGetLimit)(&value, cuda::kLimitMallocHeap));
    EXPECT_EQ(value, kDefaultHeap + 60 * kMiB) << "the value stays";
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_OK(set(cuda::kLimitMallocHeap, kDefaultHeap + 100 * kMiB)) << "only 40 MiB are new";
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_OK(set(cuda::kLimitMallocHeap, kMiB));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_OK(set(cuda::kLimitMallocHeap, kDefaultHeap + 30 * kMiB));
    EXPECT_EQ(node.Held(0), 30 * kMiB) << "counted from the default, not from the last value";
    EXPECT_EQ(node.DeviceBytes(0), 30 * kMiB + kContextBytes);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), 0u);
  }));
  EXPECT_EQ(node.usage(0).refused, 1u);
  EXPECT_EQ(node.usage(0).pending[0], 0u);
}

TEST_F(LimitedContextTest, AStackIsChargedForEveryThreadThatCanRun) {
  LimitedNode node({1000 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const auto set = CU(cuda, cuCtxSetLimit);
    EXPECT_OK(set(cuda::kLimitStack, 4096));
    // 108 multiprocessors x 2,048 threads x 3 KiB beyond the default.
    EXPECT_EQ(node.Held(0), 648 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 648 * kMiB + kContextBytes);
    EXPECT_EQ(set(cuda::kLimitStack, 8192), Result::kOutOfMemory);
    EXPECT_EQ(set(cuda::kLimitStack, SIZE_MAX), Result::kOutOfMemory);
    EXPECT_OK(set(cuda::kLimitPrintfFifo, 50 * kMiB));
    EXPECT_EQ(node.Held(0), node.DeviceBytes(0) - kContextBytes);
    EXPECT_OK(set(cuda::kLimitStack, 1024));
    EXPECT_EQ(node.Held(0), node.DeviceBytes(0) - kContextBytes);
    EXPECT_LT(node.Held(0), 50 * kMiB);
  }));
}

TEST_F(LimitedContextTest, ALimitThatTheDriverRefusesIsNotCharged) {
  LimitedNode node({3900 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    const auto set = CU(cuda, cuCtxSetLimit);
    cuda::DevicePtr pointer = 0;
    // Another tenant without a limit allocates nearly all of the GPU.
    ASSERT_OK(CU(real, cuMemAlloc_v2)(&pointer, 3800 * kMiB));
    EXPECT_OK(set(cuda::kLimitMallocHeap, kDefaultHeap + 100 * kMiB));
    EXPECT_EQ(set(cuda::kLimitMallocHeap, kDefaultHeap + 1000 * kMiB), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 100 * kMiB) << "the charge of the call before";
    EXPECT_EQ(node.usage(0).pending[0], 0u);
    EXPECT_EQ(set(7, 1), Result::kInvalidValue);
    EXPECT_EQ(set(-1, 1), Result::kInvalidValue);
    EXPECT_OK(set(3, 4)) << "a limit that takes no memory";
    EXPECT_EQ(node.Held(0), 100 * kMiB);
  }));
  EXPECT_EQ(node.usage(0).refused, 0u);
}

TEST_F(LimitedContextTest, WithoutAContextThereIsNothingToCharge) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    EXPECT_EQ(CU(cuda, cuCtxSetLimit)(0, 4096), Result::kNotInitialized);
    ASSERT_OK(CU(cuda, cuInit)(0));
    EXPECT_EQ(CU(cuda, cuCtxSetLimit)(0, 4096), Result::kInvalidContext);
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

}  // namespace
}  // namespace tessera::limiter
