// SPDX-License-Identifier: Apache-2.0
// Compute limits on the simulated driver, as programs in a limited container meet them.
// compute/model_test.cc tests their accuracy.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;
using Clock = std::chrono::steady_clock;

constexpr int64_t kMillisecond = 1'000'000;
constexpr char kPtx[] =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n";

class ThrottleTest : public LimiterTest {
 protected:
  void SetUp() override {
    LimiterTest::SetUp();
    setenv("SIMGPU_KERNEL_NS", "work=1000000", 1);
  }
  void TearDown() override { unsetenv("SIMGPU_KERNEL_NS"); }
};

void LoadKernel(const CudaLibrary& cuda, cuda::Function* function) {
  cuda::Module module = nullptr;
  MakeContext(cuda);
  ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, kPtx));
  ASSERT_OK(CU(cuda, cuModuleGetFunction)(function, module, "work"));
}

Result Launch(const CudaLibrary& cuda, cuda::Function function) {
  return CU(cuda, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
}

// Milliseconds until `launches` kernels of 1 ms have ended.
int64_t Work(const CudaLibrary& cuda, cuda::Function function, int launches) {
  const auto start = Clock::now();
  for (int i = 0; i < launches; ++i) EXPECT_EQ(Launch(cuda, function), Result::kSuccess);
  EXPECT_EQ(CU(cuda, cuCtxSynchronize)(), Result::kSuccess);
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}

// The charge for `work`, in nanoseconds. A pause of the program between the limiter's start event
// and the kernel counts as work. So on a busy machine only a later measurement may be near
// `expected`.
template <typename Body>
double ChargeNear(LimitedNode& node, double expected, double tolerance, const Body& work) {
  double charged = 0;
  for (int i = 0; i < 5; ++i) {
    const int64_t before = node.compute(0).charge.charged;
    work();
    charged = double(node.compute(0).charge.charged - before);
    if (std::abs(charged - expected) <= tolerance) break;
  }
  return charged;
}

TEST_F(ThrottleTest, AProgramGetsItsShareOfTheTime) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.25);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Function function = nullptr;
    LoadKernel(cuda, &function);
    // 60 ms of work, of which the first part may use the saved allowance.
    const int64_t took = Work(cuda, function, 60);
    EXPECT_GE(took, 150);
    const ComputeUsage& used = node.compute(0);
    EXPECT_GE(used.charge.waited, 100 * kMillisecond);
    EXPECT_LE(used.charge.waited, (took + 1) * kMillisecond);
    // A pause of the program between the limiter's start event and the kernel counts as work.
    EXPECT_GE(used.charge.charged, 54 * kMillisecond);
    EXPECT_LE(used.charge.charged, 120 * kMillisecond);
    EXPECT_GE(used.slots[0].metered, 54 * kMillisecond);
    EXPECT_LE(used.slots[0].metered, 120 * kMillisecond);
    EXPECT_EQ(used.slots[0].in_flight, 0);
    EXPECT_EQ(used.charge.slots, 1u);
  }));
}

TEST_F(ThrottleTest, ALaunchIsChargedOnlyWhileThereIsALimit) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Function function = nullptr;
    LoadKernel(cuda, &function);
    EXPECT_LT(Work(cuda, function, 20), 10'000);
    EXPECT_EQ(node.compute(0).charge.charged, 0);
    node.SetCompute(0, 0.25);
    EXPECT_GE(Work(cuda, function, 60), 150) << "a new limit applies to a running program at once";
    node.SetCompute(0, 0);
    const int64_t charged = node.compute(0).charge.charged;
    Work(cuda, function, 40);
    EXPECT_EQ(node.compute(0).charge.charged, charged);
  }));
}

TEST_F(ThrottleTest, ProcessesOfTheContainerShareOneLimit) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  const auto start = Clock::now();
  std::vector<int> pids;
  for (int i = 0; i < 3; ++i) {
    pids.push_back(node.Start([&](const CudaLibrary& cuda) {
      cuda::Function function = nullptr;
      LoadKernel(cuda, &function);
      Work(cuda, function, 40);
    }));
  }
  for (const int pid : pids) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(170));
  EXPECT_GE(node.compute(0).charge.charged, 108 * kMillisecond);
  // Without an agent, the time that a launch waits for turns of other processes is charged too.
  EXPECT_LE(node.compute(0).charge.charged, 300 * kMillisecond);
}

