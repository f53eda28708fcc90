// SPDX-License-Identifier: Apache-2.0
// Launches on several devices at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

constexpr char kNode[] = "base: a100-sxm4-80gb\nnode:\n  gpus: 2\n  nvlink: none\n";
constexpr char kPtx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry slow() { ret; }\n.visible .entry other() { ret; }\n";

// The objects of the program on one GPU.
struct OnGpu {
  Context context = nullptr;
  Stream stream = nullptr;
  Function slow = nullptr, other = nullptr;
};

// A program with a context, a stream and two kernels on each of two GPUs.
class DeviceLaunchesTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMGPU_KERNEL_NS", "slow=20000000,other=1000000", 1);
    node_ = new sim::testing::SimNode({.profile = kNode});
    cuda_ = new CudaLibrary(node_->library("libcuda.so.1"));
    ASSERT_OK(CU(*cuda_, cuInit)(0));
    for (int device = 1; device >= 0; --device) {
      OnGpu& gpu = gpus_[device];
      Module module = nullptr;
      ASSERT_OK(CU(*cuda_, cuDevicePrimaryCtxRetain)(&gpu.context, device));
      ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(gpu.context));
      ASSERT_OK(CU(*cuda_, cuStreamCreate)(&gpu.stream, 1));
      ASSERT_OK(CU(*cuda_, cuModuleLoadData)(&module, kPtx));
      ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&gpu.slow, module, "slow"));
      ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&gpu.other, module, "other"));
    }
  }
  static void TearDownTestSuite() {
    delete cuda_;
    delete node_;
    unsetenv("SIMGPU_KERNEL_NS");
  }

  static std::vector<DeviceLaunch> LaunchesOnBoth() {
    std::vector<DeviceLaunch> launches(2);
    for (int i = 0; i < 2; ++i) {
      launches[i] = {.function = gpus_[i].slow,
                     .grid_x = 1,
                     .grid_y = 1,
                     .grid_z = 1,
                     .block_x = 32,
                     .block_y = 1,
                     .block_z = 1,
                     .shared_bytes = 0,
                     .stream = gpus_[i].stream,
                     .parameters = nullptr};
    }
    return launches;
  }
  static Result Launch(std::vector<DeviceLaunch> launches, unsigned flags = 0) {
    return CU(*cuda_, cuLaunchCooperativeKernelMultiDevice)(launches.data(),
                                                            unsigned(launches.size()), flags);
  }
  // Launches the kernel in the stream of the device.
  static void Run(int device, Function function) {
    ASSERT_OK(CU(*cuda_, cuCtxPushCurrent_v2)(gpus_[device].context));
    EXPECT_OK(CU(*cuda_, cuLaunchKernel)(function, 1, 1, 1, 32, 1, 1, 0, gpus_[device].stream,
                                         nullptr, nullptr));
    Context popped = nullptr;
    ASSERT_OK(CU(*cuda_, cuCtxPopCurrent_v2)(&popped));
  }
  static Event Record(int device) {
    Event event = nullptr;
    Context popped = nullptr;
    EXPECT_OK(CU(*cuda_, cuCtxPushCurrent_v2)(gpus_[device].context));
    EXPECT_OK(CU(*cuda_, cuEventCreate)(&event, 0));
    EXPECT_OK(CU(*cuda_, cuEventRecord)(event, gpus_[device].stream));
    EXPECT_OK(CU(*cuda_, cuCtxPopCurrent_v2)(&popped));
    return event;
  }
  // Milliseconds that the stream of the device takes for `work`.
  template <typename Work>
  static float MillisecondsOf(int device, Work work) {
    const Event start = Record(device);
    work();
    const Event end = Record(device);
    float milliseconds = -1;
    EXPECT_OK(CU(*cuda_, cuEventSynchronize)(end));
    EXPECT_OK(CU(*cuda_, cuEventElapsedTime)(&milliseconds, start, end));
    for (const OnGpu& gpu : gpus_) EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(gpu.stream));
    return milliseconds;
  }

  // The shortest of several times, because a pause between two calls lengthens a time.
  template <typename Work>
  static float LeastMilliseconds(int device, Work work) {
    float least = MillisecondsOf(device, work);
    for (int i = 0; i < 4; ++i) least = std::min(least, MillisecondsOf(device, work));
    return least;
  }

  static inline sim::testing::SimNode* node_ = nullptr;
  static inline CudaLibrary* cuda_ = nullptr;
  static inline OnGpu gpus_[2];
};

