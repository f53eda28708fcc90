// SPDX-License-Identifier: Apache-2.0
// The memory that NVML and nvidia-smi show in a limited container.
#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "api/nvml_abi.h"
#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DevicePtr;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;

// NVML as a program of the container loads it.
class Nvml {
 public:
  Nvml() : handle_(::dlopen("/run/tessera/lib/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
    EXPECT_EQ(Get<nvml::fn::nvmlInit_v2>("nvmlInit_v2")(), nvml::Return::kSuccess);
  }
  template <typename Function>
  Function Get(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(handle_, name));
  }
  nvml::Memory MemoryOf(unsigned gpu) const {
    nvml::Memory memory = {};
    EXPECT_EQ(
        Get<nvml::fn::nvmlDeviceGetMemoryInfo>("nvmlDeviceGetMemoryInfo")(DeviceOf(gpu), &memory),
        nvml::Return::kSuccess);
    return memory;
  }
  nvml::MemoryV2 MemoryV2Of(unsigned gpu) const {
    nvml::MemoryV2 memory = {.version = sizeof(nvml::MemoryV2) | 2 << 24};
    EXPECT_EQ(Get<nvml::fn::nvmlDeviceGetMemoryInfo_v2>("nvmlDeviceGetMemoryInfo_v2")(DeviceOf(gpu),
                                                                                      &memory),
              nvml::Return::kSuccess);
    return memory;
  }

 private:
  nvml::Device DeviceOf(unsigned gpu) const {
    nvml::Device device = nullptr;
    const auto get = Get<nvml::fn::nvmlDeviceGetHandleByIndex_v2>("nvmlDeviceGetHandleByIndex_v2");
    EXPECT_EQ(get(gpu, &device), nvml::Return::kSuccess);
    return device;
  }
  void* const handle_;
};

class LimitedNvmlTest : public LimiterTest {};

TEST_F(LimitedNvmlTest, ReportsTheLimitAsTotalAndTheHeldBytesAsUsedMemory) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Nvml nvml;
    EXPECT_EQ(nvml.MemoryOf(0).total, 100 * kMiB);
    EXPECT_EQ(nvml.MemoryOf(0).used, 0u);
    cuda::Context context = nullptr;
    DevicePtr pointer = 0;
    ASSERT_EQ(CU(cuda, cuInit)(0), cuda::Result::kSuccess);
    ASSERT_EQ(CU(cuda, cuCtxCreate_v2)(&context, 0, 0), cuda::Result::kSuccess);
    ASSERT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 30 * kMiB), cuda::Result::kSuccess);
    EXPECT_EQ(nvml.MemoryOf(0).used, 30 * kMiB);
    EXPECT_EQ(nvml.MemoryOf(0).free, 70 * kMiB);
    const nvml::MemoryV2 second = nvml.MemoryV2Of(0);
    EXPECT_EQ(second.total, 100 * kMiB);
    EXPECT_EQ(second.reserved, 0u);
    EXPECT_EQ(second.used, 30 * kMiB);
    EXPECT_EQ(second.free, 70 * kMiB);
    EXPECT_EQ(nvml.MemoryOf(1).total, 4096 * kMiB) << "the other GPU is not limited";
  }));
}

TEST_F(LimitedNvmlTest, WorksWithoutAUsageFileAndWithoutALimitsFile) {
  LimitedNode node({100 * kMiB});
  std::filesystem::remove("/run/tessera/usage/usage");
  EXPECT_TRUE(node.Run([&](const CudaLibrary&) {
    const Nvml nvml;
    EXPECT_EQ(nvml.MemoryOf(0).total, 100 * kMiB);
    EXPECT_EQ(nvml.MemoryOf(0).free, 100 * kMiB);
  }));
  std::filesystem::remove("/run/tessera/limits/limits");
  EXPECT_TRUE(node.Run([&](const CudaLibrary&) {
    const Nvml nvml;
    EXPECT_EQ(nvml.MemoryOf(0).total, 4096 * kMiB) << "the size of the device";
  }));
}

TEST_F(LimitedNvmlTest, DoesNotCountAProcessThatHasEnded) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([](const CudaLibrary& cuda) {
    cuda::Context context = nullptr;
    DevicePtr pointer = 0;
    ASSERT_EQ(CU(cuda, cuInit)(0), cuda::Result::kSuccess);
    ASSERT_EQ(CU(cuda, cuCtxCreate_v2)(&context, 0, 0), cuda::Result::kSuccess);
    ASSERT_EQ(CU(cuda, cuMemAlloc_v2)(&pointer, 30 * kMiB), cuda::Result::kSuccess);
  }));
  EXPECT_EQ(node.Held(0), 30 * kMiB) << "the slot is not cleared yet";
  EXPECT_TRUE(node.Run([](const CudaLibrary&) {
    const Nvml nvml;
    EXPECT_EQ(nvml.MemoryOf(0).used, 0u);
    EXPECT_EQ(nvml.MemoryV2Of(0).free, 100 * kMiB);
  }));
}

TEST_F(LimitedNvmlTest, NvidiaSmiShowsTheShare) {
  LimitedNode node({100 * kMiB});
  const std::string smi = node.node().driver_root() + "/usr/bin/nvidia-smi";
  ::setenv("LD_LIBRARY_PATH", "/run/tessera/lib", 1);
  FILE* pipe = ::popen((smi + " -i 0 --query-gpu=memory.total --format=csv,noheader").c_str(), "r");
  ::unsetenv("LD_LIBRARY_PATH");
  ASSERT_NE(pipe, nullptr);
  char line[256] = "";
  EXPECT_NE(std::fgets(line, sizeof(line), pipe), nullptr);
  EXPECT_EQ(::pclose(pipe), 0);
  EXPECT_STREQ(line, "100 MiB\n");
}

}  // namespace
}  // namespace tessera::limiter