TEST_F(ThrottleTest, AContextCanBeDestroyedWithWorkInFlight) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.9);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    ASSERT_OK(CU(cuda, cuInit)(0));
    for (int i = 0; i < 20; ++i) {
      cuda::Context context = nullptr;
      cuda::Module module = nullptr;
      cuda::Function function = nullptr;
      ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
      ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, kPtx));
      ASSERT_OK(CU(cuda, cuModuleGetFunction)(&function, module, "work"));
      for (int j = 0; j < 3; ++j) ASSERT_OK(Launch(cuda, function));
      ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
    }
    EXPECT_TRUE(node.WaitUntilSettled(0));
  }));
}

// Each context has a different function, so no launch has a known price.
TEST_F(ThrottleTest, ALaunchWhoseContextEndsAtOnceIsCharged) {
  setenv("SIMGPU_KERNEL_NS", "work=30000000", 1);
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.9);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    constexpr int kContexts = 5;
    ASSERT_OK(CU(cuda, cuInit)(0));
    for (int i = 0; i < kContexts; ++i) {
      cuda::Context context = nullptr;
      cuda::Module module = nullptr;
      cuda::Function function = nullptr;
      if (i % 2 == 0) {
        ASSERT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
      } else {
        ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&context, 0));
        ASSERT_OK(CU(cuda, cuCtxSetCurrent)(context));
      }
      ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, kPtx));
      ASSERT_OK(CU(cuda, cuModuleGetFunction)(&function, module, "work"));
      ASSERT_OK(Launch(cuda, function));
      if (i % 2 == 0) {
        ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(context));
      } else {
        ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRelease_v2)(0));
      }
    }
    const double charged = double(node.compute(0).charge.charged);
    EXPECT_GE(charged, 29.0 * kContexts * kMillisecond);
    EXPECT_LE(charged, 45.0 * kContexts * kMillisecond);
    EXPECT_EQ(node.compute(0).slots[0].in_flight, 0);
  }));
}

// A process that is killed before its kernel ends never measures the kernel. The limiter's helper
// thread, which charges a running launch, may start late.
TEST_F(ThrottleTest, ALaunchWhoseProcessIsKilledIsCharged) {
  setenv("SIMGPU_KERNEL_NS", "work=2000000000", 1);
  LimitedNode node({100 * kMiB});
  constexpr double kShare = 0.25;
  node.SetCompute(0, kShare);
  constexpr int64_t kRunMs = 300;
  std::chrono::nanoseconds owed{};
  Clock::time_point launched;  // not later than the launch
  for (int i = 0; i < 2; ++i) {
    const int64_t before = node.compute(0).charge.charged;
    const int pid = node.Start([&](const CudaLibrary& cuda) {
      cuda::Function function = nullptr;
      LoadKernel(cuda, &function);
      EXPECT_OK(Launch(cuda, function));
      ::pause();
    });
    auto last_uncharged_at = Clock::now();
    for (auto checked_at = last_uncharged_at; node.compute(0).charge.charged == before;
         checked_at = Clock::now()) {
      last_uncharged_at = checked_at;
      ::usleep(1000);
    }
    if (i == 1) {
      EXPECT_GE(Clock::now() - launched, owed * 9 / 10)
          << "the next process waits for what the container owes";
    }
    launched = last_uncharged_at;
    ::usleep(kRunMs * 1000);
    // The helper thread may be late.
    for (int j = 0; j < 1000 && node.compute(0).charge.charged - before < kRunMs / 2 * kMillisecond;
         ++j) {
      ::usleep(1000);
    }
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    const int64_t charged = node.compute(0).charge.charged - before;
    EXPECT_GE(charged, kRunMs / 2 * kMillisecond);
    owed = std::chrono::nanoseconds(int64_t(double(charged) / kShare));
  }
}

