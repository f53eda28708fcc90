// SPDX-License-Identifier: Apache-2.0
// Graphs that allocate memory by nodes or by captured calls, as PyTorch does.
#include <gtest/gtest.h>

#include <vector>

#include "src/sim/cuda/one_gpu_test.h"

namespace tessera::cuda {
namespace {

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class GraphMemoryTest : public OneGpuTest {
 protected:
  void SetUp() override {
    ASSERT_OK(CU(*cuda_, cuGraphCreate)(&graph_, 0));
    ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream_, 1));
  }
  void TearDown() override {
    if (graph_ != nullptr) {
      EXPECT_OK(CU(*cuda_, cuGraphDestroy)(graph_));
    }
    EXPECT_OK(CU(*cuda_, cuStreamDestroy_v2)(stream_));
    EXPECT_OK(CU(*cuda_, cuDeviceGraphMemTrim)(0));
    OneGpuTest::TearDown();
  }

  static uint64_t Attribute(int attribute) {
    uint64_t value = 0;
    EXPECT_OK(CU(*cuda_, cuDeviceGetGraphMemAttribute)(0, attribute, &value));
    return value;
  }
  // Adds a node after the last node.
  DevicePtr Alloc(uint64_t bytes) {
    MemAllocNodeParameters parameters{.pool = {.alloc_type = 1, .location = {1, 0}},
                                      .bytes = bytes};
    GraphNode node = nullptr;
    EXPECT_OK(
        CU(*cuda_, cuGraphAddMemAllocNode)(&node, graph_, &last_, last_ != nullptr, &parameters));
    last_ = node;
    return parameters.pointer;
  }
  Result Free(DevicePtr pointer) {
    GraphNode node = nullptr;
    const Result result =
        CU(*cuda_, cuGraphAddMemFreeNode)(&node, graph_, &last_, last_ != nullptr, pointer);
    if (result == Result::kSuccess) last_ = node;
    return result;
  }
  GraphExec Instantiate(unsigned flags = 0) {
    GraphExec exec = nullptr;
    EXPECT_OK(CU(*cuda_, cuGraphInstantiateWithFlags)(&exec, graph_, flags));
    return exec;
  }
  Result Launch(GraphExec exec) { return CU(*cuda_, cuGraphLaunch)(exec, stream_); }
  void Synchronize() { EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(stream_)); }

  Graph graph_ = nullptr;
  Stream stream_ = nullptr;
  GraphNode last_ = nullptr;
};

TEST_F(GraphMemoryTest, MemoryIsAllocatedAtTheFirstLaunchAndKeptUntilATrim) {
  const DevicePtr first = Alloc(20 * kMiB);
  EXPECT_OK(Free(first));
  const DevicePtr second = Alloc(10 * kMiB);
  EXPECT_NE(first, second);
  EXPECT_OK(Free(second));
  const GraphExec exec = Instantiate();
  EXPECT_EQ(UsedBytes(), 0u);
  EXPECT_OK(Launch(exec));
  EXPECT_EQ(UsedBytes(), 20 * kMiB) << "the second node reuses the memory of the first";
  EXPECT_EQ(Attribute(kGraphMemReserved), 20 * kMiB);
  EXPECT_EQ(Attribute(kGraphMemUsed), 0u);
  EXPECT_OK(Launch(exec));
  Synchronize();
  EXPECT_EQ(UsedBytes(), 20 * kMiB);
  EXPECT_OK(CU(*cuda_, cuDeviceGraphMemTrim)(0));
  EXPECT_EQ(UsedBytes(), 0u);
  EXPECT_OK(CU(*cuda_, cuGraphUpload)(exec, stream_));
  EXPECT_EQ(UsedBytes(), 20 * kMiB);
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  EXPECT_EQ(Attribute(kGraphMemReserved), 20 * kMiB) << "kept for other graphs";
  EXPECT_OK(CU(*cuda_, cuDeviceGraphMemTrim)(0));
  EXPECT_EQ(Attribute(kGraphMemReserved), 0u);
  EXPECT_EQ(Attribute(kGraphMemReservedHigh), 20 * kMiB);
  uint64_t zero = 0;
  EXPECT_OK(CU(*cuda_, cuDeviceSetGraphMemAttribute)(0, kGraphMemReservedHigh, &zero));
  EXPECT_EQ(Attribute(kGraphMemReservedHigh), 0u);
}

TEST_F(GraphMemoryTest, TheProgramFreesAllocationsThatAGraphLeaves) {
  const DevicePtr pointer = Alloc(20 * kMiB);
  const GraphExec exec = Instantiate();
  EXPECT_EQ(CU(*cuda_, cuMemFree_v2)(pointer), Result::kInvalidValue) << "not allocated yet";
  EXPECT_OK(Launch(exec));
  EXPECT_EQ(Attribute(kGraphMemUsed), 20 * kMiB);
  EXPECT_EQ(Launch(exec), Result::kInvalidValue) << "the memory is still allocated";
  EXPECT_OK(CU(*cuda_, cuMemsetD8_v2)(pointer, 7, 20 * kMiB));
  Synchronize();
  EXPECT_OK(CU(*cuda_, cuDeviceGraphMemTrim)(0));
  EXPECT_EQ(UsedBytes(), 20 * kMiB) << "the memory is in use";
  EXPECT_OK(CU(*cuda_, cuMemFreeAsync)(pointer, stream_));
  EXPECT_EQ(CU(*cuda_, cuMemFree_v2)(pointer), Result::kInvalidValue);
  EXPECT_OK(Launch(exec));
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(graph_));
  graph_ = nullptr;
  char value = 0;
  EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(&value, pointer, 1)) << "the memory outlives its graph";
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(pointer));
  EXPECT_EQ(CU(*cuda_, cuMemcpyDtoH_v2)(&value, pointer, 1), Result::kInvalidValue);
}

