// SPDX-License-Identifier: Apache-2.0
// Graphs that are created node by node and by capture.
#include "src/sim/cuda/graph/graph_test.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::cuda {
namespace {

TEST_F(GraphTest, ACapturedStreamDoesNothingUntilItsGraphIsLaunched) {
  Graph graph = nullptr;
  int status = -1;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  EXPECT_OK(LaunchSaxpy(stream_, 1));
  EXPECT_OK(CU(*cuda_, cuStreamIsCapturing)(stream_, &status));
  EXPECT_EQ(status, 1);
  EXPECT_OK(LaunchSaxpy(stream_, 2));
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &graph));
  EXPECT_OK(CU(*cuda_, cuStreamIsCapturing)(stream_, &status));
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReadY(), 0.0f);
  const GraphExec exec = Instantiate(graph);
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(graph)) << "an instance does not need its graph";
  Run(exec);
  EXPECT_EQ(ReadY(), 3.0f);
  Run(exec);
  EXPECT_EQ(ReadY(), 6.0f);
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  EXPECT_EQ(CU(*cuda_, cuGraphLaunch)(exec, stream_), Result::kInvalidValue);
}

TEST_F(GraphTest, OtherStreamsJoinACaptureByEventsAndMustRejoin) {
  Graph graph = nullptr;
  for (const bool rejoins : {true, false}) {
    ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
    EXPECT_OK(LaunchSaxpy(stream_, 1));
    EXPECT_OK(CU(*cuda_, cuEventRecord)(fork_, stream_));
    EXPECT_OK(CU(*cuda_, cuStreamWaitEvent)(second_stream_, fork_, 0));
    EXPECT_OK(LaunchSaxpy(second_stream_, 2));
    EXPECT_OK(CU(*cuda_, cuEventRecord)(join_, second_stream_));
    if (rejoins) {
      EXPECT_OK(CU(*cuda_, cuStreamWaitEvent)(stream_, join_, 0));
    }
    EXPECT_EQ(CU(*cuda_, cuEventQuery)(join_), Result::kCapturedEvent);
    EXPECT_EQ(CU(*cuda_, cuStreamEndCapture)(stream_, &graph),
              rejoins ? Result::kSuccess : Result::kStreamCaptureUnjoined);
    if (rejoins) Run(Instantiate(graph));
  }
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(ReadY(), 3.0f);
}

TEST_F(GraphTest, WaitingForACapturedStreamEndsItsCapture) {
  Graph graph = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  EXPECT_EQ(CU(*cuda_, cuStreamSynchronize)(stream_), Result::kStreamCaptureUnsupported);
  EXPECT_EQ(LaunchSaxpy(stream_, 1), Result::kStreamCaptureInvalidated);
  EXPECT_EQ(CU(*cuda_, cuStreamEndCapture)(stream_, &graph), Result::kStreamCaptureInvalidated);
  EXPECT_OK(LaunchSaxpy(stream_, 1));
  EXPECT_EQ(CU(*cuda_, cuStreamBeginCapture_v2)(nullptr, 0), Result::kStreamCaptureUnsupported);
}

