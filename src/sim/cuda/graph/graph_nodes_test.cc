// SPDX-License-Identifier: Apache-2.0
// Queries and changes of nodes in graphs and instances.
#include <vector>

#include "src/sim/cuda/graph/graph_test.h"

namespace tessera::cuda {
namespace {

// A graph of a kernel, then a copy, then a host function.
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
  // z = *from
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
    return {[](void* number) { called_ += int(reinterpret_cast<intptr_t>(number)); },
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
  Run(Instantiate(graph_));
  EXPECT_EQ(Z(), 2.0f);
  EXPECT_EQ(called_, 1);
}

TEST_F(GraphNodesTest, ANodeOfAnInstanceIsNamedByTheNodeOfItsGraph) {
  const GraphExec exec = Instantiate(graph_), other = Instantiate(graph_);
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
  EXPECT_EQ(ReadY(), 5.0f);
  EXPECT_EQ(Z(), 1.0f);
  EXPECT_EQ(called_, 10);
  Run(other);
  EXPECT_EQ(ReadY(), 7.0f) << "other instances do not change";
  EXPECT_EQ(Z(), 7.0f);
}

TEST_F(GraphNodesTest, AnUpdatedInstanceKeepsTheNodesOfItsFirstGraph) {
  const GraphExec exec = Instantiate(graph_);
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

TEST_F(GraphNodesTest, ChangingANodeOfAGraphChangesOnlyLaterInstances) {
  const GraphExec before = Instantiate(graph_);
  float more = 4;
  const KernelNodeParameters kernel = KernelOf(&more);
  ASSERT_OK(CU(*cuda_, cuGraphKernelNodeSetParams)(kernel_, &kernel));
  Run(before);
  EXPECT_EQ(Z(), 2.0f);
  Run(Instantiate(graph_));
  EXPECT_EQ(Z(), 6.0f);
}

TEST_F(GraphNodesTest, ReturnsTheParametersOfANode) {
  a_ = 0;  // the node has a copy of the old value
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

TEST_F(GraphNodesTest, ReturnsTheEdgesOfAGraph) {
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

TEST_F(GraphNodesTest, ANodeOfAnotherGraphIsNoDependency) {
  Graph other = nullptr;
  GraphNode node = nullptr, first = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&other, 0));
  ASSERT_OK(CU(*cuda_, cuGraphAddEmptyNode)(&first, other, nullptr, 0));
  EXPECT_EQ(CU(*cuda_, cuGraphAddEmptyNode)(&node, other, &kernel_, 1), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuGraphAddEmptyNode)(&node, other, nullptr, 1), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuGraphAddDependencies)(other, &kernel_, &first, 1), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuGraphAddDependencies)(other, &first, &kernel_, 1), Result::kInvalidValue);
  EXPECT_EQ(CU(*cuda_, cuGraphAddDependencies)(other, &kernel_, &host_, 1), Result::kInvalidValue)
      << "both nodes are of another graph";
  EXPECT_EQ(CU(*cuda_, cuGraphAddDependencies)(other, nullptr, nullptr, 1), Result::kInvalidValue);
  size_t count = 0;
  ASSERT_OK(CU(*cuda_, cuGraphGetEdges)(other, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
  ASSERT_OK(CU(*cuda_, cuGraphGetEdges)(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);
}

TEST_F(GraphNodesTest, AChildGraphThatIsRefusedTakesNoReference) {
  static int ended;
  ended = 0;
  UserObject object = nullptr;
  const auto end = [](void*) { ++ended; };
  ASSERT_OK(CU(*cuda_, cuUserObjectCreate)(&object, nullptr, end, 1, 1));
  ASSERT_OK(CU(*cuda_, cuGraphRetainUserObject)(graph_, object, 1, 1));
  Graph outer = nullptr;
  GraphNode node = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&outer, 0));
  EXPECT_EQ(CU(*cuda_, cuGraphAddChildGraphNode)(&node, outer, &kernel_, 1, graph_),
            Result::kInvalidValue);
  ASSERT_OK(CU(*cuda_, cuGraphDestroy)(graph_));
  EXPECT_EQ(ended, 1);
}

TEST_F(GraphNodesTest, ADestroyedNodeAndItsEdgesAreGone) {
  ASSERT_OK(CU(*cuda_, cuGraphDestroyNode)(copy_));
  size_t count = 0;
  ASSERT_OK(CU(*cuda_, cuGraphGetEdges)(graph_, nullptr, nullptr, &count));
  EXPECT_EQ(count, 0u);
  EXPECT_EQ(CU(*cuda_, cuGraphDestroyNode)(copy_), Result::kInvalidValue);
  Run(Instantiate(graph_));
  EXPECT_EQ(ReadY(), 2.0f);
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
  EXPECT_EQ(CU(*cuda_, cuGraphDestroy)(child), Result::kInvalidValue) << "the node owns it";
  Run(Instantiate(outer));
  EXPECT_EQ(called_, 100);
}

TEST_F(GraphNodesTest, EventsAreRecordedAndWaitedForByNodes) {
  Graph recording = nullptr, waiting = nullptr;
  GraphNode kernel = nullptr, record = nullptr, wait = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&recording, 0));
  const KernelNodeParameters slow{.function = slow_,
                                  .grid_x = 1,
                                  .grid_y = 1,
                                  .grid_z = 1,
                                  .block_x = 1,
                                  .block_y = 1,
                                  .block_z = 1};
  ASSERT_OK(CU(*cuda_, cuGraphAddKernelNode)(&kernel, recording, nullptr, 0, &slow));
  ASSERT_OK(CU(*cuda_, cuGraphAddEventRecordNode)(&record, recording, &kernel, 1, join_));
  ASSERT_OK(CU(*cuda_, cuGraphCreate)(&waiting, 0));
  ASSERT_OK(CU(*cuda_, cuGraphAddEventWaitNode)(&wait, waiting, nullptr, 0, join_));
  Event event = nullptr;
  EXPECT_OK(CU(*cuda_, cuGraphEventWaitNodeGetEvent)(wait, &event));
  EXPECT_EQ(event, join_);
  EXPECT_EQ(CU(*cuda_, cuGraphEventRecordNodeGetEvent)(wait, &event), Result::kInvalidValue);
  ASSERT_OK(CU(*cuda_, cuEventRecord)(fork_, second_stream_));
  ASSERT_OK(CU(*cuda_, cuGraphLaunch)(Instantiate(recording), stream_));
  ASSERT_OK(CU(*cuda_, cuGraphLaunch)(Instantiate(waiting), second_stream_));
  Event end = nullptr;
  ASSERT_OK(CU(*cuda_, cuEventCreate)(&end, 0));
  ASSERT_OK(CU(*cuda_, cuEventRecord)(end, second_stream_));
  ASSERT_OK(CU(*cuda_, cuEventSynchronize)(end));
  float milliseconds = 0;
  ASSERT_OK(CU(*cuda_, cuEventElapsedTime)(&milliseconds, fork_, end));
  EXPECT_GE(milliseconds, 19) << "the other stream has waited for the kernel";
}