TEST_F(GraphMemoryTest, AnInstanceMayFreeAllocationsOfItsLastLaunch) {
  Alloc(20 * kMiB);
  const GraphExec exec = Instantiate(kInstantiateAutoFree);
  EXPECT_OK(Launch(exec));
  EXPECT_OK(Launch(exec));
  EXPECT_EQ(Attribute(kGraphMemUsed), 20 * kMiB);
  Synchronize();
  GraphExec other = nullptr;
  EXPECT_EQ(CU(*cuda_, cuGraphInstantiateWithFlags)(&other, graph_, 0), Result::kNotSupported)
      << "a graph has one instance at a time";
  Graph clone = nullptr;
  EXPECT_EQ(CU(*cuda_, cuGraphClone)(&clone, graph_), Result::kNotSupported);
  MemAllocNodeParameters parameters{};
  EXPECT_OK(CU(*cuda_, cuGraphMemAllocNodeGetParams)(last_, &parameters));
  EXPECT_EQ(parameters.bytes, 20 * kMiB);
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(parameters.pointer));
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
}

TEST_F(GraphMemoryTest, CapturedAllocationsBecomeNodes) {
  ASSERT_OK(CU(*cuda_, cuGraphDestroy)(graph_));
  DevicePtr pointer = 0;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  ASSERT_OK(CU(*cuda_, cuMemAllocAsync)(&pointer, 20 * kMiB, stream_));
  ASSERT_OK(CU(*cuda_, cuMemsetD8Async)(pointer, 7, 20 * kMiB, stream_));
  ASSERT_OK(CU(*cuda_, cuMemFreeAsync)(pointer, stream_));
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &graph_));
  EXPECT_EQ(UsedBytes(), 0u);
  GraphNode nodes[4] = {};
  size_t count = 4;
  ASSERT_OK(CU(*cuda_, cuGraphGetNodes)(graph_, nodes, &count));
  ASSERT_EQ(count, 3u);
  GraphNodeType type{};
  EXPECT_OK(CU(*cuda_, cuGraphNodeGetType)(nodes[2], &type));
  EXPECT_EQ(type, GraphNodeType::kMemFree);
  DevicePtr freed = 0;
  EXPECT_OK(CU(*cuda_, cuGraphMemFreeNodeGetParams)(nodes[2], &freed));
  EXPECT_EQ(freed, pointer);
  const GraphExec exec = Instantiate();
  EXPECT_OK(Launch(exec));
  EXPECT_OK(Launch(exec));
  Synchronize();
  EXPECT_EQ(UsedBytes(), 20 * kMiB);
  EXPECT_EQ(*reinterpret_cast<const char*>(pointer + 5), 7);
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
}

TEST_F(GraphMemoryTest, TheEndOfTheLastContextFreesMemoryThatLaunchesHaveLeft) {
  Alloc(20 * kMiB);
  ASSERT_OK(Launch(Instantiate()));
  Synchronize();
  EXPECT_EQ(UsedBytes(), 20 * kMiB);
  ASSERT_OK(CU(*cuda_, cuDevicePrimaryCtxReset_v2)(0));
  EXPECT_EQ(node_->state().UsedBytes(0), 0u);
  Context context = nullptr;
  ASSERT_OK(CU(*cuda_, cuDevicePrimaryCtxRetain)(&context, 0));
  ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(context));
  EXPECT_EQ(Attribute(kGraphMemReserved), 0u);
  ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream_, 1));
}

TEST_F(GraphMemoryTest, InvalidCallsAreRefused) {
  const DevicePtr pointer = Alloc(900 * kMiB);
  EXPECT_EQ(Free(pointer + 512), Result::kInvalidValue);
  const GraphExec exec = Instantiate();
  DevicePtr other = 0;
  ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&other, 10 * kMiB));
  EXPECT_EQ(CU(*cuda_, cuGraphUpload)(exec, stream_), Result::kOutOfMemory);
  EXPECT_EQ(Launch(exec), Result::kOutOfMemory);
  EXPECT_EQ(UsedBytes(), 10 * kMiB);
  ASSERT_OK(CU(*cuda_, cuMemFree_v2)(other));
  EXPECT_OK(Launch(exec));
  EXPECT_OK(CU(*cuda_, cuMemFree_v2)(pointer));
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  uint64_t value = 1;
  EXPECT_EQ(CU(*cuda_, cuDeviceGetGraphMemAttribute)(1, 0, &value), Result::kInvalidDevice);
  EXPECT_EQ(CU(*cuda_, cuDeviceGetGraphMemAttribute)(0, 4, &value), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuDeviceSetGraphMemAttribute)(0, 1, &value), Result::kInvalidValue);
}

}  // namespace
}  // namespace tessera::cuda
