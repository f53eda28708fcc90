// SPDX-License-Identifier: Apache-2.0
// The charge of memory of graphs with allocation nodes, on the simulated driver.
#include <random>
#include <thread>
#include <vector>

#include "src/limiter/testing/limiter_fixture.h"

namespace tessera::limiter {
namespace {

using cuda::Context;
using cuda::CudaLibrary;
using cuda::DevicePtr;
using cuda::Graph;
using cuda::GraphExec;
using cuda::GraphNode;
using cuda::Result;
using cuda::Stream;
using testing::kContextBytes;
using testing::kMiB;
using testing::LimitedNode;
using testing::LimiterTest;

class LimitedGraphTest : public LimiterTest {};

// A program with a graph.
struct Program {
  explicit Program(const CudaLibrary& library) : cuda(library) {
    EXPECT_OK(CU(cuda, cuInit)(0));
    EXPECT_OK(CU(cuda, cuCtxCreate_v2)(&context, 0, 0));
    EXPECT_OK(CU(cuda, cuStreamCreate)(&stream, 1));
    EXPECT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
  }
  // Adds an allocation after the node `from`.
  DevicePtr Alloc(uint64_t bytes, GraphNode from, GraphNode* node) const {
    cuda::MemAllocNodeParameters parameters{.pool = {.alloc_type = 1, .location = {1, device}},
                                            .bytes = bytes};
    EXPECT_OK(CU(cuda, cuGraphAddMemAllocNode)(node, graph, &from, from != nullptr, &parameters));
    return parameters.pointer;
  }
  DevicePtr Alloc(uint64_t bytes) { return Alloc(bytes, last, &last); }
  void Free(DevicePtr pointer) {
    const GraphNode from = last;
    EXPECT_OK(CU(cuda, cuGraphAddMemFreeNode)(&last, graph, &from, from != nullptr, pointer));
  }
  GraphExec Instantiate() const {
    GraphExec exec = nullptr;
    EXPECT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    return exec;
  }
  Result Launch(GraphExec exec) const {
    const Result result = CU(cuda, cuGraphLaunch)(exec, stream);
    EXPECT_OK(CU(cuda, cuStreamSynchronize)(stream));
    return result;
  }

  const CudaLibrary& cuda;
  Context context = nullptr;
  Stream stream = nullptr;
  Graph graph = nullptr;
  GraphNode last = nullptr;
  cuda::Device device = 0;  // of added nodes
};

TEST_F(LimitedGraphTest, MemoryThatTheDriverKeepsForGraphsIsCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    program.Free(program.Alloc(60 * kMiB));
    const GraphExec exec = program.Instantiate();
    EXPECT_EQ(node.Held(0), 0u);
    for (int i = 0; i < 3; ++i) {
      EXPECT_OK(program.Launch(exec));
      EXPECT_EQ(node.Held(0), 60 * kMiB);
      EXPECT_EQ(node.DeviceBytes(0), 60 * kMiB + kContextBytes);
    }
    EXPECT_OK(CU(cuda, cuGraphExecDestroy)(exec));
    EXPECT_EQ(CU(cuda, cuGraphExecDestroy)(exec), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 60 * kMiB) << "the driver keeps the memory";
    EXPECT_OK(CU(cuda, cuDeviceGraphMemTrim)(0));
    EXPECT_EQ(node.Held(0), 0u);
  }));
  EXPECT_EQ(node.usage(0).refused, 0u);
}

TEST_F(LimitedGraphTest, ALaunchBeyondTheLimitIsRefusedAndTakesNothing) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    DevicePtr other = 0;
    program.Free(program.Alloc(60 * kMiB));
    const GraphExec exec = program.Instantiate();
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&other, 50 * kMiB));
    EXPECT_EQ(program.Launch(exec), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuGraphUpload)(exec, program.stream), Result::kOutOfMemory);
    EXPECT_EQ(node.DeviceBytes(0), 50 * kMiB + kContextBytes);
    EXPECT_EQ(node.Held(0), 50 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(other));
    EXPECT_OK(CU(cuda, cuGraphUpload)(exec, program.stream));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_OK(program.Launch(exec));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
  }));
  EXPECT_EQ(node.usage(0).refused, 2u);
  EXPECT_LE(node.usage(0).peak, 100 * kMiB);
}

