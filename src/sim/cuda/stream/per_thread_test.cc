// SPDX-License-Identifier: Apache-2.0
// Per-thread default streams: their waits, and how long they live.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

const auto kPerThread = reinterpret_cast<Stream>(kStreamPerThread);
const auto kLegacy = reinterpret_cast<Stream>(kStreamLegacy);

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

// The kernel "long_one" takes 2 s, "short_one" 1 µs. Both fill a small part of the GPU.
class PerThreadTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMGPU_KERNEL_NS", "long_one=2000000000,short_one=1000", 1);
    node_ = new sim::testing::SimNode({.profile = "t4", .gpus = 1});
    cuda_ = new CudaLibrary(node_->library("libcuda.so.1"));
    Module module = nullptr;
    ASSERT_OK(CU(*cuda_, cuInit)(0));
    ASSERT_OK(CU(*cuda_, cuDevicePrimaryCtxRetain)(&context_, 0));
    ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
    ASSERT_OK(CU(*cuda_, cuModuleLoadData)(
        &module,
        ".version 6.0\n.target sm_50\n.address_size 64\n"
        ".visible .entry long_one() { ret; }\n.visible .entry short_one() { ret; }\n"));
    ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&long_one_, module, "long_one"));
    ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&short_one_, module, "short_one"));
  }
  static void TearDownTestSuite() {
    delete cuda_;
    delete node_;
  }
  void SetUp() override { ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(context_)); }
  void TearDown() override { EXPECT_OK(CU(*cuda_, cuCtxSynchronize)()); }

  static void Launch(Function function, Stream stream) {
    EXPECT_OK(CU(*cuda_, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  }
  static void LaunchPerThread(Function function, Stream stream) {
    const auto launch = cuda_->Get<fn::cuLaunchKernel>("cuLaunchKernel_ptsz");
    EXPECT_OK(launch(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
  }
  static Result Query(Stream stream) { return CU(*cuda_, cuStreamQuery)(stream); }
  static Result QueryPerThread(Stream stream) {
    return cuda_->Get<fn::cuStreamQuery>("cuStreamQuery_ptsz")(stream);
  }
  // Runs `body` in another thread with the same context.
  template <typename Body>
  static void InOtherThread(Body body) {
    std::thread([&] {
      EXPECT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
      body();
    }).join();
  }

  static inline sim::testing::SimNode* node_ = nullptr;
  static inline CudaLibrary* cuda_ = nullptr;
  static inline Context context_ = nullptr;
  static inline Function long_one_ = nullptr, short_one_ = nullptr;
};

TEST_F(PerThreadTest, StreamsOfTwoThreadsDoNotWaitForEachOther) {
  LaunchPerThread(long_one_, nullptr);
  InOtherThread([] {
    LaunchPerThread(short_one_, nullptr);
    EXPECT_OK(cuda_->Get<fn::cuStreamSynchronize>("cuStreamSynchronize_ptsz")(nullptr));
  });
  EXPECT_EQ(QueryPerThread(nullptr), Result::kNotReady);
}

TEST_F(PerThreadTest, HandleZeroIsTheThreadsStreamOnlyInFunctionsWithASuffix) {
  LaunchPerThread(long_one_, nullptr);
  EXPECT_EQ(QueryPerThread(nullptr), Result::kNotReady);
  EXPECT_EQ(Query(kPerThread), Result::kNotReady) << "handle 2 in any function";
  EXPECT_EQ(QueryPerThread(kPerThread), Result::kNotReady);
  EXPECT_OK(Query(nullptr));
  EXPECT_OK(Query(kLegacy));
  EXPECT_OK(QueryPerThread(kLegacy)) << "handle 1 in any function";
  unsigned long long own = 0, legacy = 0, other = 0;
  EXPECT_OK(CU(*cuda_, cuStreamGetId)(kPerThread, &own));
  EXPECT_OK(CU(*cuda_, cuStreamGetId)(nullptr, &legacy));
  InOtherThread([&] { EXPECT_OK(CU(*cuda_, cuStreamGetId)(kPerThread, &other)); });
  EXPECT_NE(own, legacy);
  EXPECT_NE(own, other);
  EXPECT_EQ(CU(*cuda_, cuStreamDestroy_v2)(kPerThread), Result::kInvalidValue);
}

TEST_F(PerThreadTest, TheLegacyStreamAndTheThreadsStreamWaitForEachOther) {
  LaunchPerThread(long_one_, nullptr);
  Launch(short_one_, nullptr);
  EXPECT_EQ(Query(nullptr), Result::kNotReady);
  EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(nullptr));
  EXPECT_OK(QueryPerThread(nullptr));

  Launch(long_one_, kLegacy);
  LaunchPerThread(short_one_, nullptr);
  EXPECT_EQ(QueryPerThread(nullptr), Result::kNotReady);
  EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(kPerThread));
  EXPECT_OK(Query(kLegacy));
}

TEST_F(PerThreadTest, BlockingAndNonBlockingStreamsDoNotWaitForTheThreadsStream) {
  LaunchPerThread(long_one_, nullptr);
  for (const unsigned flags : {0u, 1u}) {
    Stream stream = nullptr;
    ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream, flags));
    Launch(short_one_, stream);
    EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(stream));
    EXPECT_OK(CU(*cuda_, cuStreamDestroy_v2)(stream));
  }
  EXPECT_EQ(QueryPerThread(nullptr), Result::kNotReady);
}

