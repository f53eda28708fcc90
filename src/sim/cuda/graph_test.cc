// SPDX-License-Identifier: Apache-2.0
// Graphs made by hand and by capture, as programs use them.
#include <gtest/gtest.h>

#include <vector>

#include "src/sim/cuda/cuda_library.h"
#include "src/sim/testing/sim_node.h"

namespace tessera::cuda {
namespace {

constexpr char kNode[] = "base: a100-sxm4-80gb\nnode:\n  gpus: 1\n  nvlink: none\n";
constexpr char kPtx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry _Z5saxpyifPKfPf(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) "
    "{ ret; }\n.visible .entry slow() { ret; }\n";

#define EXPECT_OK(call) EXPECT_EQ(call, Result::kSuccess)
#define ASSERT_OK(call) ASSERT_EQ(call, Result::kSuccess)

class GraphTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("SIMGPU_KERNEL_NS", "slow=20000000", 1);
    node_ = new sim::testing::SimNode({.profile = kNode});
    cuda_ = new CudaLibrary(node_->library("libcuda.so.1"));
    ASSERT_OK(CU(*cuda_, cuInit)(0));
    ASSERT_OK(CU(*cuda_, cuDevicePrimaryCtxRetain)(&context_, 0));
  }
  static void TearDownTestSuite() {
    delete cuda_;
    delete node_;
  }
  void SetUp() override {
    Module module = nullptr;
    ASSERT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
    ASSERT_OK(CU(*cuda_, cuModuleLoadData)(&module, kPtx));
    ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&saxpy_, module, "_Z5saxpyifPKfPf"));
    ASSERT_OK(CU(*cuda_, cuModuleGetFunction)(&slow_, module, "slow"));
    ASSERT_OK(CU(*cuda_, cuStreamCreate)(&stream_, 1));
    ASSERT_OK(CU(*cuda_, cuStreamCreate)(&other_, 1));
    ASSERT_OK(CU(*cuda_, cuEventCreate)(&fork_, 0));
    ASSERT_OK(CU(*cuda_, cuEventCreate)(&join_, 0));
    ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&x_, sizeof(float)));
    ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&y_, sizeof(float)));
    ASSERT_OK(CU(*cuda_, cuMemsetD32_v2)(x_, 0x3f800000, 1));  // 1.0f
    ASSERT_OK(CU(*cuda_, cuMemsetD32_v2)(y_, 0, 1));
    ASSERT_OK(CU(*cuda_, cuCtxSynchronize)());
  }
  // y += a * x, in the stream.
  Result AddTo(Stream stream, float a) {
    int n = 1;
    void* parameters[] = {&n, &a, &x_, &y_};
    return CU(*cuda_, cuLaunchKernel)(saxpy_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
  }
  float Y() {
    float value = -1;
    EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(&value, y_, sizeof(value)));
    return value;
  }
  GraphExec Instance(Graph graph) {
    GraphExec exec = nullptr;
    EXPECT_OK(CU(*cuda_, cuGraphInstantiateWithFlags)(&exec, graph, 0));
    return exec;
  }
  void Run(GraphExec exec) {
    EXPECT_OK(CU(*cuda_, cuGraphLaunch)(exec, stream_));
    EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(stream_));
  }

  static inline sim::testing::SimNode* node_ = nullptr;
  static inline CudaLibrary* cuda_ = nullptr;
  static inline Context context_ = nullptr;
  Function saxpy_ = nullptr, slow_ = nullptr;
  Stream stream_ = nullptr, other_ = nullptr;
  Event fork_ = nullptr, join_ = nullptr;
  DevicePtr x_ = 0, y_ = 0;
};

TEST_F(GraphTest, ACapturedStreamDoesNothingUntilItsGraphIsLaunched) {
  Graph graph = nullptr;
  int status = -1;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  EXPECT_OK(AddTo(stream_, 1));
  EXPECT_OK(CU(*cuda_, cuStreamIsCapturing)(stream_, &status));
  EXPECT_EQ(status, 1);
  EXPECT_OK(AddTo(stream_, 2));
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &graph));
  EXPECT_OK(CU(*cuda_, cuStreamIsCapturing)(stream_, &status));
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Y(), 0.0f);
  const GraphExec exec = Instance(graph);
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(graph)) << "an instance lives on its own";
  Run(exec);
  EXPECT_EQ(Y(), 3.0f);
  Run(exec);
  EXPECT_EQ(Y(), 6.0f);
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  EXPECT_EQ(CU(*cuda_, cuGraphLaunch)(exec, stream_), Result::kInvalidValue);
}

TEST_F(GraphTest, OtherStreamsJoinACaptureByEventsAndMustComeBack) {
  Graph graph = nullptr;
  for (const bool back : {true, false}) {
    ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
    EXPECT_OK(AddTo(stream_, 1));
    EXPECT_OK(CU(*cuda_, cuEventRecord)(fork_, stream_));
    EXPECT_OK(CU(*cuda_, cuStreamWaitEvent)(other_, fork_, 0));
    EXPECT_OK(AddTo(other_, 2));
    EXPECT_OK(CU(*cuda_, cuEventRecord)(join_, other_));
    if (back) {
      EXPECT_OK(CU(*cuda_, cuStreamWaitEvent)(stream_, join_, 0));
    }
    EXPECT_EQ(CU(*cuda_, cuEventQuery)(join_), Result::kCapturedEvent);
    EXPECT_EQ(CU(*cuda_, cuStreamEndCapture)(stream_, &graph),
              back ? Result::kSuccess : Result::kStreamCaptureUnjoined);
    if (back) Run(Instance(graph));
  }
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(Y(), 3.0f);
}