TEST_F(LimitedGraphTest, AResetOfThePrimaryContextEndsTheChargeOfGraphMemory) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Context primary = nullptr;
    Program program(cuda);
    ASSERT_OK(CU(cuda, cuCtxDestroy_v2)(program.context));
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&primary, 0));
    ASSERT_OK(CU(cuda, cuCtxSetCurrent)(primary));
    ASSERT_OK(CU(cuda, cuStreamCreate)(&program.stream, 1));
    program.Alloc(60 * kMiB);
    ASSERT_OK(program.Launch(program.Instantiate()));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    ASSERT_OK(CU(cuda, cuDevicePrimaryCtxReset_v2)(0));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), 0u);
  }));
}

TEST_F(LimitedGraphTest, IdleMemoryOfGraphsIsReturnedBeforeAnAllocationIsRefused) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    DevicePtr other = 0;
    program.Free(program.Alloc(60 * kMiB));
    const GraphExec exec = program.Instantiate();
    EXPECT_OK(program.Launch(exec));
    EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&other, 90 * kMiB));
    EXPECT_EQ(node.Held(0), 90 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 90 * kMiB + kContextBytes);
    EXPECT_EQ(program.Launch(exec), Result::kOutOfMemory) << "the graph needs its memory again";
    EXPECT_OK(CU(cuda, cuMemFree_v2)(other));
    EXPECT_OK(program.Launch(exec));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
  }));
}

TEST_F(LimitedGraphTest, MemoryIsChargedToTheGpuOfTheNodes) {
  LimitedNode node({100 * kMiB, 50 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    program.device = 1;
    program.Free(program.Alloc(40 * kMiB));
    const GraphExec exec = program.Instantiate();
    EXPECT_OK(program.Launch(exec));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.Held(1), 40 * kMiB);
    EXPECT_OK(CU(cuda, cuDeviceGraphMemTrim)(0));
    EXPECT_EQ(node.Held(1), 40 * kMiB);
    EXPECT_OK(CU(cuda, cuDeviceGraphMemTrim)(1));
    EXPECT_EQ(node.Held(1), 0u);
    node.SetMemory(1, 30 * kMiB);
    EXPECT_EQ(program.Launch(exec), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuDeviceGraphMemTrim)(2), Result::kInvalidDevice);
  }));
}

// A launch into another stream may allocate again.
TEST_F(LimitedGraphTest, ALaunchIntoAnotherStreamIsCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    DevicePtr other = 0;
    program.Free(program.Alloc(60 * kMiB));
    const GraphExec exec = program.Instantiate();
    EXPECT_OK(program.Launch(exec));
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&other, 40 * kMiB));
    EXPECT_OK(program.Launch(exec)) << "the graph has its memory";
    ASSERT_OK(CU(cuda, cuStreamCreate)(&program.stream, 1));
    EXPECT_OK(program.Launch(exec)) << "idle memory is returned, and allocated again";
    EXPECT_EQ(node.Held(0), 100 * kMiB);
    EXPECT_EQ(node.DeviceBytes(0), 100 * kMiB + kContextBytes);
  }));
  EXPECT_EQ(node.usage(0).refused, 0u);
  EXPECT_LE(node.usage(0).peak, 100 * kMiB);
}

TEST_F(LimitedGraphTest, NodesThatShareMemoryCountOnce) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    for (int i = 0; i < 10; ++i) program.Free(program.Alloc(60 * kMiB));
    const GraphExec exec = program.Instantiate();
    EXPECT_OK(program.Launch(exec));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_OK(CU(cuda, cuGraphExecDestroy)(exec));
  }));
  EXPECT_EQ(node.usage(0).refused, 0u);
}

