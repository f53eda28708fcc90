// SPDX-License-Identifier: Apache-2.0
// Nodes by parameters of any type, edges with data, capture into a graph, and changes of instances.
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <vector>

#include "src/sim/cuda/graph/graph_test.h"

namespace tessera::cuda {
namespace {

class GraphChangesTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    ASSERT_OK(CU(*cuda_, cuGraphCreate)(&graph_, 0));
  }
  void TearDown() override { EXPECT_OK(CU(*cuda_, cuGraphDestroy)(graph_)); }

  // y += a * x
  KernelNodeParameters Kernel(float a) {
    static int n = 1;
    static float factor;
    factor = a;
    values_ = {&n, &factor, &x_, &y_};
    return {.function = saxpy_,
            .grid_x = 1,
            .grid_y = 1,
            .grid_z = 1,
            .block_x = 1,
            .block_y = 1,
            .block_z = 1,
            .parameters = values_.data()};
  }
  GraphNode AddKernel(Graph graph, float a, std::vector<GraphNode> from = {}) {
    GraphNode node = nullptr;
    const KernelNodeParameters kernel = Kernel(a);
    EXPECT_OK(CU(*cuda_, cuGraphAddKernelNode_v2)(&node, graph, from.data(), from.size(), &kernel));
    return node;
  }
  GraphNode Add(GraphNodeParameters parameters, std::vector<GraphNode> from = {}) {
    GraphNode node = nullptr;
    EXPECT_OK(CU(*cuda_, cuGraphAddNode_v2)(&node, graph_, from.data(), nullptr, from.size(),
                                            &parameters));
    return node;
  }
  void SetY(float value) { EXPECT_OK(CU(*cuda_, cuMemcpyHtoD_v2)(y_, &value, sizeof(value))); }
  float YAfter(GraphExec exec) {
    SetY(0);
    Run(exec);
    return ReadY();
  }
  size_t EdgesOf(Graph graph) {
    size_t count = 0;
    EXPECT_OK(CU(*cuda_, cuGraphGetEdges_v2)(graph, nullptr, nullptr, nullptr, &count));
    return count;
  }

  Graph graph_ = nullptr;
  std::vector<void*> values_;
};

TEST_F(GraphChangesTest, ParametersOfAnyTypeMakeTheSameNodes) {
  GraphNodeParameters parameters{};
  parameters.type = GraphNodeType::kMemset;
  parameters.memset = {
      .to = y_, .pitch = 4, .value = 0x40000000, .element_bytes = 4, .width = 1, .height = 1};
  const GraphNode memset = Add(parameters);  // y = 2
  parameters = {.type = GraphNodeType::kKernel};
  parameters.kernel = Kernel(3);
  const GraphNode kernel = Add(parameters, {memset});
  static int called;
  called = 0;
  parameters = {.type = GraphNodeType::kHost};
  parameters.host = {.function = [](void*) { ++called; }, .data = nullptr};
  const GraphNode host = Add(parameters, {kernel});
  parameters = {.type = GraphNodeType::kEmpty};
  const GraphNode empty = Add(parameters, {host});
  parameters = {.type = GraphNodeType::kEventRecord};
  parameters.event = fork_;
  Add(parameters, {empty});
  parameters = {.type = GraphNodeType(12)};  // a batch of memory operations
  GraphNode node = nullptr;
  EXPECT_EQ(CU(*cuda_, cuGraphAddNode)(&node, graph_, nullptr, 0, &parameters),
            Result::kNotSupported);

  const GraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_EQ(ReadY(), 5.0f);
  EXPECT_EQ(called, 1);
  EXPECT_OK(CU(*cuda_, cuEventSynchronize)(fork_));

  parameters = {.type = GraphNodeType::kKernel};
  parameters.kernel = Kernel(7);
  EXPECT_OK(CU(*cuda_, cuGraphExecNodeSetParams)(exec, kernel, &parameters));
  Run(exec);
  EXPECT_EQ(ReadY(), 9.0f);
  EXPECT_OK(CU(*cuda_, cuGraphNodeSetParams)(kernel, &parameters));
  EXPECT_EQ(CU(*cuda_, cuGraphNodeSetParams)(memset, &parameters), Result::kInvalidValue);
  Run(Instantiate(graph_));
  EXPECT_EQ(ReadY(), 9.0f);
}

