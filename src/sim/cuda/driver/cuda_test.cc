// SPDX-License-Identifier: Apache-2.0
// The library as a program uses it. All tests share one node and one cuInit: a driver cannot be
// unloaded.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "api/nvml_abi.h"
#include "src/sim/cuda/cuda_library.h"
#include "src/sim/simgpu/inject.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

constexpr uint64_t kMiB = 1 << 20;
// 1000 MiB for programs; a context takes 100 MiB.
constexpr char kSmallNode[] =
    "base: a100-sxm4-80gb\ngpu:\n  memory_mib: 1100\n  reserved_mib: 100\n  context_mib: 100\n"
    "node:\n  gpus: 2\n  nvlink: {topology: pairs}\n";
constexpr char kPtx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry vectorAdd(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) { ret; "
    "}\n"
    ".visible .entry fill(.param .u64 p, .param .f32 v, .param .u32 n) { ret; }\n"
    ".visible .entry _Z5saxpyifPKfPf(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) { "
    "ret; }\n"
    ".visible .entry slow() { ret; }\n";

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class CudaTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMGPU_KERNEL_NS", "slow=30000000", 1);
    node_ = new sim::testing::SimNode({.profile = kSmallNode});
    cuda_ = new CudaLibrary(node_->library("libcuda.so.1"));
    EXPECT_EQ(CU(*cuda_, cuDeviceGetCount)(nullptr), Result::kNotInitialized);
    ASSERT_OK(CU(*cuda_, cuInit)(0));
  }
  static void TearDownTestSuite() {
    delete node_;
    node_ = nullptr;
  }

  void SetUp() override {
    ASSERT_OK(CU(*cuda_, cuDevicePrimaryCtxRetain)(&context_, 0));
    ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
  }
  void TearDown() override {
    sim::Recover(&node_->state(), 0);
    EXPECT_OK(CU(*cuda_, cuDevicePrimaryCtxReset_v2)(0));
    (void)CU(*cuda_, cuCtxSetCurrent)(nullptr);
    EXPECT_EQ(Used(), 0u);
  }

  static uint64_t Used(uint32_t gpu = 0) { return node_->state().UsedBytes(gpu); }
  static uint64_t Free() {
    size_t free = 0, total = 0;
    EXPECT_OK(CU(*cuda_, cuMemGetInfo_v2)(&free, &total));
    EXPECT_EQ(total, 1000 * kMiB);
    return free;
  }
  static DevicePtr Alloc(uint64_t bytes) {
    DevicePtr pointer = 0;
    EXPECT_OK(CU(*cuda_, cuMemAlloc_v2)(&pointer, bytes));
    return pointer;
  }
  static Function GetFunction(const char* name) {
    Module module = nullptr;
    Function function = nullptr;
    EXPECT_OK(CU(*cuda_, cuModuleLoadData)(&module, kPtx));
    EXPECT_OK(CU(*cuda_, cuModuleGetFunction)(&function, module, name));
    return function;
  }
  static Result Launch(Function function, unsigned blocks, Stream stream, void** parameters) {
    return CU(*cuda_, cuLaunchKernel)(function, blocks, 1, 1, 256, 1, 1, 0, stream, parameters,
                                      nullptr);
  }

  static inline sim::testing::SimNode* node_ = nullptr;
  static inline CudaLibrary* cuda_ = nullptr;
  Context context_ = nullptr;
};