TEST_F(ThrottleTest, ManyThreadsLaunchUnderOneLimit) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Function function = nullptr;
    LoadKernel(cuda, &function);
    cuda::Context context = nullptr;
    ASSERT_OK(CU(cuda, cuCtxGetCurrent)(&context));
    const auto work = [&] {
      std::vector<std::thread> threads;
      for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&] {
          EXPECT_EQ(CU(cuda, cuCtxSetCurrent)(context), Result::kSuccess);
          for (int j = 0; j < 10; ++j) EXPECT_EQ(Launch(cuda, function), Result::kSuccess);
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_OK(CU(cuda, cuCtxSynchronize)());
    };
    constexpr double kWanted = 80.0 * kMillisecond, kError = 12.0 * kMillisecond;
    EXPECT_NEAR(ChargeNear(node, kWanted, kError, work), kWanted, kError);
  }));
}

// A captured launch is not charged; the launch of its graph is.
TEST_F(ThrottleTest, GraphsAreChargedWhenTheyAreLaunched) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Function function = nullptr;
    cuda::Stream stream = nullptr;
    cuda::Graph graph = nullptr;
    cuda::GraphExec exec = nullptr;
    LoadKernel(cuda, &function);
    ASSERT_OK(CU(cuda, cuStreamCreate)(&stream, 1));
    ASSERT_OK(CU(cuda, cuStreamBeginCapture_v2)(stream, 0));
    for (int i = 0; i < 10; ++i) {
      ASSERT_OK(CU(cuda, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
    }
    ASSERT_OK(CU(cuda, cuStreamEndCapture)(stream, &graph));
    EXPECT_EQ(node.compute(0).charge.charged, 0);
    ASSERT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    const auto work = [&] {
      const auto start = Clock::now();
      for (int i = 0; i < 10; ++i) EXPECT_OK(CU(cuda, cuGraphLaunch)(exec, stream));
      EXPECT_OK(CU(cuda, cuStreamSynchronize)(stream));
      EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(140))
          << "100 ms of work at half the rate";
    };
    constexpr double kWanted = 100.0 * kMillisecond, kError = 15.0 * kMillisecond;
    EXPECT_NEAR(ChargeNear(node, kWanted, kError, work), kWanted, kError);
    ASSERT_OK(CU(cuda, cuGraphExecDestroy)(exec));
  }));
}

// The limiter measures launches by events, and NVIDIA's driver forbids cuEventQuery to all threads
// while a thread captures in global mode.
TEST_F(ThrottleTest, LaunchesOfAnotherThreadDoNotEndACapture) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Function function = nullptr;
    cuda::Stream captured = nullptr, busy = nullptr;
    cuda::Graph graph = nullptr;
    cuda::Context context = nullptr;
    LoadKernel(cuda, &function);
    ASSERT_OK(CU(cuda, cuCtxGetCurrent)(&context));
    ASSERT_OK(CU(cuda, cuStreamCreate)(&captured, 1));
    ASSERT_OK(CU(cuda, cuStreamCreate)(&busy, 1));
    ASSERT_OK(CU(cuda, cuStreamBeginCapture_v2)(captured, 0));
    const auto work = [&] {
      std::thread([&] {
        ASSERT_OK(CU(cuda, cuCtxSetCurrent)(context));
        for (int i = 0; i < 100; ++i) {
          ASSERT_OK(
              CU(cuda, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, busy, nullptr, nullptr));
        }
        ASSERT_OK(CU(cuda, cuStreamSynchronize)(busy));
      }).join();
    };
    constexpr double kWanted = 100.0 * kMillisecond, kError = 15.0 * kMillisecond;
    EXPECT_NEAR(ChargeNear(node, kWanted, kError, work), kWanted, kError)
        << "the launches are measured";
    ASSERT_OK(CU(cuda, cuLaunchKernel)(function, 1, 1, 1, 1, 1, 1, 0, captured, nullptr, nullptr));
    EXPECT_OK(CU(cuda, cuStreamEndCapture)(captured, &graph));
  }));
}