TEST_F(GraphChangesTest, MemoryNodesAddedByParametersReturnAnAddress) {
  GraphNodeParameters parameters{.type = GraphNodeType::kMemAlloc};
  parameters.alloc = {.pool = {.alloc_type = 1, .location = {kLocationDevice, 0}}, .bytes = 4096};
  GraphNode alloc = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphAddNode)(&alloc, graph_, nullptr, 0, &parameters));
  const DevicePtr pointer = parameters.alloc.pointer;
  EXPECT_NE(pointer, 0u);
  parameters = {.type = GraphNodeType::kMemFree};
  parameters.free = pointer;
  Add(parameters, {alloc});
  const GraphExec exec = Instantiate(graph_);
  Run(exec);
  EXPECT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  EXPECT_OK(CU(*cuda_, cuDeviceGraphMemTrim)(0));
}

TEST_F(GraphChangesTest, EdgesAreAddedListedAndRemoved) {
  const GraphNode a = AddKernel(graph_, 1), b = AddKernel(graph_, 2), c = AddKernel(graph_, 3);
  const GraphNode from[] = {a, b}, to[] = {b, c};
  const GraphEdge plain[2] = {}, ports[2] = {{.from_port = 1}, {}};
  EXPECT_OK(CU(*cuda_, cuGraphAddDependencies_v2)(graph_, from, to, plain, 2));
  EXPECT_EQ(CU(*cuda_, cuGraphAddDependencies_v2)(graph_, from, to, ports, 2),
            Result::kNotSupported);
  EXPECT_EQ(EdgesOf(graph_), 2u);
  GraphNode found[4] = {};
  GraphEdge edges[4];
  memset(edges, 0xff, sizeof(edges));
  size_t count = 4;
  EXPECT_OK(CU(*cuda_, cuGraphNodeGetDependencies_v2)(b, found, edges, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(found[0], a);
  EXPECT_EQ(edges[0].from_port, 0);
  count = 4;
  EXPECT_OK(CU(*cuda_, cuGraphNodeGetDependentNodes_v2)(b, found, edges, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(found[0], c);
  EXPECT_OK(CU(*cuda_, cuGraphRemoveDependencies_v2)(graph_, from, to, plain, 1));
  EXPECT_EQ(EdgesOf(graph_), 1u);
  EXPECT_EQ(CU(*cuda_, cuGraphRemoveDependencies)(graph_, from, to, 2), Result::kInvalidValue)
      << "the first edge is gone";
  EXPECT_EQ(EdgesOf(graph_), 1u);
}

TEST_F(GraphChangesTest, ACaptureContinuesAGraphOfTheProgram) {
  const GraphNode first = AddKernel(graph_, 1);
  const auto begin = CU(*cuda_, cuStreamBeginCaptureToGraph);
  Graph captured = nullptr;
  ASSERT_OK(begin(stream_, graph_, &first, nullptr, 1, 0));
  EXPECT_EQ(CU(*cuda_, cuGraphDestroy)(graph_), Result::kInvalidValue);
  EXPECT_EQ(begin(second_stream_, graph_, &first, nullptr, 1, 0), Result::kInvalidValue);
  EXPECT_OK(LaunchSaxpy(stream_, 2));
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &captured));
  EXPECT_EQ(captured, graph_);
  EXPECT_EQ(EdgesOf(graph_), 1u);
  EXPECT_EQ(YAfter(Instantiate(graph_)), 3.0f);
  Graph other = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&other, 0));
  EXPECT_EQ(begin(stream_, other, &first, nullptr, 1, 0), Result::kInvalidValue)
      << "a node of another graph";
  EXPECT_EQ(begin(nullptr, other, nullptr, nullptr, 0, 0), Result::kStreamCaptureUnsupported);
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(other));
}