TEST_F(CudaTest, ListsTheDevices) {
  int count = 0, value = 0;
  EXPECT_OK(CU(*cuda_, cuDeviceGetCount)(&count));
  EXPECT_EQ(count, 2);
  Uuid uuid;
  EXPECT_OK(CU(*cuda_, cuDeviceGetUuid)(&uuid, 1));
  char text[48], id[16];
  std::snprintf(text, sizeof(text), "GPU-%02x%02x%02x%02x", uint8_t(uuid.bytes[0]),
                uint8_t(uuid.bytes[1]), uint8_t(uuid.bytes[2]), uint8_t(uuid.bytes[3]));
  EXPECT_TRUE(std::string(node_->state().facts(1).uuid).starts_with(text));
  EXPECT_OK(CU(*cuda_, cuDeviceGetPCIBusId)(id, sizeof(id), 1));
  EXPECT_STREQ(id, "0000:0f:00.0");
  Device device = -1;
  EXPECT_OK(CU(*cuda_, cuDeviceGetByPCIBusId)(&device, id));
  EXPECT_EQ(device, 1);
  EXPECT_OK(CU(*cuda_, cuDeviceGetAttribute)(&value, 75, 0));
  EXPECT_EQ(value, 8);
  EXPECT_OK(CU(*cuda_, cuDeviceCanAccessPeer)(&value, 0, 1));
  EXPECT_EQ(value, 1);
  EXPECT_EQ(CU(*cuda_, cuDeviceGet)(&device, 2), Result::kInvalidDevice);
}

TEST_F(CudaTest, ChargesContextsAndMemoryToTheByte) {
  EXPECT_EQ(Free(), 900 * kMiB);
  const DevicePtr a = Alloc(300 * kMiB);
  EXPECT_EQ(a % (2 * kMiB), 0u);
  const DevicePtr b = Alloc(3 * kMiB);  // charged 4 MiB: blocks have 2 MiB
  EXPECT_EQ(Free(), 596 * kMiB);
  DevicePtr c = 0;
  EXPECT_EQ(CU(*cuda_, cuMemAlloc_v2)(&c, 597 * kMiB), Result::kOutOfMemory);
  EXPECT_OK(CU(*cuda_, cuMemAlloc_v2)(&c, 596 * kMiB));
  EXPECT_EQ(Free(), 0u);
  EXPECT_EQ(Used(), 1000 * kMiB);
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(a));
  EXPECT_EQ(CU(*cuda_, cuMemFree_v2)(a), Result::kInvalidValue);
  EXPECT_EQ(Free(), 300 * kMiB);
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(b));
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(c));
}

TEST_F(CudaTest, SmallAllocationsShareABlock) {
  std::vector<DevicePtr> pointers;
  for (int i = 0; i < 100; ++i) pointers.push_back(Alloc(1000));
  EXPECT_EQ(Free(), 898 * kMiB);
  for (DevicePtr pointer : pointers) EXPECT_OK(CU(*cuda_, cuMemFree_v2)(pointer));
  EXPECT_EQ(Free(), 900 * kMiB);
}

TEST_F(CudaTest, NvmlReportsTheSameMemory) {
  void* nvml = dlopen(node_->library("libnvidia-ml.so.1").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(nvml, nullptr) << dlerror();
#define NVML(name) reinterpret_cast<nvml::fn::name>(dlsym(nvml, #name))
  ASSERT_EQ(NVML(nvmlInit_v2)(), nvml::Return::kSuccess);
  nvml::Device device = nullptr;
  ASSERT_EQ(NVML(nvmlDeviceGetHandleByIndex_v2)(0, &device), nvml::Return::kSuccess);
  const DevicePtr pointer = Alloc(200 * kMiB);
  nvml::ProcessInfo info[4];
  unsigned count = 4;
  ASSERT_EQ(NVML(nvmlDeviceGetComputeRunningProcesses_v3)(device, &count, info),
            nvml::Return::kSuccess);
  ASSERT_EQ(count, 1u);
  EXPECT_EQ(info[0].pid, unsigned(getpid()));
  EXPECT_EQ(info[0].used_gpu_memory, 300 * kMiB);
  EXPECT_EQ(NVML(nvmlShutdown)(), nvml::Return::kSuccess);
  EXPECT_EQ(Used(), 300 * kMiB) << "nvmlShutdown must not free memory of CUDA";
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(pointer));
#undef NVML
}