TEST_F(GraphNodesTest, AnObjectLivesAsLongAsAGraphOrAnInstanceNeedsIt) {
  static int ended;
  ended = 0;
  UserObject object = nullptr;
  const auto end = [](void* by) { ended += *static_cast<int*>(by); };
  static int one = 1;
  ASSERT_OK(CU(*cuda_, cuUserObjectCreate)(&object, &one, end, 2, 1));
  ASSERT_OK(CU(*cuda_, cuGraphRetainUserObject)(graph_, object, 1, 1))
      << "one of two references moves";
  const GraphExec exec = Instantiate(graph_);
  ASSERT_OK(CU(*cuda_, cuUserObjectRelease)(object, 1));
  ASSERT_OK(CU(*cuda_, cuGraphDestroy)(graph_));
  EXPECT_EQ(ended, 0) << "the instance has a reference";
  ASSERT_OK(CU(*cuda_, cuGraphLaunch)(exec, stream_));
  ASSERT_OK(CU(*cuda_, cuGraphExecDestroy)(exec));
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(called_, 1) << "running commands ended first";
  EXPECT_EQ(CU(*cuda_, cuUserObjectRetain)(object, 1), Result::kInvalidValue);
}

TEST_F(GraphNodesTest, ReferencesOfAGraphAreCounted) {
  static int ended;
  ended = 0;
  UserObject object = nullptr;
  const auto end = [](void*) { ++ended; };
  ASSERT_OK(CU(*cuda_, cuUserObjectCreate)(&object, nullptr, end, 1, 1));
  ASSERT_OK(CU(*cuda_, cuGraphRetainUserObject)(graph_, object, 2, 0));
  ASSERT_OK(CU(*cuda_, cuUserObjectRelease)(object, 1));
  EXPECT_EQ(CU(*cuda_, cuGraphReleaseUserObject)(graph_, object, 3), Result::kInvalidValue);
  ASSERT_OK(CU(*cuda_, cuGraphReleaseUserObject)(graph_, object, 1));
  EXPECT_EQ(ended, 0);
  ASSERT_OK(CU(*cuda_, cuGraphReleaseUserObject)(graph_, object, 1));
  EXPECT_EQ(ended, 1);
}

TEST_F(GraphNodesTest, ACaptureContinuesAfterNodesThatTheProgramNames) {
  Graph graph = nullptr;
  const GraphNode* last = nullptr;
  size_t count = 0;
  int status = 0;
  uint64_t id = 0;
  ASSERT_OK(CU(*cuda_, cuStreamBeginCapture_v2)(stream_, 0));
  EXPECT_OK(LaunchSaxpy(stream_, 1));
  const void* edges = &edges;
  ASSERT_OK(
      CU(*cuda_, cuStreamGetCaptureInfo_v3)(stream_, &status, &id, &graph, &last, &edges, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(edges, nullptr);
  const GraphNode first = last[0];
  GraphNode empty = nullptr;
  ASSERT_OK(CU(*cuda_, cuGraphAddEmptyNode)(&empty, graph, &first, 1));
  EXPECT_OK(CU(*cuda_, cuStreamUpdateCaptureDependencies)(stream_, &empty, 1, 1));
  EXPECT_EQ(CU(*cuda_, cuStreamUpdateCaptureDependencies)(stream_, &kernel_, 1, 1),
            Result::kInvalidValue)
      << "a node of another graph";
  EXPECT_OK(LaunchSaxpy(stream_, 2));
  ASSERT_OK(CU(*cuda_, cuStreamEndCapture)(stream_, &graph));
  GraphNode after[2] = {};
  count = 2;
  ASSERT_OK(CU(*cuda_, cuGraphNodeGetDependentNodes)(empty, after, &count));
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(CU(*cuda_, cuStreamUpdateCaptureDependencies)(stream_, nullptr, 0, 0),
            Result::kInvalidValue)
      << "the stream is not captured";
}

}  // namespace
}  // namespace tessera::cuda