TEST_F(GraphChangesTest, ExternalEventsOfACaptureAreNodes) {
  Graph captured = nullptr;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  EXPECT_OK(CU(*cuda_, cuStreamWaitEvent)(stream_, fork_, kEventExternal));
  EXPECT_OK(CU(*cuda_, cuLaunchKernel)(slow_, 1, 1, 1, 1, 1, 1, 0, stream_, nullptr, nullptr));
  EXPECT_OK(CU(*cuda_, cuEventRecordWithFlags)(join_, stream_, kEventExternal));
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &captured));
  GraphNode nodes[4] = {};
  size_t count = 4;
  ASSERT_OK(CU(*cuda_, cuGraphGetNodes)(captured, nodes, &count));
  ASSERT_EQ(count, 3u);
  Event event = nullptr;
  EXPECT_OK(CU(*cuda_, cuGraphEventWaitNodeGetEvent)(nodes[0], &event));
  EXPECT_EQ(event, fork_);
  EXPECT_OK(CU(*cuda_, cuGraphEventRecordNodeGetEvent)(nodes[2], &event));
  EXPECT_EQ(event, join_);
  const GraphExec exec = Instantiate(captured);
  // Holds back a launch until its events have been queried.
  static std::atomic<bool> may_begin;
  const auto hold = [this] {
    may_begin = false;
    const auto wait = [](void*) {
      while (!may_begin) usleep(1000);
    };
    EXPECT_OK(CU(*cuda_, cuLaunchHostFunc)(stream_, wait, nullptr));
  };
  hold();
  EXPECT_OK(CU(*cuda_, cuGraphLaunch)(exec, stream_));
  EXPECT_EQ(CU(*cuda_, cuEventQuery)(join_), Result::kNotReady);
  may_begin = true;
  EXPECT_OK(CU(*cuda_, cuEventSynchronize)(join_));

  EXPECT_OK(CU(*cuda_, cuGraphExecEventRecordNodeSetEvent)(exec, nodes[2], fork_));
  hold();
  EXPECT_OK(CU(*cuda_, cuGraphLaunch)(exec, stream_));
  EXPECT_OK(CU(*cuda_, cuEventQuery)(join_)) << "the launch records another event";
  EXPECT_EQ(CU(*cuda_, cuEventQuery)(fork_), Result::kNotReady);
  may_begin = true;
  EXPECT_EQ(CU(*cuda_, cuGraphEventWaitNodeSetEvent)(nodes[2], fork_), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuStreamSynchronize)(stream_));
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(captured));
}

TEST_F(GraphChangesTest, AnUpdateReportsItsFirstMismatch) {
  const GraphNode a = AddKernel(graph_, 1);
  AddKernel(graph_, 2, {a});
  const GraphExec exec = Instantiate(graph_);
  const auto update = [&](Graph graph) {
    GraphUpdateResult result{};
    const Result returned = CU(*cuda_, cuGraphExecUpdate_v2)(exec, graph, &result);
    EXPECT_EQ(returned == Result::kSuccess, result.result == kUpdateSuccess);
    return result;
  };
  Graph other = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&other, 0));
  const GraphNode b = AddKernel(other, 10);
  EXPECT_EQ(update(other).result, kUpdateTopologyChanged) << "fewer nodes";
  GraphNode c = AddKernel(other, 20);
  EXPECT_EQ(update(other).result, kUpdateTopologyChanged) << "no edge";
  EXPECT_EQ(update(other).error_node, c);
  EXPECT_OK(CU(*cuda_, cuGraphAddDependencies)(other, &b, &c, 1));
  EXPECT_EQ(update(other).result, kUpdateSuccess);
  EXPECT_EQ(YAfter(exec), 30.0f);
  EXPECT_OK(CU(*cuda_, cuGraphDestroyNode)(c));
  ASSERT_OK(CU(*cuda_, cuGraphAddEmptyNode)(&c, other, &b, 1));
  EXPECT_EQ(update(other).result, kUpdateNodeTypeChanged);
  EXPECT_EQ(update(other).error_node, c);
  EXPECT_EQ(YAfter(exec), 30.0f);
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(other));
}

TEST_F(GraphChangesTest, KernelsOfAnInstanceCanBeDisabled) {
  const GraphNode a = AddKernel(graph_, 1), b = AddKernel(graph_, 2, {a});
  GraphNode empty = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphAddEmptyNode)(&empty, graph_, nullptr, 0));
  const GraphExec exec = Instantiate(graph_);
  unsigned enabled = 7;
  EXPECT_OK(CU(*cuda_, cuGraphNodeGetEnabled)(exec, b, &enabled));
  EXPECT_EQ(enabled, 1u);
  EXPECT_OK(CU(*cuda_, cuGraphNodeSetEnabled)(exec, b, 0));
  EXPECT_OK(CU(*cuda_, cuGraphNodeGetEnabled)(exec, b, &enabled));
  EXPECT_EQ(enabled, 0u);
  EXPECT_EQ(YAfter(exec), 1.0f);
  EXPECT_OK(CU(*cuda_, cuGraphNodeSetEnabled)(exec, b, 1));
  EXPECT_EQ(YAfter(exec), 3.0f);
  EXPECT_EQ(CU(*cuda_, cuGraphNodeSetEnabled)(exec, empty, 0), Result::kInvalidValue);
  uint64_t flags = 7;
  EXPECT_OK(CU(*cuda_, cuGraphExecGetFlags)(exec, &flags));
  EXPECT_EQ(flags, 0u);
}