TEST_F(CudaTest, AddsVectors) {
  constexpr unsigned kCount = 10'000;
  std::vector<float> a(kCount), b(kCount), c(kCount);
  for (unsigned i = 0; i < kCount; ++i) a[i] = float(i), b[i] = float(2 * i);
  DevicePtr da = Alloc(kCount * 4), db = Alloc(kCount * 4), dc = Alloc(kCount * 4);
  EXPECT_OK(CU(*cuda_, cuMemcpyHtoD_v2)(da, a.data(), kCount * 4));
  EXPECT_OK(CU(*cuda_, cuMemcpyHtoD_v2)(db, b.data(), kCount * 4));
  int n = kCount;
  void* parameters[] = {&da, &db, &dc, &n};
  EXPECT_OK(Launch(GetFunction("vectorAdd"), 40, nullptr, parameters));
  EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(c.data(), dc, kCount * 4));
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(c[i], float(3 * i));
}

TEST_F(CudaTest, KernelsOfALibraryTakeParametersFromABuffer) {
  Library library = nullptr;
  Kernel kernel = nullptr;
  ASSERT_OK(
      CU(*cuda_, cuLibraryLoadData)(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_EQ(CU(*cuda_, cuLibraryGetKernel)(&kernel, library, "none"), Result::kNotFound);
  ASSERT_OK(CU(*cuda_, cuLibraryGetKernel)(&kernel, library, "_Z5saxpyifPKfPf"));
  DevicePtr x = Alloc(400), y = Alloc(400);
  EXPECT_OK(CU(*cuda_, cuMemsetD32_v2)(x, 0x40000000, 100));  // 2.0f
  EXPECT_OK(CU(*cuda_, cuMemsetD32_v2)(y, 0x3f800000, 100));  // 1.0f
  struct {
    int n;
    float a;
    DevicePtr x, y;
  } buffer{100, 3.0f, x, y};
  size_t size = sizeof(buffer);
  void* extra[] = {reinterpret_cast<void*>(kLaunchParamBuffer), &buffer,
                   reinterpret_cast<void*>(kLaunchParamSize), &size, kLaunchParamEnd};
  EXPECT_OK(CU(*cuda_, cuLaunchKernel)(reinterpret_cast<Function>(kernel), 1, 1, 1, 128, 1, 1, 0,
                                       nullptr, nullptr, extra));
  float first = 0;
  EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(&first, y, 4));
  EXPECT_EQ(first, 7.0f);
  EXPECT_OK(CU(*cuda_, cuLibraryUnload)(library));
}

TEST_F(CudaTest, AModuleOfALibraryIsUnloadedOnlyWithTheLibrary) {
  Library library = nullptr;
  Kernel kernel = nullptr;
  Module module = nullptr;
  Function function = nullptr;
  ASSERT_OK(
      CU(*cuda_, cuLibraryLoadData)(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_OK(CU(*cuda_, cuLibraryGetKernel)(&kernel, library, "slow"));
  ASSERT_OK(CU(*cuda_, cuLibraryGetModule)(&module, library));
  EXPECT_EQ(CU(*cuda_, cuModuleUnload)(module), Result::kNotPermitted);
  // Every way to the function still works.
  EXPECT_OK(CU(*cuda_, cuKernelGetFunction)(&function, kernel));
  EXPECT_OK(CU(*cuda_, cuModuleGetFunction)(&function, module, "slow"));
  Module again = nullptr;
  EXPECT_OK(CU(*cuda_, cuLibraryGetModule)(&again, library));
  EXPECT_EQ(again, module);
  EXPECT_OK(CU(*cuda_, cuLibraryUnload)(library));
  EXPECT_EQ(CU(*cuda_, cuModuleUnload)(module), Result::kInvalidHandle);
}

TEST_F(CudaTest, AnAccessOutsideOfMemoryEndsTheContext) {
  DevicePtr p = Alloc(400);
  float value = 1;
  int n = 101;
  void* parameters[] = {&p, &value, &n};
  EXPECT_OK(Launch(GetFunction("fill"), 1, nullptr, parameters));
  EXPECT_EQ(CU(*cuda_, cuCtxSynchronize)(), Result::kIllegalAddress);
  EXPECT_EQ(CU(*cuda_, cuMemAlloc_v2)(&p, 4), Result::kIllegalAddress);
}

TEST_F(CudaTest, EventsMeasureTheTimeOfStreams) {
  Stream stream = nullptr;
  Event start = nullptr, end = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream, 1));
  ASSERT_OK(CU(*cuda_, cuEventCreate)(&start, 0));
  ASSERT_OK(CU(*cuda_, cuEventCreate)(&end, 0));
  Function slow = GetFunction("slow");
  constexpr uint64_t kBothNs = 60'000'000;
  // A pause between two calls lengthens a time, so the shortest of several times counts.
  float least = 1e9;
  bool seen_running = false;
  for (int i = 0; i < 5; ++i) {
    const uint64_t before = sim::MonotonicNs();
    EXPECT_OK(CU(*cuda_, cuEventRecord)(start, stream));
    EXPECT_OK(Launch(slow, 1, stream, nullptr));
    EXPECT_OK(Launch(slow, 1, stream, nullptr));
    EXPECT_OK(CU(*cuda_, cuEventRecord)(end, stream));
    float milliseconds = 0;
    const Result state = CU(*cuda_, cuStreamQuery)(stream);
    const Result elapsed = CU(*cuda_, cuEventElapsedTime)(&milliseconds, start, end);
    if (sim::MonotonicNs() - before < kBothNs) {
      seen_running = true;
      EXPECT_EQ(state, Result::kNotReady);
      EXPECT_EQ(elapsed, Result::kNotReady);
    }
    EXPECT_OK(CU(*cuda_, cuEventSynchronize)(end));
    EXPECT_GE(sim::MonotonicNs() - before, kBothNs);
    EXPECT_OK(CU(*cuda_, cuEventElapsedTime)(&milliseconds, start, end));
    least = std::min(least, milliseconds);
  }
  EXPECT_TRUE(seen_running);
  EXPECT_NEAR(least, 60, 1);
  EXPECT_GT(node_->state().BusyNs(0), 59'000'000u);
  EXPECT_OK(CU(*cuda_, cuStreamDestroy_v2)(stream));
}

TEST_F(CudaTest, HostFunctionsRunInTheOrderOfTheirStream) {
  static bool ran = false;
  EXPECT_OK(Launch(GetFunction("slow"), 1, nullptr, nullptr));
  EXPECT_OK(CU(*cuda_, cuLaunchHostFunc)(
      nullptr, [](void* flag) { *static_cast<bool*>(flag) = true; }, &ran));
  EXPECT_FALSE(ran);
  EXPECT_OK(CU(*cuda_, cuCtxSynchronize)());
  EXPECT_TRUE(ran);
}

TEST_F(CudaTest, ALostGpuEndsWaitsAndContexts) {
  Stream stream = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream, 1));
  setenv("SIMGPU_KERNEL_NS", "slow=30000000", 1);
  Function slow = GetFunction("slow");
  for (int i = 0; i < 1000; ++i) ASSERT_OK(Launch(slow, 1, stream, nullptr));  // 30 s
  std::thread breaker([] { sim::InjectLost(&node_->state(), 0); });
  EXPECT_EQ(CU(*cuda_, cuStreamSynchronize)(stream), Result::kUnknown);
  breaker.join();
  DevicePtr pointer = 0;
  EXPECT_EQ(CU(*cuda_, cuMemAlloc_v2)(&pointer, 4), Result::kUnknown);
  Context other = nullptr;
  EXPECT_EQ(CU(*cuda_, cuCtxCreate_v2)(&other, 0, 0), Result::kDeviceUnavailable);
  ASSERT_OK(CU(*cuda_, cuCtxCreate_v2)(&other, 0, 1)) << "the other GPU is healthy";
  EXPECT_OK(CU(*cuda_, cuCtxDestroy_v2)(other));
  sim::Recover(&node_->state(), 0);
  ASSERT_OK(CU(*cuda_, cuCtxCreate_v2)(&other, 0, 0));
  EXPECT_OK(CU(*cuda_, cuCtxDestroy_v2)(other));
}

