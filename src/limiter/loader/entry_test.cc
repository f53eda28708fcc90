// SPDX-License-Identifier: Apache-2.0
// Lookups of functions by name and by cuGetProcAddress, on the simulated driver.
#include <dlfcn.h>

#include <filesystem>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

TEST_F(LimiterTest, EveryWayToFindAFunctionLeadsToTheLimiter) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    void* const by_name = reinterpret_cast<void*>(CU(cuda, cuMemAlloc_v2));
    int status = -1;
    void* found = nullptr;
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuMemAlloc", &found, 3020, 0, &status));
    EXPECT_EQ(found, by_name);
    EXPECT_EQ(status, 0);
    ASSERT_OK(CU(cuda, cuGetProcAddress)("cuMemAlloc", &found, 12000, 0));
    EXPECT_EQ(found, by_name);
    // CUDA's runtime looks up this function too, and uses the result for all others.
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuGetProcAddress", &found, 12000, 0, nullptr));
    EXPECT_EQ(found, reinterpret_cast<void*>(CU(cuda, cuGetProcAddress_v2)));
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuMemFreeAsync", &found, 12000, 2, nullptr));
    Dl_info info;
    ASSERT_NE(::dladdr(found, &info), 0);
    EXPECT_STREQ(info.dli_fname, "/run/tessera/lib/libcuda.so.1");
    EXPECT_OK(CU(cuda, cuGetProcAddress_v2)("cuMemAlloc", nullptr, 12000, 0, nullptr) ==
                      Result::kInvalidValue
                  ? Result::kSuccess
                  : Result::kUnknown);
  }));
}

TEST_F(LimiterTest, FunctionsThatAreNotLimitedAreTheDriversOwn) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    void* found = nullptr;
    Dl_info info;
    ASSERT_OK(CU(cuda, cuGetProcAddress_v2)("cuStreamCreate", &found, 12000, 0, nullptr));
    EXPECT_EQ(found, reinterpret_cast<void*>(CU(cuda, cuStreamCreate)));
    ASSERT_NE(::dladdr(found, &info), 0);
    EXPECT_EQ(std::filesystem::canonical(info.dli_fname),
              std::filesystem::canonical(node.node().library("libcuda.so.1")));
  }));
}

}  // namespace
}  // namespace tessera::limiter