TEST_F(PerThreadTest, CopiesWithASuffixWaitOnlyForTheirThread) {
  DevicePtr memory = 0;
  ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&memory, 4));
  LaunchPerThread(long_one_, nullptr);
  InOtherThread([&] {
    unsigned value = 7, back = 0;
    EXPECT_OK(cuda_->Get<fn::cuMemcpyHtoD_v2>("cuMemcpyHtoD_v2_ptds")(memory, &value, 4));
    EXPECT_OK(cuda_->Get<fn::cuMemcpyDtoH_v2>("cuMemcpyDtoH_v2_ptds")(&back, memory, 4));
    EXPECT_EQ(back, 7u);
  });
  EXPECT_EQ(QueryPerThread(nullptr), Result::kNotReady);
  unsigned back = 0;
  EXPECT_OK(cuda_->Get<fn::cuMemcpyDtoH_v2>("cuMemcpyDtoH_v2_ptds")(&back, memory, 4));
  EXPECT_OK(QueryPerThread(nullptr)) << "the copy waited for the kernel of its thread";
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(memory));
}

TEST_F(PerThreadTest, TheThreadsStreamCanBeCaptured) {
  const auto begin = cuda_->Get<fn::cuStreamBeginCapture_v2>("cuStreamBeginCapture_v2_ptsz");
  const auto end = cuda_->Get<fn::cuStreamEndCapture>("cuStreamEndCapture_ptsz");
  ASSERT_OK(begin(nullptr, 0));
  LaunchPerThread(short_one_, nullptr);
  Graph graph = nullptr;
  ASSERT_OK(end(nullptr, &graph));
  size_t nodes = 0;
  EXPECT_OK(CU(*cuda_, cuGraphGetNodes)(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(graph));
  EXPECT_EQ(CU(*cuda_, cuStreamBeginCapture_v2)(nullptr, 0), Result::kStreamCaptureUnsupported);
}

TEST_F(PerThreadTest, WorkOfAnEndedThreadStillRunsAndIsWaitedFor) {
  Event event = nullptr;
  ASSERT_OK(CU(*cuda_, cuEventCreate)(&event, 0));
  InOtherThread([&] {
    LaunchPerThread(long_one_, nullptr);
    EXPECT_OK(cuda_->Get<fn::cuEventRecord>("cuEventRecord_ptsz")(event, nullptr));
  });
  EXPECT_EQ(CU(*cuda_, cuEventQuery)(event), Result::kNotReady);
  EXPECT_OK(QueryPerThread(nullptr)) << "this thread has a stream of its own";
  Launch(short_one_, nullptr);
  EXPECT_EQ(Query(nullptr), Result::kNotReady) << "the legacy stream waits for the ended thread";
  EXPECT_OK(CU(*cuda_, cuCtxSynchronize)());
  EXPECT_OK(CU(*cuda_, cuEventQuery)(event));
  EXPECT_OK(CU(*cuda_, cuEventDestroy_v2)(event));
}

TEST_F(PerThreadTest, AThreadThatOutlivesItsContextGetsANewStreamInTheNext) {
  InOtherThread([] {
    for (int i = 0; i < 2; ++i) {
      Context context = nullptr;
      ASSERT_OK(CU(*cuda_, cuCtxCreate_v2)(&context, 0, 0));
      Event event = nullptr;
      EXPECT_OK(CU(*cuda_, cuEventCreate)(&event, 0));
      EXPECT_OK(cuda_->Get<fn::cuEventRecord>("cuEventRecord_ptsz")(event, nullptr));
      EXPECT_OK(QueryPerThread(nullptr));
      EXPECT_OK(CU(*cuda_, cuCtxDestroy_v2)(context));
    }
  });
}

}  // namespace
}  // namespace tessera::cuda
