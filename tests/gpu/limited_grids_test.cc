// SPDX-License-Identifier: Apache-2.0
// The limiter on the simulated driver, with a program whose kernels have different grids.
#include <chrono>
#include <cstdlib>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using testing::kMiB;
using testing::LimitedNode;

constexpr int64_t kKernelNs = 100'000;
constexpr int kGrids = 400;
// An A100 runs 216 blocks of 1,024 threads at once, so these fill it.
constexpr unsigned kMinBlocks = 216;

class LimitedGridsTest : public testing::LimiterTest {
 protected:
  void SetUp() override {
    LimiterTest::SetUp();
    setenv("SIMGPU_KERNEL_NS", "work=100000", 1);
  }
  void TearDown() override { unsetenv("SIMGPU_KERNEL_NS"); }
};

// The limiter charges the time that the kernels took. If each grid reserved GPU time that no other
// grid could use, the charge would be five times as much.
TEST_F(LimitedGridsTest, DifferentGridsAreChargedTheirTime) {
  LimitedNode node({100 * kMiB});
  node.SetCompute(0, 0.25);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    cuda::Module module = nullptr;
    cuda::Function function = nullptr;
    testing::MakeContext(cuda);
    ASSERT_OK(CU(cuda, cuModuleLoadData)(
        &module,
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry work() { ret; }\n"));
    ASSERT_OK(CU(cuda, cuModuleGetFunction)(&function, module, "work"));
    const auto start = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < kGrids; ++i) {
      ASSERT_OK(CU(cuda, cuLaunchKernel)(function, kMinBlocks + i, 1, 1, 1024, 1, 1, 0, nullptr,
                                         nullptr, nullptr));
    }
    ASSERT_OK(CU(cuda, cuCtxSynchronize)());
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(80))
        << "40 ms of work with a quarter of the GPU, less the saved allowance";
    const int64_t charged = node.compute(0).charge.charged;
    EXPECT_GE(charged, kGrids * kKernelNs * 9 / 10);
    EXPECT_LE(charged, kGrids * kKernelNs * 3);
  }));
}

}  // namespace
}  // namespace tessera::limiter
