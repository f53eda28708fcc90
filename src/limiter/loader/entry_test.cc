// SPDX-License-Identifier: Apache-2.0
// Lookups of functions by name and by cuGetProcAddress, on the simulated driver.
#include <dlfcn.h>

#include <filesystem>
#include <set>
#include <string>

#include "src/limiter/testing/limiter_fixture.h"
#include "src/sim/testing/elf_file.h"

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
    EXPECT_EQ(CU(cuda, cuGetProcAddress_v2)("cuMemAlloc", nullptr, 12000, 0, nullptr),
              Result::kInvalidValue);
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

// Drivers of several ages, one of them newer than the limiter.
struct DriverVersion {
  const char *version, *cuda;
};
class DriverVersionTest : public LimiterTest, public ::testing::WithParamInterface<DriverVersion> {
 protected:
  static std::string Profile() {
    return std::string(
               "base: t4\ngpu:\n  memory_mib: 4096\n  reserved_mib: 96\n  context_mib: 10\n") +
           "node:\n  gpus: 1\n  nvlink: none\ndriver: {version: " + GetParam().version +
           ", cuda: \"" + GetParam().cuda + "\"}\n";
  }
};
INSTANTIATE_TEST_SUITE_P(
    Drivers, DriverVersionTest,
    ::testing::Values(DriverVersion{"418.226.00", "10.1"}, DriverVersion{"470.256.02", "11.4"},
                      DriverVersion{"550.163.01", "12.4"}, DriverVersion{"570.172.08", "12.8"},
                      DriverVersion{"580.95.05", "13.0"}, DriverVersion{"610.10", "13.5"}),
    [](const auto& info) { return "Driver" + std::string(info.param.version).substr(0, 3); });

TEST_P(DriverVersionTest, EveryExportOfTheDriverIsFound) {
  LimitedNode node({100 * kMiB}, Profile());
  const auto exports = sim::testing::ExportedSymbols(node.node().library("libcuda.so.1"));
  EXPECT_GT(exports.size(), 200u);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    for (const auto& symbol : exports) {
      EXPECT_NE(::dlsym(cuda.handle(), std::string(symbol).c_str()), nullptr) << symbol;
    }
  }));
}

TEST_P(DriverVersionTest, LimitsHold) {
  LimitedNode node({100 * kMiB}, Profile());
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    cuda::DevicePtr pointer = 0, other = 0;
    cuda::DevicePtrV1 narrow = 0;
    size_t free = 0, total = 0;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&pointer, 60 * kMiB));
    EXPECT_EQ(CU(cuda, cuMemAlloc_v2)(&other, 50 * kMiB), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuMemAlloc)(&narrow, 50 * kMiB), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuMemAllocManaged)(&other, 50 * kMiB, 1), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemGetInfo_v2)(&free, &total));
    EXPECT_EQ(free, 40 * kMiB);
    EXPECT_EQ(total, 100 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

}  // namespace
}  // namespace tessera::limiter
