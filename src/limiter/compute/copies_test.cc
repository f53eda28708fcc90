// SPDX-License-Identifier: Apache-2.0
// Calls that are charged to the compute limit: every function that copies or sets within device
// memory, and every function that launches a kernel, in both stream modes.
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::DevicePtrV1;
using cuda::MemoryType;
using cuda::Result;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

constexpr unsigned kWidth = 4096, kRows = 512, kBytes = kWidth * kRows;

// The newest of the functions have been in drivers since CUDA 13.2.
constexpr char kNewDriver[] =
    "base: a100-sxm4-80gb\ngpu:\n  memory_mib: 4096\n  reserved_mib: 96\n  context_mib: 10\n"
    "node:\n  gpus: 1\n  nvlink: none\ndriver: {version: 610.10, cuda: \"13.5\"}\n";

// The arguments of the calls. Narrow addresses are the 32-bit addresses of CUDA 3.1 and earlier.
struct Operands {
  explicit Operands(const CudaLibrary& library) : cuda(library) {
    context = MakeContext(cuda);
    EXPECT_OK(CU(cuda, cuStreamCreate)(&stream, 1));
    EXPECT_OK(CU(cuda, cuMemAlloc)(&narrow_from, kBytes));
    EXPECT_OK(CU(cuda, cuMemAlloc)(&narrow_to, kBytes));
    const cuda::ArrayDescriptor shape{kBytes / 256, 256, cuda::kFormatUint8, 1};
    EXPECT_OK(CU(cuda, cuArrayCreate_v2)(&array_from, &shape));
    EXPECT_OK(CU(cuda, cuArrayCreate_v2)(&array_to, &shape));
    from = narrow_from;
    to = narrow_to;
    box = {.src_type = MemoryType::kDevice,
           .src_device = from,
           .dst_type = MemoryType::kDevice,
           .dst_device = to,
           .width = kWidth,
           .height = kRows,
           .depth = 1};
    batch = {.from = {.type = cuda::kBatchPointer, .linear = {.pointer = from}},
             .to = {.type = cuda::kBatchPointer, .linear = {.pointer = to}},
             .width = kWidth,
             .height = kRows,
             .depth = 1};
  }

  const CudaLibrary& cuda;
  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  DevicePtrV1 narrow_from = 0, narrow_to = 0;
  DevicePtr from = 0, to = 0;
  cuda::Array array_from = nullptr, array_to = nullptr;
  cuda::Memcpy3D box{};
  cuda::BatchCopy3D batch{};
  size_t bytes = kBytes, index = 0, failed = 0;
  int attributes[8] = {};
  cuda::Function function = nullptr;
  cuda::LaunchConfig config{
      .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
};

// `ARGUMENTS` may use the operands `o`. The function is `name`; its type is that of `type`.
struct GpuCall {
  const char* name;
  std::function<Result(Operands& o, const char* name)> call;
};
#define WORK_AS(name, type, ...)                                                              \
  GpuCall {                                                                                   \
#name, [](Operands & o,                                                                   \
              const char* symbol) { return o.cuda.Get<cuda::fn::type>(symbol)(__VA_ARGS__); } \
  }
#define WORK(name, ...) WORK_AS(name, name, __VA_ARGS__)
#define WORK_PTDS(name, ...) WORK(name, __VA_ARGS__), WORK_AS(name##_ptds, name, __VA_ARGS__)
#define WORK_PTSZ(name, ...) WORK(name, __VA_ARGS__), WORK_AS(name##_ptsz, name, __VA_ARGS__)

