// SPDX-License-Identifier: Apache-2.0
// Launches on several devices on the simulated driver: each limited device is charged.
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DeviceLaunch;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using Clock = std::chrono::steady_clock;

constexpr double kDeviceMs = 1e6;
constexpr char kDevicePtx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n";

class DeviceLaunchesTest : public LimiterTest {
 protected:
  void SetUp() override {
    LimiterTest::SetUp();
    setenv("SIMGPU_KERNEL_NS", "work=1000000", 1);
  }
  void TearDown() override { unsetenv("SIMGPU_KERNEL_NS"); }

  // A launch of `work` on each of two devices. The context of device 1 is current afterwards.
  static std::vector<DeviceLaunch> OnBoth(const CudaLibrary& cuda) {
    std::vector<DeviceLaunch> launches;
    EXPECT_OK(CU(cuda, cuInit)(0));
    for (int device = 0; device < 2; ++device) {
      cuda::Context context = nullptr;
      cuda::Module module = nullptr;
      DeviceLaunch launch = {.function = nullptr,
                             .grid_x = 1,
                             .grid_y = 1,
                             .grid_z = 1,
                             .block_x = 1,
                             .block_y = 1,
                             .block_z = 1,
                             .shared_bytes = 0,
                             .stream = nullptr,
                             .parameters = nullptr};
      EXPECT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&context, device));
      EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
      EXPECT_OK(CU(cuda, cuStreamCreate)(&launch.stream, 1));
      EXPECT_OK(CU(cuda, cuModuleLoadData)(&module, kDevicePtx));
      EXPECT_OK(CU(cuda, cuModuleGetFunction)(&launch.function, module, "work"));
      launches.push_back(launch);
    }
    return launches;
  }
  static Result Launch(const CudaLibrary& cuda, std::vector<DeviceLaunch>& launches) {
    return CU(cuda, cuLaunchCooperativeKernelMultiDevice)(launches.data(),
                                                          unsigned(launches.size()), 0);
  }
  static void Synchronize(const CudaLibrary& cuda, const std::vector<DeviceLaunch>& launches) {
    for (const DeviceLaunch& launch : launches) {
      EXPECT_OK(CU(cuda, cuStreamSynchronize)(launch.stream));
    }
  }
};

TEST_F(DeviceLaunchesTest, EachLimitedDeviceIsChargedAndHoldsTheLaunchBack) {
  LimitedNode node({100 * kMiB, 100 * kMiB});
  node.SetCompute(0, 0.25);
  node.SetCompute(1, 0.9);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    std::vector<DeviceLaunch> launches = OnBoth(cuda);
    cuda::Context before = nullptr, after = nullptr;
    ASSERT_OK(CU(cuda, cuCtxGetCurrent)(&before));
    const auto start = Clock::now();
    for (int i = 0; i < 60; ++i) ASSERT_OK(Launch(cuda, launches));
    Synchronize(cuda, launches);
    EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(150))
        << "device 0 permits 1 ms of 4, and has saved 18 ms";
    for (int device = 0; device < 2; ++device) {
      const ComputeUsage& used = node.compute(uint32_t(device));
      EXPECT_GE(double(used.charge.charged), 54 * kDeviceMs) << device;
      EXPECT_LE(double(used.charge.charged), 120 * kDeviceMs) << device;
    }
    ASSERT_OK(CU(cuda, cuCtxGetCurrent)(&after));
    EXPECT_EQ(before, after);
  }));
}

TEST_F(DeviceLaunchesTest, ADeviceWithoutALimitIsNotCharged) {
  LimitedNode node({100 * kMiB, 100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    std::vector<DeviceLaunch> launches = OnBoth(cuda);
    for (int i = 0; i < 20; ++i) ASSERT_OK(Launch(cuda, launches));
    Synchronize(cuda, launches);
    EXPECT_GE(double(node.compute(0).charge.charged), 17 * kDeviceMs);
    EXPECT_EQ(node.compute(1).charge.charged, 0);
  }));
}

// The limiter waits only once for each GPU, and changes no result of the driver.
TEST_F(DeviceLaunchesTest, TheDriverRefusesInvalidLaunchesAtOnce) {
  LimitedNode node({100 * kMiB, 100 * kMiB});
  node.SetCompute(0, 0.5);
  node.SetCompute(1, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const std::vector<DeviceLaunch> valid = OnBoth(cuda);
    const auto result_of = [&](auto change) {
      std::vector<DeviceLaunch> launches = valid;
      change(launches);
      return Launch(cuda, launches);
    };
    const auto start = Clock::now();
    EXPECT_EQ(result_of([](auto& all) { all[1] = all[0]; }), Result::kInvalidValue);
    EXPECT_EQ(result_of([](auto& all) { all[1].stream = all[0].stream; }), Result::kInvalidValue);
    EXPECT_EQ(result_of([](auto& all) { all[0].stream = nullptr; }), Result::kInvalidHandle);
    EXPECT_EQ(result_of([](auto& all) { all[0].grid_x = 2; }), Result::kInvalidValue);
    EXPECT_EQ(result_of([](auto& all) { all.clear(); }), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuLaunchCooperativeKernelMultiDevice)(nullptr, 2, 0), Result::kInvalidValue);
    EXPECT_EQ(CU(cuda, cuLaunchCooperativeKernelMultiDevice)(nullptr, 1'000'000, 0),
              Result::kInvalidValue);
    EXPECT_LE(Clock::now() - start, std::chrono::seconds(2));
    std::vector<DeviceLaunch> launches = valid;
    for (int i = 0; i < 20; ++i) ASSERT_OK(Launch(cuda, launches));
    Synchronize(cuda, launches);
    EXPECT_TRUE(node.WaitUntilSettled(0));
    EXPECT_TRUE(node.WaitUntilSettled(1));
  }));
}

TEST_F(DeviceLaunchesTest, ThreadsThatNameTheDevicesInOppositeOrdersDoNotDeadlock) {
  LimitedNode node({100 * kMiB, 100 * kMiB});
  node.SetCompute(0, 0.9);
  node.SetCompute(1, 0.9);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const std::vector<DeviceLaunch> first = OnBoth(cuda), second = OnBoth(cuda);
    cuda::Context context = nullptr;
    ASSERT_OK(CU(cuda, cuCtxGetCurrent)(&context));
    const auto start = Clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        std::vector<DeviceLaunch> launches = i % 2 == 0 ? first : second;
        if (i % 2 == 1) std::swap(launches[0], launches[1]);
        EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
        for (int j = 0; j < 10; ++j) EXPECT_OK(Launch(cuda, launches));
      });
    }
    for (std::thread& thread : threads) thread.join();
    Synchronize(cuda, first);
    Synchronize(cuda, second);
    EXPECT_LE(Clock::now() - start, std::chrono::seconds(4)) << "no wait for stalled work";
  }));
}

}  // namespace
}  // namespace tessera::limiter