// Branches that may run concurrently share no memory. The limiter sees this only in the bytes that
// the driver has allocated.
TEST_F(LimitedGraphTest, AGraphThatExceedsTheLimitAfterItsUploadDoesNotRun) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    for (int i = 0; i < 2; ++i) {
      program.last = nullptr;
      program.Free(program.Alloc(60 * kMiB));
    }
    const GraphExec exec = program.Instantiate();
    EXPECT_EQ(program.Launch(exec), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.DeviceBytes(0), kContextBytes);
    EXPECT_OK(CU(cuda, cuGraphExecDestroy)(exec));
  }));
  EXPECT_EQ(node.usage(0).refused, 1u);
}

TEST_F(LimitedGraphTest, AnInstantiationThatUploadsIsRefusedLikeALaunch) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    DevicePtr other = 0;
    GraphExec exec = nullptr;
    program.Free(program.Alloc(60 * kMiB));
    cuda::GraphInstantiateParameters parameters{};
    parameters.flags = cuda::kInstantiateUpload;
    parameters.upload_stream = program.stream;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&other, 50 * kMiB));
    EXPECT_EQ(CU(cuda, cuGraphInstantiateWithParams)(&exec, program.graph, &parameters),
              Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 50 * kMiB);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(other));
    EXPECT_OK(CU(cuda, cuGraphInstantiateWithParams)(&exec, program.graph, &parameters));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
    EXPECT_OK(CU(cuda, cuGraphExecDestroy)(exec));
  }));
}

TEST_F(LimitedGraphTest, ALaunchThatTheDriverRefusesIsNotCharged) {
  LimitedNode node({3900 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    DevicePtr other = 0;
    const DevicePtr pointer = program.Alloc(200 * kMiB);
    const GraphExec exec = program.Instantiate();
    // Another tenant without a limit allocates nearly all of the GPU.
    ASSERT_OK(CU(real, cuMemAlloc_v2)(&other, 3900 * kMiB));
    EXPECT_EQ(program.Launch(exec), Result::kOutOfMemory);
    EXPECT_EQ(CU(cuda, cuGraphUpload)(exec, program.stream), Result::kOutOfMemory);
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.usage(0).pending[0], 0u) << "the reservation of the graph has ended";
    ASSERT_OK(CU(real, cuMemFree_v2)(other));
    EXPECT_OK(program.Launch(exec));
    EXPECT_EQ(program.Launch(exec), Result::kInvalidValue)
        << "the memory of the graph is not freed yet";
    EXPECT_EQ(node.Held(0), 200 * kMiB);
    EXPECT_OK(CU(cuda, cuMemFree_v2)(pointer));
    EXPECT_EQ(CU(cuda, cuMemFree_v2)(pointer), Result::kInvalidValue);
    EXPECT_EQ(node.Held(0), 200 * kMiB) << "the driver keeps the memory";
    EXPECT_EQ(CU(cuda, cuGraphLaunch)(nullptr, program.stream), Result::kInvalidValue);
  }));
  EXPECT_EQ(node.usage(0).refused, 0u);
}

TEST_F(LimitedGraphTest, CapturedAllocationsAreChargedWhenTheyAreLaunched) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    DevicePtr other = 0, pointer = 0;
    GraphExec exec = nullptr;
    ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&other, 50 * kMiB));
    ASSERT_OK(CU(cuda, cuStreamBeginCapture_v2)(program.stream, 0));
    EXPECT_OK(CU(cuda, cuMemAllocAsync)(&pointer, 60 * kMiB, program.stream));
    EXPECT_OK(CU(cuda, cuMemFreeAsync)(pointer, program.stream));
    ASSERT_OK(CU(cuda, cuStreamEndCapture)(program.stream, &program.graph));
    EXPECT_EQ(node.Held(0), 50 * kMiB);
    ASSERT_OK(CU(cuda, cuGraphInstantiate_v2)(&exec, program.graph, nullptr, nullptr, 0));
    EXPECT_EQ(program.Launch(exec), Result::kOutOfMemory);
    ASSERT_OK(CU(cuda, cuMemFree_v2)(other));
    EXPECT_OK(program.Launch(exec));
    EXPECT_EQ(node.Held(0), 60 * kMiB);
  }));
}