// A graph whose conditional node runs ten kernels of 1 ms if `value` is not 0.
cuda::Graph Conditional(const CudaLibrary& cuda, cuda::Function function, unsigned value) {
  cuda::Graph graph = nullptr;
  cuda::GraphNode node = nullptr;
  cuda::ConditionalHandle handle = 0;
  cuda::GraphNodeParameters parameters{.type = cuda::GraphNodeType::kConditional};
  EXPECT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
  EXPECT_OK(CU(cuda, cuGraphConditionalHandleCreate)(&handle, graph, nullptr, value,
                                                     cuda::kAssignDefault));
  parameters.conditional = {.handle = handle,
                            .type = cuda::ConditionalType::kIf,
                            .size = 1,
                            .bodies = nullptr,
                            .context = nullptr};
  EXPECT_OK(CU(cuda, cuGraphAddNode)(&node, graph, nullptr, 0, &parameters));
  const cuda::KernelNodeParameters kernel{.function = function,
                                          .grid_x = 1,
                                          .grid_y = 1,
                                          .grid_z = 1,
                                          .block_x = 1,
                                          .block_y = 1,
                                          .block_z = 1};
  for (int i = 0; i < 10; ++i) {
    EXPECT_OK(CU(cuda, cuGraphAddKernelNode_v2)(&node, parameters.conditional.bodies[0], nullptr, 0,
                                                &kernel));
  }
  return graph;
}

TEST_F(ThrottleTest, TheBodyOfAConditionalNodeIsChargedWhenItRuns) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Function function = nullptr;
    cuda::GraphExec exec = nullptr;
    cuda::GraphUpdateResult update{};
    LoadKernel(cuda, &function);
    const auto launch_ten = [&] {
      for (int i = 0; i < 10; ++i) EXPECT_OK(CU(cuda, cuGraphLaunch)(exec, nullptr));
      EXPECT_OK(CU(cuda, cuCtxSynchronize)());
    };
    ASSERT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, Conditional(cuda, function, 0), 0));
    constexpr double kMost = 5.0 * kMillisecond;
    EXPECT_LE(ChargeNear(node, 0, kMost, launch_ten), kMost) << "the body does not run";
    ASSERT_OK(CU(cuda, cuGraphExecUpdate_v2)(exec, Conditional(cuda, function, 1), &update));
    constexpr double kWanted = 100.0 * kMillisecond, kError = 20.0 * kMillisecond;
    EXPECT_NEAR(ChargeNear(node, kWanted, kError, launch_ten), kWanted, kError);
  }));
}

TEST_F(ThrottleTest, CopiesAndSetsWithinDeviceMemoryAreCharged) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    constexpr size_t kWidth = 4096, kRows = 512;
    constexpr int kCalls = 300;
    // All calls together take about 1.5 ms. A thread takes GPU time in advance, so not every call
    // changes the charge.
    constexpr int64_t kLeast = kMillisecond / 2;
    cuda::Function function = nullptr;
    cuda::DevicePtr from = 0, to = 0;
    LoadKernel(cuda, &function);
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&from, kWidth * kRows));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&to, kWidth * kRows));
    std::vector<char> host(kWidth * kRows);
    cuda::Memcpy2D rows{.src_type = cuda::MemoryType::kDevice,
                        .src_device = from,
                        .src_pitch = kWidth,
                        .dst_type = cuda::MemoryType::kDevice,
                        .dst_device = to,
                        .dst_pitch = kWidth,
                        .width = kWidth,
                        .height = kRows};
    const cuda::Memcpy3D box{.src_type = rows.src_type,
                             .src_device = from,
                             .src_pitch = kWidth,
                             .src_height = kRows,
                             .dst_type = rows.dst_type,
                             .dst_device = to,
                             .dst_pitch = kWidth,
                             .dst_height = kRows,
                             .width = kWidth,
                             .height = kRows,
                             .depth = 1};
    const auto charged_by = [&](auto call) {
      EXPECT_EQ(CU(cuda, cuCtxSynchronize)(), Result::kSuccess);
      const int64_t before = node.compute(0).charge.charged;
      for (int i = 0; i < kCalls; ++i) EXPECT_EQ(call(), Result::kSuccess);
      EXPECT_EQ(CU(cuda, cuCtxSynchronize)(), Result::kSuccess);
      return node.compute(0).charge.charged - before;
    };
    EXPECT_GE(charged_by([&] {
                return CU(cuda, cuMemcpyDtoDAsync_v2)(to, from, kWidth * kRows, nullptr);
              }),
              kLeast);
    EXPECT_GE(charged_by([&] { return CU(cuda, cuMemsetD2D8_v2)(to, kWidth, 0, kWidth, kRows); }),
              kLeast);
    EXPECT_GE(charged_by([&] {
                return CU(cuda, cuMemsetD2D32Async)(to, kWidth, 0, kWidth / 4, kRows, nullptr);
              }),
              kLeast);
    EXPECT_GE(charged_by([&] { return CU(cuda, cuMemcpy2D_v2)(&rows); }), kLeast);
    EXPECT_GE(charged_by([&] { return CU(cuda, cuMemcpy3DAsync_v2)(&box, nullptr); }), kLeast);
    EXPECT_GE(charged_by([&] { return CU(cuda, cuMemcpy)(to, from, kWidth * kRows); }), kLeast);
    EXPECT_GE(
        charged_by([&] { return CU(cuda, cuMemcpyAsync)(to, from, kWidth * kRows, nullptr); }),
        kLeast);
    rows.src_type = rows.dst_type = cuda::MemoryType::kUnified;
    EXPECT_GE(charged_by([&] { return CU(cuda, cuMemcpy2D_v2)(&rows); }), kLeast);
    EXPECT_EQ(charged_by([&] {
                return CU(cuda, cuMemcpy)(reinterpret_cast<cuda::DevicePtr>(host.data()), from,
                                          4096);
              }),
              0);
    rows.src_type = cuda::MemoryType::kDevice;
    rows.dst_type = cuda::MemoryType::kHost;
    rows.dst_host = host.data();
    EXPECT_EQ(charged_by([&] { return CU(cuda, cuMemcpy2D_v2)(&rows); }), 0)
        << "a copy to the host is free";
  }));
}