TEST_F(GraphTest, WaitingForACapturedStreamEndsItsCapture) {
  Graph graph = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  EXPECT_EQ(CU(*cuda_, cuStreamSynchronize)(stream_), Result::kStreamCaptureUnsupported);
  EXPECT_EQ(AddTo(stream_, 1), Result::kStreamCaptureInvalidated);
  EXPECT_EQ(CU(*cuda_, cuStreamEndCapture)(stream_, &graph), Result::kStreamCaptureInvalidated);
  EXPECT_OK(AddTo(stream_, 1));
  EXPECT_EQ(CU(*cuda_, cuStreamBeginCapture_v2)(nullptr, 0), Result::kStreamCaptureUnsupported);
}

TEST_F(GraphTest, AGraphMadeByHandRunsInTheOrderOfItsDependencies) {
  static std::vector<int> order;
  static int first = 1, second = 2;
  order.clear();
  const auto note = [](void* what) { order.push_back(*static_cast<int*>(what)); };
  Graph graph = nullptr;
  GraphNode late = nullptr, early = nullptr, kernel = nullptr, fill = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&graph, 0));
  const HostNodeParameters of_late{note, &second}, of_early{note, &first};
  ASSERT_OK(CU(*cuda_, cuGraphAddHostNode)(&late, graph, nullptr, 0, &of_late));
  ASSERT_OK(CU(*cuda_, cuGraphAddHostNode)(&early, graph, nullptr, 0, &of_early));
  ASSERT_OK(CU(*cuda_, cuGraphAddDependencies)(graph, &early, &late, 1));
  EXPECT_EQ(CU(*cuda_, cuGraphAddDependencies)(graph, &late, &early, 1), Result::kInvalidValue)
      << "a circle";
  const MemsetNodeParameters of_fill{y_, 0, 0x40000000, 4, 1, 1};  // 2.0f
  ASSERT_OK(CU(*cuda_, cuGraphAddMemsetNode)(&fill, graph, &late, 1, &of_fill, context_));
  int n = 1;
  float a = 5;
  void* parameters[] = {&n, &a, &x_, &y_};
  KernelNodeParameters of_kernel{.function = saxpy_, .parameters = parameters};
  of_kernel.grid_x = of_kernel.grid_y = of_kernel.grid_z = 1;
  of_kernel.block_x = of_kernel.block_y = of_kernel.block_z = 1;
  ASSERT_OK(CU(*cuda_, cuGraphAddKernelNode_v2)(&kernel, graph, &fill, 1, &of_kernel));
  a = 0;  // read when the node was added
  size_t count = 0;
  EXPECT_OK(CU(*cuda_, cuGraphGetNodes)(graph, nullptr, &count));
  EXPECT_EQ(count, 4u);
  EXPECT_OK(CU(*cuda_, cuGraphGetRootNodes)(graph, nullptr, &count));
  EXPECT_EQ(count, 1u);
  GraphNodeType type = GraphNodeType::kEmpty;
  EXPECT_OK(CU(*cuda_, cuGraphNodeGetType)(fill, &type));
  EXPECT_EQ(type, GraphNodeType::kMemset);
  Run(Instance(graph));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(Y(), 7.0f);
}

TEST_F(GraphTest, ALaunchTakesTheTimeOfItsNodes) {
  Graph graph = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(CU(*cuda_, cuLaunchKernel)(slow_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr));
  }
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &graph));
  const GraphExec exec = Instance(graph);
  EXPECT_OK(CU(*cuda_, cuEventRecord)(fork_, stream_));
  EXPECT_OK(CU(*cuda_, cuGraphLaunch)(exec, stream_));
  EXPECT_OK(CU(*cuda_, cuEventRecord)(join_, stream_));
  EXPECT_OK(CU(*cuda_, cuEventSynchronize)(join_));
  float milliseconds = 0;
  EXPECT_OK(CU(*cuda_, cuEventElapsedTime)(&milliseconds, fork_, join_));
  EXPECT_NEAR(milliseconds, 40, 1);
}

TEST_F(GraphTest, AnInstanceTakesTheParametersOfAGraphOfTheSameShape) {
  Graph one = nullptr, two = nullptr, longer = nullptr;
  const auto capture = [&](Graph* graph, float a, int launches) {
    ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
    for (int i = 0; i < launches; ++i) EXPECT_OK(AddTo(stream_, a));
    ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, graph));
  };
  capture(&one, 1, 1);
  capture(&two, 10, 1);
  capture(&longer, 1, 2);
  const GraphExec exec = Instance(one);
  int result = -1;
  EXPECT_OK(CU(*cuda_, cuGraphExecUpdate)(exec, two, nullptr, &result));
  EXPECT_EQ(CU(*cuda_, cuGraphExecUpdate)(exec, longer, nullptr, &result),
            Result::kGraphExecUpdateFailure);
  Run(exec);
  EXPECT_EQ(Y(), 10.0f);
}

}  // namespace
}  // namespace tessera::cuda