TEST_F(LimitedGraphTest, GraphsOfAnotherLibraryAreNotCharged) {
  LimitedNode node({100 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    Program program(cuda);
    const CudaLibrary real(node.node().library("libcuda.so.1"));
    program.Free(program.Alloc(200 * kMiB));
    GraphExec exec = nullptr;
    EXPECT_OK(CU(real, cuGraphInstantiateWithFlags)(&exec, program.graph, 0))
        << "instantiated by a library that calls the driver directly";
    EXPECT_OK(program.Launch(exec));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_OK(CU(cuda, cuGraphExecDestroy)(exec));
    EXPECT_EQ(node.Held(0), 0u);
  }));
}

// Launches its own graphs, trims and allocates at random.
void Churn(const CudaLibrary& cuda, Context context, unsigned seed) {
  ASSERT_OK(CU(cuda, cuCtxSetCurrent)(context));
  std::mt19937 random(seed);
  Stream streams[2] = {};
  for (Stream& stream : streams) ASSERT_OK(CU(cuda, cuStreamCreate)(&stream, 1));
  for (int i = 0; i < 40; ++i) {
    Graph graph = nullptr;
    GraphExec exec = nullptr;
    GraphNode last = nullptr;
    ASSERT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
    for (unsigned nodes = 1 + random() % 4; nodes > 0; --nodes) {
      cuda::MemAllocNodeParameters parameters{.pool = {.alloc_type = 1, .location = {1, 0}},
                                              .bytes = 1 + random() % (12 * kMiB)};
      const GraphNode from = random() % 3 == 0 ? nullptr : last;
      ASSERT_OK(
          CU(cuda, cuGraphAddMemAllocNode)(&last, graph, &from, from != nullptr, &parameters));
      const GraphNode alloc = last;
      ASSERT_OK(CU(cuda, cuGraphAddMemFreeNode)(&last, graph, &alloc, 1, parameters.pointer));
    }
    ASSERT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    for (unsigned launches = random() % 4; launches > 0; --launches) {
      const Stream stream = streams[random() % 2];
      const Result result = CU(cuda, cuGraphLaunch)(exec, stream);
      ASSERT_TRUE(result == Result::kSuccess || result == Result::kOutOfMemory) << int(result);
      DevicePtr pointer = 0;
      if (CU(cuda, cuMemAlloc_v2)(&pointer, 1 + random() % (40 * kMiB)) == Result::kSuccess) {
        ASSERT_OK(CU(cuda, cuMemFree_v2)(pointer));
      }
      ASSERT_OK(CU(cuda, cuStreamSynchronize)(stream));
    }
    if (random() % 4 == 0) {
      ASSERT_OK(CU(cuda, cuDeviceGraphMemTrim)(0));
    }
    ASSERT_OK(CU(cuda, cuGraphExecDestroy)(exec));
    ASSERT_OK(CU(cuda, cuGraphDestroy)(graph));
  }
}

TEST_F(LimitedGraphTest, RandomCallsOfManyThreadsAreCountedAsTheDeviceCountsThem) {
  LimitedNode node({60 * kMiB});
  EXPECT_TRUE(node.Run([&](const CudaLibrary& cuda) {
    const Program program(cuda);
    for (unsigned round = 0; round < 10; ++round) {
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < 4; ++t) {
        threads.emplace_back(
            [&cuda, &program, seed = round * 4 + t] { Churn(cuda, program.context, seed); });
      }
      for (std::thread& thread : threads) thread.join();
      ASSERT_EQ(node.Held(0), node.DeviceBytes(0) - kContextBytes) << "round " << round;
    }
    EXPECT_OK(CU(cuda, cuDeviceGraphMemTrim)(0));
    EXPECT_EQ(node.Held(0), 0u);
    EXPECT_EQ(node.usage(0).pending[0], 0u);
  }));
  EXPECT_GT(node.usage(0).refused, 0u) << "the limit was never reached";
}

}  // namespace
}  // namespace tessera::limiter