TEST_F(CudaTest, UncorrectableMemoryErrorsEndContexts) {
  sim::InjectEcc(&node_->state(), 0, 0, 1);
  EXPECT_EQ(CU(*cuda_, cuCtxSynchronize)(), Result::kEccUncorrectable);
}

TEST_F(CudaTest, APrimaryContextThatIsRetainedDuringItsReleaseLives) {
  // While this function of the program runs, the other thread waits in the release.
  static std::atomic<bool> may_end;
  may_end = false;
  ASSERT_OK(CU(*cuda_, cuLaunchHostFunc)(
      nullptr,
      [](void*) {
        while (!may_end) usleep(1000);
      },
      nullptr));
  std::thread releaser([] { EXPECT_OK(CU(*cuda_, cuDevicePrimaryCtxRelease_v2)(0)); });
  usleep(50'000);  // gives the other thread the time to begin
  Context retained = nullptr;
  EXPECT_OK(CU(*cuda_, cuDevicePrimaryCtxRetain)(&retained, 0));
  may_end = true;
  releaser.join();
  EXPECT_EQ(retained, context_);
  EXPECT_OK(CU(*cuda_, cuCtxSetCurrent)(retained));
  EXPECT_OK(CU(*cuda_, cuCtxSynchronize)());
}

TEST_F(CudaTest, AForkedChildIsNotInitialized) {
  const pid_t child = fork();
  if (child == 0) {
    int count = 0;
    const bool refused = CU(*cuda_, cuDeviceGetCount)(&count) == Result::kNotInitialized &&
                         CU(*cuda_, cuInit)(0) == Result::kNotInitialized;
    _exit(refused ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST_F(CudaTest, UnimplementedFunctionsAreRefusedAndCounted) {
  using AnyFunction = Result (*)(void*, int);
  EXPECT_EQ(cuda_->Get<AnyFunction>("cuTexRefCreate")(nullptr, 0), Result::kNotSupported);
  const void* table = this;
  Uuid id = {};
  EXPECT_EQ(CU(*cuda_, cuGetExportTable)(&table, &id), Result::kNotSupported);
  EXPECT_EQ(table, nullptr);
  uint64_t count = 0;
  for (const sim::NamedCounter& counter : node_->state().file().counters) {
    if (std::strcmp(counter.name, "cuTexRefCreate") == 0) count += counter.count;
  }
  EXPECT_EQ(count, 1u);
}

TEST_F(CudaTest, LaunchesThatComputeNothingAreCountedByKernel) {
  const auto launches = [](const char* name) {
    uint64_t count = 0;
    for (const sim::NamedCounter& counter : node_->state().file().kernel_counters) {
      if (std::strcmp(counter.name, name) == 0) count += counter.count;
    }
    return count;
  };
  const uint64_t before = launches("slow");
  EXPECT_OK(Launch(GetFunction("slow"), 1, nullptr, nullptr));
  EXPECT_EQ(launches("slow"), before + 1);
  EXPECT_EQ(launches("fill"), 0u) << "the kernel is known and computes";
}

TEST_F(CudaTest, NamesOfOldVersionsDestroyStreamsAndEvents) {
  Stream stream = nullptr;
  Event event = nullptr;
  EXPECT_OK(CU(*cuda_, cuStreamCreate)(&stream, 0));
  EXPECT_OK(CU(*cuda_, cuEventCreate)(&event, 0));
  EXPECT_OK(cuda_->Get<fn::cuEventDestroy_v2>("cuEventDestroy")(event));
  EXPECT_EQ(CU(*cuda_, cuEventQuery)(event), Result::kInvalidHandle);
  EXPECT_OK(cuda_->Get<fn::cuStreamDestroy_v2>("cuStreamDestroy")(stream));
  EXPECT_EQ(CU(*cuda_, cuStreamQuery)(stream), Result::kInvalidHandle);
}

TEST_F(CudaTest, GetProcAddressPicksByVersionAndStreamMode) {
  auto get = CU(*cuda_, cuGetProcAddress_v2);
  const auto symbol = [&](const char* name) { return dlsym(cuda_->handle(), name); };
  void* function = nullptr;
  int status = -1;
  EXPECT_OK(get("cuMemAlloc", &function, 12000, 0, &status));
  EXPECT_EQ(function, symbol("cuMemAlloc_v2"));
  EXPECT_EQ(status, 0);
  EXPECT_OK(get("cuMemAlloc", &function, 3000, 0, nullptr));
  EXPECT_EQ(function, symbol("cuMemAlloc"));
  EXPECT_OK(get("cuCtxDestroy", &function, 3020, 0, nullptr));
  EXPECT_EQ(function, symbol("cuCtxDestroy"));
  EXPECT_OK(get("cuLaunchKernel", &function, 7000, 2, nullptr));
  EXPECT_EQ(function, symbol("cuLaunchKernel_ptsz"));
  EXPECT_OK(get("cuMemcpyHtoD", &function, 7000, 2, nullptr));
  EXPECT_EQ(function, symbol("cuMemcpyHtoD_v2_ptds"));
  EXPECT_OK(get("cuDeviceGetCount", &function, 12000, 2, nullptr));
  EXPECT_EQ(function, symbol("cuDeviceGetCount")) << "no variant for the mode: the plain function";
  EXPECT_OK(get("cuGetProcAddress", &function, 11030, 0, nullptr));
  EXPECT_EQ(function, symbol("cuGetProcAddress"));
  EXPECT_OK(get("cuGetProcAddress", &function, 12000, 0, nullptr));
  EXPECT_EQ(function, symbol("cuGetProcAddress_v2"));
  EXPECT_OK(get("cuMemAlloc", &function, 99000, 0, &status));
  EXPECT_EQ(function, symbol("cuMemAlloc_v2"))
      << "a newer version gets the answer of the driver's version";
  EXPECT_OK(get("cuMemcpyHtoD", &function, 5000, 2, &status));
  EXPECT_EQ(function, nullptr) << "the version is older than the stream modes";
  EXPECT_EQ(status, 2);
  EXPECT_OK(get("cuMemAllocAsync", &function, 11010, 0, &status));
  EXPECT_EQ(function, nullptr);
  EXPECT_EQ(status, 2);
  EXPECT_OK(get("cuGLNothing", &function, 12000, 0, &status));
  EXPECT_EQ(status, 1);
  EXPECT_OK(get("", &function, 0, 0, &status));
  EXPECT_EQ(status, 1);
  EXPECT_EQ(get("cuInit", &function, 12000, 4, nullptr), Result::kInvalidValue);
  EXPECT_EQ(get(nullptr, &function, 12000, 0, nullptr), Result::kInvalidValue);
}

TEST_F(CudaTest, GetProcAddressWithoutAStatusFailsForUnknownNames) {
  void* function = this;
  EXPECT_EQ(CU(*cuda_, cuGetProcAddress)("cuMemAllocAsync", &function, 11010, 0),
            Result::kNotFound);
  EXPECT_EQ(function, this) << "the driver does not write the result";
  EXPECT_OK(CU(*cuda_, cuGetProcAddress)("cuMemAllocAsync", &function, 11020, 0));
  EXPECT_EQ(function, dlsym(cuda_->handle(), "cuMemAllocAsync"));
}

TEST_F(CudaTest, PoolsAndManagedMemoryAreCharged) {
  DevicePtr pool_memory = 0, managed = 0;
  ASSERT_OK(CU(*cuda_, cuMemAllocAsync)(&pool_memory, 10 * kMiB, nullptr));
  ASSERT_OK(CU(*cuda_, cuMemAllocManaged)(&managed, 10 * kMiB, 1));
  EXPECT_EQ(Free(), 880 * kMiB);
  MemPool pool = nullptr;
  uint64_t used = 0;
  EXPECT_OK(CU(*cuda_, cuDeviceGetDefaultMemPool)(&pool, 0));
  EXPECT_OK(CU(*cuda_, cuMemPoolGetAttribute)(pool, 7, &used));
  EXPECT_EQ(used, 10 * kMiB);
  EXPECT_OK(CU(*cuda_, cuMemFreeAsync)(pool_memory, nullptr));
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(managed));
  EXPECT_EQ(Free(), 900 * kMiB);
}

TEST_F(CudaTest, AttributesOfAnUnknownPointerHaveDefaults) {
  int local = 0;
  const auto unknown = reinterpret_cast<DevicePtr>(&local);
  // Values that differ from the defaults: the call must write every one.
  void* context = &local;
  unsigned memory_type = 9;
  DevicePtr device_pointer = 9, range_start = 9;
  void* host_pointer = &local;
  bool is_managed = true, is_mapped = true;
  int ordinal = 9;
  size_t range_size = 9;
  int attributes[] = {1, 2, 3, 4, 8, 9, 11, 12, 13};
  void* data[] = {&context, &memory_type, &device_pointer, &host_pointer, &is_managed,
                  &ordinal, &range_start, &range_size,     &is_mapped};
  ASSERT_OK(CU(*cuda_, cuPointerGetAttributes)(9, attributes, data, unknown));
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(memory_type, 0u);
  EXPECT_EQ(device_pointer, 0u);
  EXPECT_EQ(host_pointer, nullptr);
  EXPECT_FALSE(is_managed);
  EXPECT_EQ(ordinal, -2) << "CU_DEVICE_INVALID";
  EXPECT_EQ(range_start, 0u);
  EXPECT_EQ(range_size, 0u);
  EXPECT_FALSE(is_mapped);

  const DevicePtr known = Alloc(400);
  host_pointer = &local;
  ASSERT_OK(CU(*cuda_, cuPointerGetAttributes)(9, attributes, data, known));
  EXPECT_EQ(ordinal, 0);
  EXPECT_EQ(range_start, known);
  EXPECT_EQ(host_pointer, nullptr) << "the default: the host cannot access device memory";
  attributes[0] = 99;
  EXPECT_EQ(CU(*cuda_, cuPointerGetAttributes)(9, attributes, data, known), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(known));
}

TEST_F(CudaTest, BadHandlesAreRefused) {
  int local = 0;
  EXPECT_EQ(CU(*cuda_, cuCtxSetCurrent)(reinterpret_cast<Context>(&local)),
            Result::kInvalidContext);
  EXPECT_EQ(CU(*cuda_, cuStreamSynchronize)(reinterpret_cast<Stream>(&local)),
            Result::kInvalidHandle);
  EXPECT_EQ(CU(*cuda_, cuEventSynchronize)(reinterpret_cast<Event>(&local)),
            Result::kInvalidHandle);
  EXPECT_EQ(CU(*cuda_, cuModuleUnload)(reinterpret_cast<Module>(&local)), Result::kInvalidHandle);
  EXPECT_EQ(Launch(reinterpret_cast<Function>(&local), 1, nullptr, nullptr),
            Result::kInvalidHandle);
  EXPECT_EQ(CU(*cuda_, cuMemcpyHtoD_v2)(4096, &local, 4), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuMemGetInfo_v2)(nullptr, nullptr));
}

TEST_F(CudaTest, ThreadsAllocateAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([this] {
      ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
      for (int i = 0; i < 100; ++i) {
        DevicePtr small = Alloc(100), large = Alloc(4 * kMiB);
        EXPECT_OK(CU(*cuda_, cuMemFree_v2)(large));
        EXPECT_OK(CU(*cuda_, cuMemFree_v2)(small));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Free(), 900 * kMiB);
}

TEST_F(CudaTest, TheLibraryIsSmall) {
  struct stat info;
  ASSERT_EQ(stat(node_->library("libcuda.so.550.163.01").c_str(), &info), 0);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make it larger";
#endif
  EXPECT_LT(info.st_size, 800 * 1024);
}

}  // namespace
}  // namespace tessera::cuda