TEST_F(DeviceLaunchesTest, TheKernelRunsOnEachDevice) {
  for (int device = 0; device < 2; ++device) {
    EXPECT_NEAR(LeastMilliseconds(device, [] { EXPECT_OK(Launch(LaunchesOnBoth())); }), 20, 5);
  }
}

TEST_F(DeviceLaunchesTest, TheKernelsWaitForEarlierWorkInAllStreams) {
  const auto work = [](unsigned flags) {
    return [flags] {
      Run(1, gpus_[1].slow);
      EXPECT_OK(Launch(LaunchesOnBoth(), flags));
    };
  };
  EXPECT_GE(LeastMilliseconds(0, work(0)), 36);
  EXPECT_LE(LeastMilliseconds(0, work(kNoSyncBefore | kNoSyncAfter)), 30);
}

TEST_F(DeviceLaunchesTest, LaterWorkWaitsForAllKernels) {
  const auto work = [](unsigned flags) {
    return [flags] {
      Run(1, gpus_[1].slow);
      EXPECT_OK(Launch(LaunchesOnBoth(), kNoSyncBefore | flags));
      Run(0, gpus_[0].other);
    };
  };
  EXPECT_GE(LeastMilliseconds(0, work(0)), 37);
  EXPECT_LE(LeastMilliseconds(0, work(kNoSyncAfter)), 30);
}

TEST_F(DeviceLaunchesTest, InvalidLaunchesAreRefusedAsAWhole) {
  const auto result_of = [](auto change) {
    std::vector<DeviceLaunch> launches = LaunchesOnBoth();
    change(launches);
    Result result = Result::kSuccess;
    EXPECT_LE(LeastMilliseconds(0, [&] { result = Launch(launches); }), 10) << "nothing runs";
    return result;
  };
  EXPECT_EQ(result_of([](auto& all) { all.clear(); }), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuLaunchCooperativeKernelMultiDevice)(nullptr, 2, 0), Result::kInvalidValue);
  EXPECT_EQ(Launch(LaunchesOnBoth(), 4), Result::kInvalidValue) << "unknown flag";
  EXPECT_EQ(result_of([](auto& all) { all[1] = all[0]; }), Result::kInvalidValue) << "one device";
  EXPECT_EQ(result_of([](auto& all) { all[1].stream = all[0].stream; }), Result::kInvalidValue);
  EXPECT_EQ(result_of([](auto& all) { all[1].stream = nullptr; }), Result::kInvalidHandle);
  EXPECT_EQ(result_of([](auto& all) { all[1].function = nullptr; }), Result::kInvalidHandle);
  EXPECT_EQ(result_of([](auto& all) { all[1].function = all[0].function; }), Result::kInvalidHandle)
      << "a function of another context";
  EXPECT_EQ(result_of([](auto& all) { all[1].function = gpus_[1].other; }), Result::kInvalidValue)
      << "another kernel";
  EXPECT_EQ(result_of([](auto& all) { all[1].grid_x = 2; }), Result::kInvalidValue)
      << "another shape";
  EXPECT_EQ(result_of([](auto& all) { all[0].grid_x = all[1].grid_x = 100'000; }),
            Result::kCooperativeLaunchTooLarge);
}

TEST_F(DeviceLaunchesTest, ACaptureEndsWithAnError) {
  Graph graph = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(gpus_[0].stream, 0));
  EXPECT_EQ(Launch(LaunchesOnBoth()), Result::kStreamCaptureUnsupported);
  EXPECT_EQ(CU(*cuda_, cuStreamEndCapture)(gpus_[0].stream, &graph),
            Result::kStreamCaptureInvalidated);
}

}  // namespace
}  // namespace tessera::cuda
