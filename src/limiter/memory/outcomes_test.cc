// SPDX-License-Identifier: Apache-2.0
// Every kind of device memory with every outcome of its calls: success, the limit is reached, the
// driver has no memory, a second free, and memory that a library allocated without the limiter.
#include <functional>
#include <string>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::CudaLibrary;
using cuda::Result;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;
using testing::MakeContext;

constexpr uint64_t kArrayRowBytes = 16384 * 16;  // of the widest array

cuda::Array3DDescriptor ShapeOf(uint64_t bytes) {
  return {.width = kArrayRowBytes / 16,
          .height = bytes / kArrayRowBytes,
          .format = cuda::kFormatFloat,
          .channels = 4};
}

// Makes a call that returns a handle or an address, and stores the result as a number.
template <typename Handle, typename Call>
Result StoreHandle(uint64_t* memory, Call call) {
  Handle handle{};
  const Result result = call(&handle);
  *memory = uint64_t(handle);
  return result;
}

struct MemoryKind {
  const char* name;
  std::function<Result(const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory)> allocate;
  std::function<Result(const CudaLibrary& cuda, uint64_t memory)> free;
};

Result FreeAddress(const CudaLibrary& cuda, uint64_t memory) {
  return CU(cuda, cuMemFree_v2)(memory);
}
Result FreeInStream(const CudaLibrary& cuda, uint64_t memory) {
  return CU(cuda, cuMemFreeAsync)(memory, nullptr);
}

// The memory belongs to the pool of graphs and outlives its graph.
Result AllocateByGraph(const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
  cuda::Graph graph = nullptr;
  cuda::GraphNode node = nullptr;
  cuda::GraphExec exec = nullptr;
  cuda::MemAllocNodeParameters parameters{
      .pool = {.alloc_type = 1, .location = {cuda::kLocationDevice, 0}}, .bytes = bytes};
  EXPECT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
  EXPECT_OK(CU(cuda, cuGraphAddMemAllocNode)(&node, graph, nullptr, 0, &parameters));
  EXPECT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graph, 0));
  const Result result = CU(cuda, cuGraphLaunch)(exec, nullptr);
  EXPECT_OK(CU(cuda, cuCtxSynchronize)());
  *memory = parameters.pointer;
  return result;
}

// The driver keeps the memory of graphs until it is trimmed.
Result FreeAndTrim(const CudaLibrary& cuda, uint64_t memory) {
  const Result result = CU(cuda, cuMemFreeAsync)(memory, nullptr);
  EXPECT_OK(CU(cuda, cuCtxSynchronize)());
  EXPECT_OK(CU(cuda, cuDeviceGraphMemTrim)(0));
  return result;
}

const MemoryKind kKinds[] = {
    {"Linear",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       return CU(cuda, cuMemAlloc_v2)(memory, bytes);
     },
     FreeAddress},
    {"Pitched",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       size_t pitch = 0;
       return CU(cuda, cuMemAllocPitch_v2)(memory, &pitch, 1000, bytes / 1024, 4);
     },
     FreeAddress},
    {"Managed",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       return CU(cuda, cuMemAllocManaged)(memory, bytes, 1);
     },
     FreeAddress},
    {"CurrentPool",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       return CU(cuda, cuMemAllocAsync)(memory, bytes, nullptr);
     },
     FreeInStream},
    {"NamedPool",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       cuda::MemPool pool = nullptr;
       EXPECT_OK(CU(cuda, cuDeviceGetDefaultMemPool)(&pool, 0));
       return CU(cuda, cuMemAllocFromPoolAsync)(memory, bytes, pool, nullptr);
     },
     FreeInStream},
    {"Physical",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       const cuda::PhysicalMemoryProperties on_device{.type = 1,
                                                      .location = {cuda::kLocationDevice, 0}};
       return StoreHandle<cuda::PhysicalMemory>(memory, [&](auto* handle) {
         return CU(cuda, cuMemCreate)(handle, bytes, &on_device, 0);
       });
     },
     [](const CudaLibrary& cuda, uint64_t memory) { return CU(cuda, cuMemRelease)(memory); }},
    {"Array",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       const cuda::Array3DDescriptor shape = ShapeOf(bytes);
       return StoreHandle<cuda::Array>(
           memory, [&](auto* handle) { return CU(cuda, cuArray3DCreate_v2)(handle, &shape); });
     },
     [](const CudaLibrary& cuda, uint64_t memory) {
       return CU(cuda, cuArrayDestroy)(reinterpret_cast<cuda::Array>(memory));
     }},
    {"MipmappedArray",
     [](const CudaLibrary& cuda, uint64_t bytes, uint64_t* memory) {
       const cuda::Array3DDescriptor shape = ShapeOf(bytes);
       return StoreHandle<cuda::MipmappedArray>(memory, [&](auto* handle) {
         return CU(cuda, cuMipmappedArrayCreate)(handle, &shape, 1);
       });
     },
     [](const CudaLibrary& cuda, uint64_t memory) {
       return CU(cuda, cuMipmappedArrayDestroy)(reinterpret_cast<cuda::MipmappedArray>(memory));
     }},
    {"GraphNode", AllocateByGraph, FreeAndTrim},
};