const std::vector<GpuCall> kCopies = {
    WORK_PTDS(cuMemcpyDtoD_v2, o.to, o.from, kBytes),
    WORK_PTSZ(cuMemcpyDtoDAsync_v2, o.to, o.from, kBytes, o.stream),
    WORK_PTDS(cuMemcpyDtoA_v2, o.array_to, 0, o.from, kBytes / 2),
    WORK_PTDS(cuMemcpyAtoD_v2, o.to, o.array_from, 0, kBytes / 2),
    WORK_PTDS(cuMemcpyAtoA_v2, o.array_to, 0, o.array_from, 0, kBytes / 2),
    WORK_PTDS(cuMemcpyPeer, o.to, o.context, o.from, o.context, kBytes),
    WORK_PTSZ(cuMemcpyPeerAsync, o.to, o.context, o.from, o.context, kBytes, o.stream),
    WORK_PTDS(cuMemcpy3DPeer, &o.box),
    WORK_PTSZ(cuMemcpy3DPeerAsync, &o.box, o.stream),
    WORK_PTSZ(cuMemcpyBatchAsync, &o.to, &o.from, &o.bytes, 1, o.attributes, &o.index, 1, &o.failed,
              o.stream),
    WORK_PTSZ(cuMemcpyBatchAsync_v2, &o.to, &o.from, &o.bytes, 1, o.attributes, &o.index, 1,
              o.stream),
    WORK_PTSZ(cuMemcpy3DBatchAsync, 1, &o.batch, &o.failed, 0, o.stream),
    WORK_PTSZ(cuMemcpy3DBatchAsync_v2, 1, &o.batch, 0, o.stream),
    WORK_PTSZ(cuMemcpyWithAttributesAsync, o.to, o.from, kBytes, o.attributes, o.stream),
    WORK_PTSZ(cuMemcpy3DWithAttributesAsync, &o.batch, 0, o.stream),
    WORK(cuMemcpyDtoD, o.narrow_to, o.narrow_from, kBytes),
    WORK(cuMemcpyDtoDAsync, o.narrow_to, o.narrow_from, kBytes, o.stream),
    WORK(cuMemcpyDtoA, o.array_to, 0, o.narrow_from, kBytes / 2),
    WORK(cuMemcpyAtoD, o.narrow_to, o.array_from, 0, kBytes / 2),
    WORK(cuMemcpyAtoA, o.array_to, 0, o.array_from, 0, kBytes / 2),
    WORK(cuMemsetD8, o.narrow_to, 1, kBytes),
    WORK(cuMemsetD16, o.narrow_to, 1, kBytes / 2),
    WORK(cuMemsetD32, o.narrow_to, 1, kBytes / 4),
    WORK(cuMemsetD2D8, o.narrow_to, kWidth, 1, kWidth, kRows),
    WORK(cuMemsetD2D16, o.narrow_to, kWidth, 1, kWidth / 2, kRows),
    WORK(cuMemsetD2D32, o.narrow_to, kWidth, 1, kWidth / 4, kRows),
};

const std::vector<GpuCall> kLaunches = {
    WORK_PTSZ(cuLaunchKernel, o.function, 1, 1, 1, 1, 1, 1, 0, o.stream, nullptr, nullptr),
    WORK_PTSZ(cuLaunchKernelEx, &o.config, o.function, nullptr, nullptr),
    WORK_PTSZ(cuLaunchCooperativeKernel, o.function, 1, 1, 1, 1, 1, 1, 0, o.stream, nullptr),
    WORK(cuLaunch, o.function),
    WORK(cuLaunchGrid, o.function, 1, 1),
    WORK(cuLaunchGridAsync, o.function, 1, 1, o.stream),
};

int64_t ChargedBy(LimitedNode& node, Operands& operands, const GpuCall& work, int calls) {
  EXPECT_OK(CU(operands.cuda, cuCtxSynchronize)());
  const int64_t before = node.compute(0).charge.charged;
  for (int i = 0; i < calls; ++i) EXPECT_OK(work.call(operands, work.name)) << work.name;
  EXPECT_OK(CU(operands.cuda, cuCtxSynchronize)());
  return node.compute(0).charge.charged - before;
}

TEST_F(LimiterTest, EveryCopyAndSetWithinDeviceMemoryIsCharged) {
  LimitedNode node({100 * kMiB}, kNewDriver);
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Operands operands(cuda);
    // A thread takes GPU time in advance, so not every call changes the charge.
    for (const GpuCall& work : kCopies) {
      EXPECT_GT(ChargedBy(node, operands, work, 300), 200'000) << work.name;
    }
  }));
}

TEST_F(LimiterTest, EveryWayToLaunchAKernelIsCharged) {
  constexpr char kKernel[] =
      ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry spin() { ret; }\n";
  setenv("SIMGPU_KERNEL_NS", "spin=1000000", 1);
  LimitedNode node({100 * kMiB}, kNewDriver);
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Operands operands(cuda);
    cuda::Module module = nullptr;
    ASSERT_OK(CU(cuda, cuModuleLoadData)(&module, kKernel));
    ASSERT_OK(CU(cuda, cuModuleGetFunction)(&operands.function, module, "spin"));
    ASSERT_OK(CU(cuda, cuFuncSetBlockShape)(operands.function, 1, 1, 1));
    operands.config.stream = operands.stream;
    // 20 kernels of 1 ms.
    for (const GpuCall& launch : kLaunches) {
      EXPECT_GT(ChargedBy(node, operands, launch, 20), 15'000'000) << launch.name;
    }
  }));
  unsetenv("SIMGPU_KERNEL_NS");
}

TEST_F(LimiterTest, BatchesFromHostMemoryAreNotCharged) {
  LimitedNode node({100 * kMiB}, kNewDriver);
  node.SetCompute(0, 0.5);
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Operands operands(cuda);
    std::vector<char> host(kBytes);
    operands.from = reinterpret_cast<DevicePtr>(host.data());
    operands.batch.from.linear.pointer = operands.from;
    for (const GpuCall& work : kCopies) {
      const std::string_view name(work.name);
      if (name.find("Batch") == name.npos && name.find("Attributes") == name.npos) continue;
      EXPECT_EQ(ChargedBy(node, operands, work, 20), 0) << work.name;
    }
  }));
}

}  // namespace
}  // namespace tessera::limiter
