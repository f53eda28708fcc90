// SPDX-License-Identifier: Apache-2.0
// Conditional nodes of graphs: which body a launch runs, and which nodes the driver refuses.
#include <sys/wait.h>
#include <unistd.h>

#include "src/sim/cuda/graph/graph_test.h"

namespace tessera::cuda {
namespace {

constexpr char kNodeOfCuda124[] =
    "base: a100-sxm4-80gb\ndriver: {version: 550.163.01}\nnode:\n  gpus: 1\n  nvlink: none\n";
constexpr char kNodeOfCuda128[] =
    "base: a100-sxm4-80gb\ndriver: {version: 570.86.15}\nnode:\n  gpus: 1\n  nvlink: none\n";

// A program in a process of its own, because a process loads one driver.
class ConditionalTest : public ::testing::Test {
 protected:
  static int InProcess(const char* profile, void (*body)(const CudaLibrary& cuda)) {
    const sim::testing::SimNode node({.profile = profile});
    const pid_t pid = fork();
    if (pid == 0) {
      const CudaLibrary cuda(node.library("libcuda.so.1"));
      Context context = nullptr;
      EXPECT_OK(CU(cuda, cuInit)(0));
      EXPECT_OK(CU(cuda, cuDevicePrimaryCtxRetain)(&context, 0));
      EXPECT_OK(CU(cuda, cuCtxSetCurrent)(context));
      body(cuda);
      fflush(nullptr);
      _exit(HasFailure() ? 1 : 0);
    }
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
  }
};

ConditionalHandle NewHandle(const CudaLibrary& cuda, Graph graph, unsigned value,
                            unsigned flags = kAssignDefault) {
  ConditionalHandle handle = 0;
  EXPECT_OK(CU(cuda, cuGraphConditionalHandleCreate)(&handle, graph, nullptr, value, flags));
  return handle;
}

GraphNodeParameters Node(ConditionalHandle handle, ConditionalType type, unsigned size) {
  GraphNodeParameters parameters{.type = GraphNodeType::kConditional};
  parameters.conditional = {
      .handle = handle, .type = type, .size = size, .bodies = nullptr, .context = nullptr};
  return parameters;
}

Result Add(const CudaLibrary& cuda, Graph graph, GraphNodeParameters* parameters,
           GraphNode* node = nullptr) {
  GraphNode added = nullptr;
  return CU(cuda, cuGraphAddNode)(node == nullptr ? &added : node, graph, nullptr, 0, parameters);
}

// A node whose body `i` writes 10 + i to the memory.
void AddWriters(const CudaLibrary& cuda, Graph graph, GraphNodeParameters parameters,
                DevicePtr to) {
  ASSERT_OK(Add(cuda, graph, &parameters));
  for (unsigned i = 0; i < parameters.conditional.size; ++i) {
    GraphNode node = nullptr;
    const MemsetNodeParameters write = {
        .to = to, .pitch = 4, .value = 10 + i, .element_bytes = 4, .width = 1, .height = 1};
    ASSERT_OK(CU(cuda, cuGraphAddMemsetNode)(&node, parameters.conditional.bodies[i], nullptr, 0,
                                             &write, nullptr));
  }
}

// Launches the graph, and returns the value that the launch writes to the memory. The memory is 0
// before the launch.
unsigned LaunchAndRead(const CudaLibrary& cuda, Graph graph, DevicePtr to) {
  GraphExec exec = nullptr;
  unsigned value = 99;
  EXPECT_OK(CU(cuda, cuMemsetD32_v2)(to, 0, 1));
  EXPECT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graph, 0));
  EXPECT_OK(CU(cuda, cuGraphLaunch)(exec, nullptr));
  EXPECT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, to, sizeof(value)));
  EXPECT_OK(CU(cuda, cuGraphExecDestroy)(exec));
  return value;
}

unsigned ValueWrittenByNode(const CudaLibrary& cuda, ConditionalType type, unsigned size,
                            unsigned value, unsigned flags = kAssignDefault) {
  Graph graph = nullptr;
  DevicePtr memory = 0;
  EXPECT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
  EXPECT_OK(CU(cuda, cuMemAlloc_v2)(&memory, 4));
  AddWriters(cuda, graph, Node(NewHandle(cuda, graph, value, flags), type, size), memory);
  const unsigned written = LaunchAndRead(cuda, graph, memory);
  EXPECT_OK(CU(cuda, cuMemFree_v2)(memory));
  EXPECT_OK(CU(cuda, cuGraphDestroy)(graph));
  return written;
}