// The first launch cannot begin, so its price stays unknown. If the limiter waited without an end,
// the thread would never open the gate for which the first launch waits.
TEST_F(ThrottleTest, ALaunchDoesNotWaitForWorkThatItsThreadHoldsBack) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    static std::atomic<bool> open = false;
    const auto wait = [](void*) {
      while (!open) ::usleep(1000);
    };
    cuda::Function function = nullptr;
    LoadKernel(cuda, &function);
    ASSERT_OK(CU(cuda, cuLaunchHostFunc)(nullptr, wait, nullptr));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(Launch(cuda, function), Result::kSuccess);
    open = true;
    ASSERT_OK(CU(cuda, cuCtxSynchronize)());
    Work(cuda, function, 10);
    EXPECT_EQ(node.compute(0).slots[0].in_flight, 0);
  }));
}

// A graph that has begun is charged while it runs.
TEST_F(ThrottleTest, ALaunchDoesNotWaitForAGraphThatItsThreadHoldsBack) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.9);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    static std::atomic<bool> open = false;
    const auto wait = [](void*) {
      while (!open) ::usleep(1000);
    };
    cuda::Function function = nullptr;
    cuda::Stream stream = nullptr;
    cuda::Graph graph = nullptr;
    cuda::GraphExec exec = nullptr;
    LoadKernel(cuda, &function);
    ASSERT_OK(CU(cuda, cuStreamCreate)(&stream, 1));
    ASSERT_OK(CU(cuda, cuStreamBeginCapture_v2)(stream, 0));
    ASSERT_OK(CU(cuda, cuLaunchHostFunc)(stream, wait, nullptr));
    ASSERT_OK(CU(cuda, cuStreamEndCapture)(stream, &graph));
    ASSERT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    ASSERT_OK(CU(cuda, cuGraphLaunch)(exec, stream));
    for (int i = 0; i < 20'000 && node.compute(0).charge.charged < 200 * kMillisecond; ++i) {
      ::usleep(1000);
    }
    EXPECT_GE(node.compute(0).charge.charged, 200 * kMillisecond);
    EXPECT_OK(Launch(cuda, function));
    open = true;
    ASSERT_OK(CU(cuda, cuCtxSynchronize)());
  }));
}

TEST_F(ThrottleTest, AForkedChildDoesNotAffectItsParent) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Function function = nullptr;
    LoadKernel(cuda, &function);
    Work(cuda, function, 10);
    const pid_t child = ::fork();
    // CUDA does not work after fork: the driver refuses, and the limiter changes nothing.
    if (child == 0) ::_exit(Launch(cuda, function) == Result::kSuccess ? 1 : 0);
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    Work(cuda, function, 10);
  }));
}

}  // namespace
}  // namespace tessera::limiter
