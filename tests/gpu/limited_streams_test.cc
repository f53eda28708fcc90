// SPDX-License-Identifier: Apache-2.0
// The limiter on the simulated driver, with programs that use per-thread default streams.
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::Stream;
using testing::kMiB;
using testing::LimitedNode;
using Clock = std::chrono::steady_clock;

constexpr int64_t kNsPerMs = 1'000'000;
constexpr int kThreads = 4, kLaunches = 20;
// An A100 runs 216 blocks of 1,024 threads at once.
constexpr unsigned kFullBlocks = 216, kTinyBlocks = 1;
const auto kPerThreadStream = reinterpret_cast<Stream>(cuda::kStreamPerThread);

class LimitedStreamsTest : public testing::LimiterTest {
 protected:
  void SetUp() override {
    LimiterTest::SetUp();
    setenv("SIMGPU_KERNEL_NS", "work=1000000", 1);
  }
  void TearDown() override { unsetenv("SIMGPU_KERNEL_NS"); }
};

struct Measured {
  int64_t took_ms = 0, charged_ms = 0;
};

// A program whose threads launch kernels of 1 ms, each thread in its own stream.
struct Program {
  const char* launch = "cuLaunchKernel";
  Stream stream = nullptr;
  bool creates_streams = false;
  unsigned blocks = kFullBlocks;
};

void RunThread(const CudaLibrary& cuda, const Program& program, cuda::Context context,
               cuda::Function function) {
  Stream stream = program.stream;
  EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
  if (program.creates_streams) {
    EXPECT_OK(CU(cuda, cuStreamCreate)(&stream, 0));
  }
  const auto launch = cuda.Get<cuda::fn::cuLaunchKernel>(program.launch);
  for (int i = 0; i < kLaunches; ++i) {
    EXPECT_OK(launch(function, program.blocks, 1, 1, 1024, 1, 1, 0, stream, nullptr, nullptr));
  }
}

Measured Measure(LimitedNode& node, const CudaLibrary& cuda, const Program& program) {
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  const cuda::Context context = testing::MakeContext(cuda);
  EXPECT_OK(CU(cuda, cuModuleLoadData)(
      &module, ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n"));
  EXPECT_OK(CU(cuda, cuModuleGetFunction)(&function, module, "work"));
  const int64_t before = node.compute(0).charge.charged;
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back(RunThread, std::cref(cuda), std::cref(program), context, function);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_OK(CU(cuda, cuCtxSynchronize)());
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  const Measured measured{.took_ms = took.count(),
                          .charged_ms = (node.compute(0).charge.charged - before) / kNsPerMs};
  EXPECT_OK(CU(cuda, cuCtxDestroy_v2)(context));
  return measured;
}

// The work of the threads fills the GPU for 80 ms, so with a quarter of the GPU it takes about
// 320 ms.
void ExpectLimited(const Program& program) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.25);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Measured measured = Measure(node, cuda, program);
    EXPECT_GE(measured.charged_ms, 72);
    EXPECT_LE(measured.charged_ms, 160);
    EXPECT_GE(measured.took_ms, 230);
    const auto deadline = Clock::now() + std::chrono::seconds(10);
    while (node.compute(0).slots[0].in_flight != 0 && Clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(node.compute(0).slots[0].in_flight, 0) << "all work was settled";
  }));
}

TEST_F(LimitedStreamsTest, NullStreamOfPtszFunctionsIsLimited) {
  ExpectLimited({.launch = "cuLaunchKernel_ptsz"});
}

TEST_F(LimitedStreamsTest, TheHandleOfThePerThreadStreamIsLimited) {
  ExpectLimited({.stream = kPerThreadStream});
}

// Such kernels could run at the same time, but together the threads have a quarter of the GPU.
TEST_F(LimitedStreamsTest, SmallKernelsOfSeveralThreadsAreLimitedTogether) {
  ExpectLimited({.launch = "cuLaunchKernel_ptsz", .blocks = kTinyBlocks});
  ExpectLimited({.creates_streams = true, .blocks = kTinyBlocks});
}

}  // namespace
}  // namespace tessera::limiter