TEST_F(ConditionalTest, TheDefaultValueDecidesWhichBodyRuns) {
  EXPECT_EQ(InProcess(kNodeOfCuda128,
                      [](const CudaLibrary& cuda) {
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kIf, 1, 7), 10u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kIf, 1, 0), 0u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kIf, 1, 7, 0), 0u)
                            << "no launch begins with the default";
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kIf, 2, 0), 11u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kIf, 2, 1), 10u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kWhile, 1, 1), 10u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kWhile, 1, 0), 0u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kSwitch, 3, 0), 10u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kSwitch, 3, 2), 12u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kSwitch, 3, 3), 0u)
                            << "no body has this number";
                      }),
            0);
}

TEST_F(ConditionalTest, AnOlderDriverHasNoSwitchNodeAndNoElseBody) {
  EXPECT_EQ(InProcess(kNodeOfCuda124,
                      [](const CudaLibrary& cuda) {
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kIf, 1, 1), 10u);
                        EXPECT_EQ(ValueWrittenByNode(cuda, ConditionalType::kWhile, 1, 1), 10u);
                        Graph graph = nullptr;
                        EXPECT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
                        GraphNodeParameters node =
                            Node(NewHandle(cuda, graph, 1), ConditionalType::kIf, 2);
                        EXPECT_EQ(Add(cuda, graph, &node), Result::kInvalidValue);
                        node.conditional.type = ConditionalType::kSwitch;
                        EXPECT_EQ(Add(cuda, graph, &node), Result::kInvalidValue);
                      }),
            0);
}

TEST_F(ConditionalTest, BodiesContainFurtherConditions) {
  EXPECT_EQ(InProcess(kNodeOfCuda124,
                      [](const CudaLibrary& cuda) {
                        Graph graph = nullptr;
                        DevicePtr memory = 0;
                        ASSERT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
                        ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&memory, 4));
                        GraphNodeParameters outer =
                            Node(NewHandle(cuda, graph, 1), ConditionalType::kIf, 1);
                        ASSERT_OK(Add(cuda, graph, &outer));
                        // The handle belongs to the outermost graph.
                        AddWriters(cuda, outer.conditional.bodies[0],
                                   Node(NewHandle(cuda, graph, 1), ConditionalType::kIf, 1),
                                   memory);
                        EXPECT_EQ(LaunchAndRead(cuda, graph, memory), 10u);
                      }),
            0);
}

TEST_F(ConditionalTest, AStreamCapturesIntoABody) {
  EXPECT_EQ(InProcess(kNodeOfCuda124,
                      [](const CudaLibrary& cuda) {
                        Graph graph = nullptr, captured = nullptr;
                        Stream stream = nullptr;
                        DevicePtr memory = 0;
                        ASSERT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
                        ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&memory, 4));
                        ASSERT_OK(CU(cuda, cuStreamCreate)(&stream, 1));
                        GraphNodeParameters node =
                            Node(NewHandle(cuda, graph, 1), ConditionalType::kIf, 1);
                        ASSERT_OK(Add(cuda, graph, &node));
                        Graph body = node.conditional.bodies[0];
                        ASSERT_OK(CU(cuda, cuStreamBeginCaptureToGraph)(stream, body, nullptr,
                                                                        nullptr, 0, 0));
                        ASSERT_OK(CU(cuda, cuMemsetD32Async)(memory, 42, 1, stream));
                        ASSERT_OK(CU(cuda, cuStreamEndCapture)(stream, &captured));
                        EXPECT_EQ(captured, body);
                        EXPECT_EQ(LaunchAndRead(cuda, graph, memory), 42u);
                      }),
            0);
}

TEST_F(ConditionalTest, AnUpdateReplacesTheDefaultValue) {
  EXPECT_EQ(InProcess(kNodeOfCuda124,
                      [](const CudaLibrary& cuda) {
                        Graph graphs[2];
                        DevicePtr memory = 0;
                        unsigned value = 99;
                        ASSERT_OK(CU(cuda, cuMemAlloc_v2)(&memory, 4));
                        ASSERT_OK(CU(cuda, cuMemsetD32_v2)(memory, 0, 1));
                        for (unsigned i = 0; i < 2; ++i) {
                          ASSERT_OK(CU(cuda, cuGraphCreate)(&graphs[i], 0));
                          AddWriters(cuda, graphs[i],
                                     Node(NewHandle(cuda, graphs[i], i), ConditionalType::kIf, 1),
                                     memory);
                        }
                        GraphExec exec = nullptr;
                        GraphUpdateResult update{};
                        ASSERT_OK(CU(cuda, cuGraphInstantiateWithFlags)(&exec, graphs[0], 0));
                        ASSERT_OK(CU(cuda, cuGraphExecUpdate_v2)(exec, graphs[1], &update));
                        ASSERT_OK(CU(cuda, cuGraphLaunch)(exec, nullptr));
                        ASSERT_OK(CU(cuda, cuMemcpyDtoH_v2)(&value, memory, sizeof(value)));
                        EXPECT_EQ(value, 10u);
                      }),
            0);
}