// A capture that is not relaxed forbids unsafe calls to its thread. A global capture forbids them
// to all threads. A thread whose mode is not global obeys fewer captures, or none.
TEST_F(GraphTest, AnUnsafeCallEndsTheCapturesThatForbidIt) {
  static constexpr int kGlobal = 0, kThreadLocal = 1, kRelaxed = 2;
  // Allocates in this thread or in another thread, which has the mode `thread_mode` meanwhile.
  const auto allocate = [this](int thread_mode, bool in_other_thread) {
    Result result = Result::kUnknown;
    const auto call = [&] {
      DevicePtr memory = 0;
      int mode = thread_mode;
      EXPECT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
      EXPECT_OK(CU(*cuda_, cuThreadExchangeStreamCaptureMode)(&mode));
      EXPECT_EQ(mode, kGlobal) << "the default";
      result = CU(*cuda_, cuMemAlloc_v2)(&memory, 1);
      EXPECT_OK(CU(*cuda_, cuThreadExchangeStreamCaptureMode)(&mode));
      EXPECT_EQ(mode, thread_mode);
    };
    in_other_thread ? std::thread(call).join() : call();
    return result;
  };
  for (const int capture_mode : {kGlobal, kThreadLocal, kRelaxed}) {
    for (const int thread_mode : {kGlobal, kThreadLocal, kRelaxed}) {
      for (const bool in_other_thread : {false, true}) {
        const bool forbidden = in_other_thread
                                   ? capture_mode == kGlobal && thread_mode == kGlobal
                                   : capture_mode != kRelaxed && thread_mode != kRelaxed;
        SCOPED_TRACE(::testing::Message()
                     << capture_mode << " " << thread_mode << " " << in_other_thread);
        Graph graph = nullptr;
        ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, capture_mode));
        EXPECT_OK(LaunchSaxpy(stream_, 1));
        EXPECT_EQ(allocate(thread_mode, in_other_thread),
                  forbidden ? Result::kStreamCaptureUnsupported : Result::kSuccess);
        EXPECT_EQ(CU(*cuda_, cuStreamEndCapture)(stream_, &graph),
                  forbidden ? Result::kStreamCaptureInvalidated : Result::kSuccess);
      }
    }
  }
}

TEST_F(GraphTest, UnsafeCallsAreForbiddenDuringACapture) {
  void* host = nullptr;
  ASSERT_OK(CU(*cuda_, cuMemAllocHost_v2)(&host, 1));
  size_t pitch = 0;
  DevicePtr device = 0;
  void* more = nullptr;
  const std::pair<const char*, std::function<Result()>> calls[] = {
      {"cuMemAllocPitch", [&] { return CU(*cuda_, cuMemAllocPitch_v2)(&device, &pitch, 1, 1, 4); }},
      {"cuMemAllocManaged", [&] { return CU(*cuda_, cuMemAllocManaged)(&device, 1, 1); }},
      {"cuMemFree", [&] { return CU(*cuda_, cuMemFree_v2)(x_); }},
      {"cuMemAllocHost", [&] { return CU(*cuda_, cuMemAllocHost_v2)(&more, 1); }},
      {"cuMemFreeHost", [&] { return CU(*cuda_, cuMemFreeHost)(host); }},
      {"cuEventQuery", [&] { return CU(*cuda_, cuEventQuery)(fork_); }},
      {"cuCtxSynchronize", [&] { return CU(*cuda_, cuCtxSynchronize)(); }},
  };
  for (const auto& [name, call] : calls) {
    Graph graph = nullptr;
    ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
    EXPECT_EQ(call(), Result::kStreamCaptureUnsupported) << name;
    EXPECT_EQ(CU(*cuda_, cuStreamEndCapture)(stream_, &graph), Result::kStreamCaptureInvalidated)
        << name;
  }
  EXPECT_OK(CU(*cuda_, cuMemFreeHost)(host));
}

TEST_F(GraphTest, OnlyARelaxedCaptureCanBeEndedByAnotherThread) {
  for (const int mode : {0, 1, 2}) {
    Graph graph = nullptr;
    Result ended = Result::kUnknown;
    ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, mode));
    std::thread([&] {
      EXPECT_OK(CU(*cuda_, cuCtxSetCurrent)(context_));
      ended = CU(*cuda_, cuStreamEndCapture)(stream_, &graph);
    }).join();
    if (mode == 2) {
      EXPECT_OK(ended);
    } else {
      EXPECT_EQ(ended, Result::kStreamCaptureWrongThread);
      EXPECT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &graph));
    }
  }
}

