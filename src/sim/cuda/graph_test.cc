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

// A graph of one kernel, one copy and one host function, each after the one before.
class GraphNodesTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    ASSERT_OK(CU(*cuda_, cuMemAlloc_v2)(&z_, sizeof(float)));
    ASSERT_OK(CU(*cuda_, cuGraphCreate)(&graph_, 0));
    called_ = 0;
    KernelNodeParameters kernel = KernelOf(&a_);
    ASSERT_OK(CU(*cuda_, cuGraphAddKernelNode)(&kernel_, graph_, nullptr, 0, &kernel));
    const Memcpy3D copy = CopyOf(y_);
    ASSERT_OK(CU(*cuda_, cuGraphAddMemcpyNode)(&copy_, graph_, &kernel_, 1, &copy, context_));
    const HostNodeParameters host = HostOf(1);
    ASSERT_OK(CU(*cuda_, cuGraphAddHostNode)(&host_, graph_, &copy_, 1, &host));
  }

  // y = a * x + y
  KernelNodeParameters KernelOf(float* a) {
    static int n = 1;
    values_ = {&n, a, &x_, &y_};
    return {.function = saxpy_,
            .grid_x = 1,
            .grid_y = 1,
            .grid_z = 1,
            .block_x = 1,
            .block_y = 1,
            .block_z = 1,
            .parameters = values_.data()};
  }
  // z = what is at `from`
  Memcpy3D CopyOf(DevicePtr from) const {
    return {.src_type = MemoryType::kDevice,
            .src_device = from,
            .src_pitch = 4,
            .src_height = 1,
            .dst_type = MemoryType::kDevice,
            .dst_device = z_,
            .dst_pitch = 4,
            .dst_height = 1,
            .width = 4,
            .height = 1,
            .depth = 1};
  }
  static HostNodeParameters HostOf(intptr_t count) {
    return {[](void* by) { called_ += int(reinterpret_cast<intptr_t>(by)); },
            reinterpret_cast<void*>(count)};
  }
  float Z() {
    float value = -1;
    EXPECT_OK(CU(*cuda_, cuMemcpyDtoH_v2)(&value, z_, sizeof(value)));
    return value;
  }

  static inline int called_ = 0;
  float a_ = 2;
  std::vector<void*> values_;
  DevicePtr z_ = 0;
  Graph graph_ = nullptr;
  GraphNode kernel_ = nullptr, copy_ = nullptr, host_ = nullptr;
};

TEST_F(GraphNodesTest, CopiesRunBetweenKernelsAndHostFunctions) {
  Run(Instance(graph_));
  EXPECT_EQ(Z(), 2.0f);
  EXPECT_EQ(called_, 1);
}

TEST_F(GraphNodesTest, ANodeOfAnInstanceIsChangedByThatOfItsGraph) {
  const GraphExec exec = Instance(graph_), other = Instance(graph_);
  float more = 5;
  const KernelNodeParameters kernel = KernelOf(&more);
  ASSERT_OK(CU(*cuda_, cuGraphExecKernelNodeSetParams)(exec, kernel_, &kernel));
  const Memcpy3D copy = CopyOf(x_);
  ASSERT_OK(CU(*cuda_, cuGraphExecMemcpyNodeSetParams)(exec, copy_, &copy, context_));
  const HostNodeParameters host = HostOf(10);
  ASSERT_OK(CU(*cuda_, cuGraphExecHostNodeSetParams)(exec, host_, &host));
  EXPECT_EQ(CU(*cuda_, cuGraphExecHostNodeSetParams)(exec, kernel_, &host), Result::kInvalidValue)
      << "a node of another kind";
  Run(exec);
  EXPECT_EQ(Y(), 5.0f);
  EXPECT_EQ(Z(), 1.0f);
  EXPECT_EQ(called_, 10);
  Run(other);
  EXPECT_EQ(Y(), 7.0f) << "other instances stay as they were";
  EXPECT_EQ(Z(), 7.0f);
}