class OutcomesTest : public LimiterTest, public ::testing::WithParamInterface<MemoryKind> {};
INSTANTIATE_TEST_SUITE_P(Memory, OutcomesTest, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(OutcomesTest, MemoryCountsUntilItIsFreed) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    uint64_t memory = 0;
    ASSERT_OK(GetParam().allocate(cuda, 40 * kMiB, &memory));
    EXPECT_EQ(node.Held(0), 40 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 40 * kMiB + kContextBytes);
    ASSERT_OK(GetParam().free(cuda, memory));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
  }));
}

TEST_P(OutcomesTest, ARefusedAllocationIsNotCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    uint64_t memory = 0, other = 0;
    ASSERT_OK(GetParam().allocate(cuda, 60 * kMiB, &memory));
    EXPECT_EQ(GetParam().allocate(cuda, 60 * kMiB, &other), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + kContextBytes);
    EXPECT_OK(GetParam().allocate(cuda, 40 * kMiB, &other));
  }));
  EXPECT_EQ(node.usage(0).refused, 1u);
}

TEST_P(OutcomesTest, AFailureOfTheDriverIsNotCharged) {
  LimitedNode node({0});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    uint64_t memory = 0, other = 0;
    ASSERT_OK(GetParam().allocate(cuda, 3000 * kMiB, &memory)) << "counted, not limited";
    EXPECT_EQ(GetParam().allocate(cuda, 3000 * kMiB, &other), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 3000 * kMiB);
    ASSERT_OK(GetParam().free(cuda, memory));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

TEST_P(OutcomesTest, ASecondFreeChangesNothing) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    uint64_t memory = 0, kept = 0;
    ASSERT_OK(GetParam().allocate(cuda, 40 * kMiB, &kept));
    ASSERT_OK(GetParam().allocate(cuda, 20 * kMiB, &memory));
    ASSERT_OK(GetParam().free(cuda, memory));
    EXPECT_NE(GetParam().free(cuda, memory), Result::kSuccess);
    EXPECT_EQ(node.Held(0), 40 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 40 * kMiB + kContextBytes);
  }));
}

TEST_P(OutcomesTest, AFreeOfMemoryAllocatedWithoutTheLimiterChangesNothing) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    MakeContext(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    uint64_t ours = 0, foreign = 0;
    ASSERT_OK(GetParam().allocate(cuda, 40 * kMiB, &ours));
    ASSERT_OK(GetParam().allocate(real, 20 * kMiB, &foreign));
    EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + kContextBytes);
    EXPECT_OK(GetParam().free(cuda, foreign));
    EXPECT_EQ(node.Held(0), 40 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 40 * kMiB + kContextBytes);
    ASSERT_OK(GetParam().free(cuda, ours));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

}  // namespace
}  // namespace tessera::limiter