TEST_F(GraphTest, AGraphRunsInTheOrderOfItsDependencies) {
  static std::vector<int> order;
  static int first = 1, second = 2;
  order.clear();
  const auto record_number = [](void* number) { order.push_back(*static_cast<int*>(number)); };
  Graph graph = nullptr;
  GraphNode late = nullptr, early = nullptr, kernel = nullptr, fill = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&graph, 0));
  const HostNodeParameters late_parameters{record_number, &second},
      early_parameters{record_number, &first};
  ASSERT_OK(CU(*cuda_, cuGraphAddHostNode)(&late, graph, nullptr, 0, &late_parameters));
  ASSERT_OK(CU(*cuda_, cuGraphAddHostNode)(&early, graph, nullptr, 0, &early_parameters));
  ASSERT_OK(CU(*cuda_, cuGraphAddDependencies)(graph, &early, &late, 1));
  EXPECT_EQ(CU(*cuda_, cuGraphAddDependencies)(graph, &late, &early, 1), Result::kInvalidValue)
      << "a cycle";
  const MemsetNodeParameters fill_parameters{y_, 0, 0x40000000, 4, 1, 1};  // 2.0f
  ASSERT_OK(CU(*cuda_, cuGraphAddMemsetNode)(&fill, graph, &late, 1, &fill_parameters, context_));
  int n = 1;
  float a = 5;
  void* parameters[] = {&n, &a, &x_, &y_};
  KernelNodeParameters kernel_parameters{.function = saxpy_, .parameters = parameters};
  kernel_parameters.grid_x = kernel_parameters.grid_y = kernel_parameters.grid_z = 1;
  kernel_parameters.block_x = kernel_parameters.block_y = kernel_parameters.block_z = 1;
  ASSERT_OK(CU(*cuda_, cuGraphAddKernelNode_v2)(&kernel, graph, &fill, 1, &kernel_parameters));
  a = 0;  // the node has a copy of the old value
  size_t count = 0;
  EXPECT_OK(CU(*cuda_, cuGraphGetNodes)(graph, nullptr, &count));
  EXPECT_EQ(count, 4u);
  EXPECT_OK(CU(*cuda_, cuGraphGetRootNodes)(graph, nullptr, &count));
  EXPECT_EQ(count, 1u);
  GraphNodeType type = GraphNodeType::kEmpty;
  EXPECT_OK(CU(*cuda_, cuGraphNodeGetType)(fill, &type));
  EXPECT_EQ(type, GraphNodeType::kMemset);
  Run(Instantiate(graph));
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(ReadY(), 7.0f);
}

TEST_F(GraphTest, ALaunchTakesTheTimeOfItsNodes) {
  Graph graph = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(CU(*cuda_, cuLaunchKernel)(slow_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr));
  }
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &graph));
  const GraphExec exec = Instantiate(graph);
  // A pause between two calls lengthens a time, so the shortest of several times counts.
  float least = 1e9;
  for (int i = 0; i < 5; ++i) {
    EXPECT_OK(CU(*cuda_, cuEventRecord)(fork_, stream_));
    EXPECT_OK(CU(*cuda_, cuGraphLaunch)(exec, stream_));
    EXPECT_OK(CU(*cuda_, cuEventRecord)(join_, stream_));
    EXPECT_OK(CU(*cuda_, cuEventSynchronize)(join_));
    float milliseconds = 0;
    EXPECT_OK(CU(*cuda_, cuEventElapsedTime)(&milliseconds, fork_, join_));
    least = std::min(least, milliseconds);
  }
  EXPECT_NEAR(least, 40, 1);
}

TEST_F(GraphTest, AnInstanceTakesTheParametersOfAGraphOfTheSameShape) {
  Graph first = nullptr, second = nullptr, longer = nullptr;
  const auto capture = [&](Graph* graph, float a, int launches) {
    ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
    for (int i = 0; i < launches; ++i) EXPECT_OK(LaunchSaxpy(stream_, a));
    ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, graph));
  };
  capture(&first, 1, 1);
  capture(&second, 10, 1);
  capture(&longer, 1, 2);
  const GraphExec exec = Instantiate(first);
  int result = -1;
  EXPECT_OK(CU(*cuda_, cuGraphExecUpdate)(exec, second, nullptr, &result));
  EXPECT_EQ(CU(*cuda_, cuGraphExecUpdate)(exec, longer, nullptr, &result),
            Result::kGraphExecUpdateFailure);
  Run(exec);
  EXPECT_EQ(ReadY(), 10.0f);
}

}  // namespace
}  // namespace tessera::cuda
