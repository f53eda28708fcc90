// SPDX-License-Identifier: Apache-2.0
// Graphs that are created node by node and by capture.
#include "src/sim/cuda/graph/graph_test.h"

#include <vector>

namespace tessera::cuda {
namespace {

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
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(graph)) << "an instance does not need its graph";
  Run(exec);
  EXPECT_EQ(Y(), 3.0f);
  Run(exec);
  EXPECT_EQ(Y(), 6.0f);
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  EXPECT_EQ(CU(*cuda_, cuGraphLaunch)(exec, stream_), Result::kInvalidValue);
}

TEST_F(GraphTest, OtherStreamsJoinACaptureByEventsAndMustRejoin) {
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

TEST_F(GraphTest, AGraphRunsInTheOrderOfItsDependencies) {
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
      << "a cycle";
  const MemsetNodeParameters of_fill{y_, 0, 0x40000000, 4, 1, 1};  // 2.0f
  ASSERT_OK(CU(*cuda_, cuGraphAddMemsetNode)(&fill, graph, &late, 1, &of_fill, context_));
  int n = 1;
  float a = 5;
  void* parameters[] = {&n, &a, &x_, &y_};
  KernelNodeParameters of_kernel{.function = saxpy_, .parameters = parameters};
  of_kernel.grid_x = of_kernel.grid_y = of_kernel.grid_z = 1;
  of_kernel.block_x = of_kernel.block_y = of_kernel.block_z = 1;
  ASSERT_OK(CU(*cuda_, cuGraphAddKernelNode_v2)(&kernel, graph, &fill, 1, &of_kernel));
  a = 0;  // the node has a copy of the old value
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