TEST_F(ConditionalTest, InvalidNodesAreRefused) {
  EXPECT_EQ(
      InProcess(kNodeOfCuda128,
                [](const CudaLibrary& cuda) {
                  Graph graph = nullptr, other = nullptr, clone = nullptr;
                  GraphNode node = nullptr;
                  ASSERT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
                  ASSERT_OK(CU(cuda, cuGraphCreate)(&other, 0));
                  ConditionalHandle handle = 0;
                  EXPECT_EQ(CU(cuda, cuGraphConditionalHandleCreate)(nullptr, graph, nullptr, 0, 0),
                            Result::kInvalidValue);
                  EXPECT_EQ(CU(cuda, cuGraphConditionalHandleCreate)(&handle, graph, nullptr, 0, 2),
                            Result::kInvalidValue);
                  handle = NewHandle(cuda, graph, 1);
                  const auto result_of = [&](Graph in, GraphNodeParameters parameters) {
                    return Add(cuda, in, &parameters, &node);
                  };
                  EXPECT_EQ(result_of(graph, Node(handle + 99, ConditionalType::kIf, 1)),
                            Result::kInvalidValue);
                  EXPECT_EQ(result_of(graph, Node(handle, ConditionalType::kIf, 0)),
                            Result::kInvalidValue);
                  EXPECT_EQ(result_of(graph, Node(handle, ConditionalType::kIf, 3)),
                            Result::kInvalidValue);
                  EXPECT_EQ(result_of(graph, Node(handle, ConditionalType::kWhile, 2)),
                            Result::kInvalidValue);
                  EXPECT_EQ(result_of(graph, Node(handle, ConditionalType(3), 1)),
                            Result::kInvalidValue);
                  EXPECT_EQ(result_of(graph, Node(handle, ConditionalType::kSwitch, ~0u)),
                            Result::kOutOfMemory);
                  EXPECT_EQ(result_of(other, Node(handle, ConditionalType::kIf, 1)),
                            Result::kInvalidValue)
                      << "a handle of another graph";
                  GraphInstantiateParameters instantiate{};
                  GraphExec exec = nullptr;
                  EXPECT_EQ(CU(cuda, cuGraphInstantiateWithParams)(&exec, graph, &instantiate),
                            Result::kInvalidValue);
                  EXPECT_EQ(instantiate.result, kInstantiateHandleUnused);

                  ASSERT_OK(result_of(graph, Node(handle, ConditionalType::kIf, 1)));
                  EXPECT_EQ(result_of(graph, Node(handle, ConditionalType::kIf, 1)),
                            Result::kInvalidValue)
                      << "each node needs a handle of its own";
                  GraphNodeType type{};
                  EXPECT_OK(CU(cuda, cuGraphNodeGetType)(node, &type));
                  EXPECT_EQ(type, GraphNodeType::kConditional);
                  EXPECT_EQ(CU(cuda, cuGraphClone)(&clone, graph), Result::kNotSupported);
                  EXPECT_EQ(CU(cuda, cuGraphAddChildGraphNode)(&node, other, nullptr, 0, graph),
                            Result::kNotSupported);
                }),
      0);
}

TEST_F(ConditionalTest, ABodyHasNoHostFunctions) {
  EXPECT_EQ(InProcess(kNodeOfCuda124,
                      [](const CudaLibrary& cuda) {
                        Graph graph = nullptr;
                        GraphNode host = nullptr;
                        ASSERT_OK(CU(cuda, cuGraphCreate)(&graph, 0));
                        GraphNodeParameters node =
                            Node(NewHandle(cuda, graph, 1), ConditionalType::kIf, 1);
                        ASSERT_OK(Add(cuda, graph, &node));
                        const HostNodeParameters call = {[](void*) {}, nullptr};
                        ASSERT_OK(CU(cuda, cuGraphAddHostNode)(&host, node.conditional.bodies[0],
                                                               nullptr, 0, &call));
                        GraphInstantiateParameters instantiate{};
                        GraphExec exec = nullptr;
                        EXPECT_EQ(
                            CU(cuda, cuGraphInstantiateWithParams)(&exec, graph, &instantiate),
                            Result::kNotSupported);
                        EXPECT_EQ(instantiate.result, kInstantiateOperationNotSupported);
                      }),
            0);
}

}  // namespace
}  // namespace tessera::cuda