TEST_F(GraphNodesTest, AnUpdatedInstanceStillKnowsTheNodesOfItsFirstGraph) {
  const GraphExec exec = Instance(graph_);
  Graph same = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphClone)(&same, graph_));
  GraphUpdateResult update{};
  ASSERT_OK(CU(*cuda_, cuGraphExecUpdate_v2)(exec, same, &update));
  ASSERT_OK(CU(*cuda_, cuGraphDestroy)(same));
  float more = 3;
  const KernelNodeParameters kernel = KernelOf(&more);
  ASSERT_OK(CU(*cuda_, cuGraphExecKernelNodeSetParams)(exec, kernel_, &kernel));
  Run(exec);
  EXPECT_EQ(Z(), 3.0f);
}

TEST_F(GraphNodesTest, ChangingANodeOfAGraphChangesLaterInstancesAlone) {
  const GraphExec before = Instance(graph_);
  float more = 4;
  const KernelNodeParameters kernel = KernelOf(&more);
  ASSERT_OK(CU(*cuda_, cuGraphKernelNodeSetParams)(kernel_, &kernel));
  Run(before);
  EXPECT_EQ(Z(), 2.0f);
  Run(Instance(graph_));
  EXPECT_EQ(Z(), 6.0f);
}

TEST_F(GraphNodesTest, TellsWhatANodeDoes) {
  a_ = 0;  // was copied when the node was added
  KernelNodeParameters kernel{};
  ASSERT_OK(CU(*cuda_, cuGraphKernelNodeGetParams_v2)(kernel_, &kernel));
  EXPECT_EQ(kernel.function, saxpy_);
  EXPECT_EQ(*static_cast<float*>(kernel.parameters[1]), 2.0f);
  EXPECT_EQ(*static_cast<DevicePtr*>(kernel.parameters[3]), y_);
  Memcpy3D copy{};
  ASSERT_OK(CU(*cuda_, cuGraphMemcpyNodeGetParams)(copy_, &copy));
  EXPECT_EQ(copy.dst_device, z_);
  HostNodeParameters host{};
  ASSERT_OK(CU(*cuda_, cuGraphHostNodeGetParams)(host_, &host));
  EXPECT_EQ(host.data, HostOf(1).data);
  EXPECT_EQ(CU(*cuda_, cuGraphHostNodeGetParams)(copy_, &host), Result::kInvalidValue);
}

TEST_F(GraphNodesTest, TellsWhichNodesComeAfterWhich) {
  size_t count = 2;
  GraphNode from[3] = {}, to[3] = {};
  ASSERT_OK(CU(*cuda_, cuGraphGetEdges)(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);
  count = 3;
  ASSERT_OK(CU(*cuda_, cuGraphGetEdges)(graph_, from, to, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(from[0], kernel_);
  EXPECT_EQ(to[0], copy_);
  EXPECT_EQ(from[1], copy_);
  EXPECT_EQ(to[1], host_);
  EXPECT_EQ(to[2], nullptr);
  count = 3;
  ASSERT_OK(CU(*cuda_, cuGraphNodeGetDependentNodes)(copy_, to, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(to[0], host_);
}

TEST_F(GraphNodesTest, ADestroyedNodeAndItsEdgesAreGone) {
  ASSERT_OK(CU(*cuda_, cuGraphDestroyNode)(copy_));
  size_t count = 0;
  ASSERT_OK(CU(*cuda_, cuGraphGetEdges)(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(CU(*cuda_, cuGraphDestroyNode)(copy_), Result::kInvalidValue);
  Run(Instance(graph_));
  EXPECT_EQ(Y(), 2.0f);
  EXPECT_EQ(called_, 1);
}

TEST_F(GraphNodesTest, TheGraphOfAChildNodeIsAGraph) {
  Graph outer = nullptr, child = nullptr;
  GraphNode node = nullptr, nodes[3] = {};
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&outer, 0));
  ASSERT_OK(CU(*cuda_, cuGraphAddChildGraphNode)(&node, outer, nullptr, 0, graph_));
  ASSERT_OK(CU(*cuda_, cuGraphChildGraphNodeGetGraph)(node, &child));
  EXPECT_NE(child, graph_);
  size_t count = 3;
  ASSERT_OK(CU(*cuda_, cuGraphGetNodes)(child, nodes, &count));
  EXPECT_EQ(count, 3u);
  const HostNodeParameters host = HostOf(100);
  ASSERT_OK(CU(*cuda_, cuGraphHostNodeSetParams)(nodes[2], &host));
  Run(Instance(outer));
  EXPECT_EQ(called_, 100);
}

}  // namespace
}  // namespace tessera::cuda