TEST_F(GraphChangesTest, AChildGraphOfAnInstanceIsReplacedByAGraphOfTheSameShape) {
  Graph child = nullptr, larger = nullptr;
  GraphNode node = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&child, 0));
  AddKernel(child, 2);
  ASSERT_OK(CU(*cuda_, cuGraphAddChildGraphNode)(&node, graph_, nullptr, 0, child));
  const GraphExec exec = Instantiate(graph_);
  Graph inner = nullptr;
  GraphNode in_child = nullptr;
  size_t count = 1;
  EXPECT_OK(CU(*cuda_, cuGraphChildGraphNodeGetGraph)(node, &inner));
  EXPECT_OK(CU(*cuda_, cuGraphGetNodes)(inner, &in_child, &count));
  KernelNodeParameters kernel = Kernel(5);
  EXPECT_OK(CU(*cuda_, cuGraphExecKernelNodeSetParams_v2)(exec, in_child, &kernel))
      << "a node of the child graph names the node of the instance";
  EXPECT_EQ(YAfter(exec), 5.0f);
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&larger, 0));
  AddKernel(larger, 8);
  EXPECT_OK(CU(*cuda_, cuGraphExecChildGraphNodeSetParams)(exec, node, larger));
  EXPECT_EQ(YAfter(exec), 8.0f);
  AddKernel(larger, 1);
  EXPECT_EQ(CU(*cuda_, cuGraphExecChildGraphNodeSetParams)(exec, node, larger),
            Result::kGraphExecUpdateFailure);
  kernel = Kernel(6);
  EXPECT_OK(CU(*cuda_, cuGraphExecKernelNodeSetParams_v2)(exec, in_child, &kernel));
  EXPECT_EQ(YAfter(exec), 6.0f);
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(larger));
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(child));
}

TEST_F(GraphChangesTest, ClonesAndAttributesBelongToTheirNode) {
  const GraphNode a = AddKernel(graph_, 1), b = AddKernel(graph_, 2, {a});
  StreamAttribute value{}, back{};
  value.value[0] = 3;
  EXPECT_OK(CU(*cuda_, cuGraphKernelNodeSetAttribute)(a, kStreamPriority, &value));
  EXPECT_OK(CU(*cuda_, cuGraphKernelNodeCopyAttributes)(b, a));
  EXPECT_OK(CU(*cuda_, cuGraphKernelNodeGetAttribute)(b, kStreamPriority, &back));
  EXPECT_EQ(back.value[0], 3);
  Graph clone = nullptr;
  GraphNode found = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphClone)(&clone, graph_));
  EXPECT_OK(CU(*cuda_, cuGraphNodeFindInClone)(&found, b, clone));
  EXPECT_NE(found, b);
  back = {};
  EXPECT_OK(CU(*cuda_, cuGraphKernelNodeGetAttribute)(found, kStreamPriority, &back));
  EXPECT_EQ(back.value[0], 3);
  EXPECT_EQ(CU(*cuda_, cuGraphNodeFindInClone)(&found, b, graph_), Result::kInvalidValue);
  EXPECT_OK(CU(*cuda_, cuGraphDestroy)(clone));
}

TEST_F(GraphChangesTest, AGraphIsPrintedForGraphviz) {
  const GraphNode a = AddKernel(graph_, 1);
  AddKernel(graph_, 2, {a});
  const std::string path = node_->dev_root() + "/graph.dot";
  EXPECT_OK(CU(*cuda_, cuGraphDebugDotPrint)(graph_, path.c_str(), 0));
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_TRUE(text.starts_with("digraph dot {")) << text;
  EXPECT_NE(text.find(" -> "), std::string::npos) << text;
  EXPECT_NE(text.find("KERNEL"), std::string::npos) << text;
  EXPECT_EQ(CU(*cuda_, cuGraphDebugDotPrint)(graph_, "/nowhere/graph.dot", 0),
            Result::kOperatingSystem);
}

}  // namespace
}  // namespace tessera::cuda
