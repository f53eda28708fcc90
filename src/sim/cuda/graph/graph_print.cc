// SPDX-License-Identifier: Apache-2.0
// cuGraphDebugDotPrint: a graph as text for Graphviz.
#include <stdio.h>

#include <iterator>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

// Names by GraphNodeType. The simulation has no nodes of the types without a name.
constexpr const char* kNodeNames[] = {
    "KERNEL",       "MEMCPY", "MEMSET", "HOST",      "GRAPH",    "EMPTY", "EVENT_WAIT",
    "EVENT_RECORD", nullptr,  nullptr,  "MEM_ALLOC", "MEM_FREE", nullptr, "CONDITIONAL"};
static_assert(std::size(kNodeNames) == size_t(GraphNodeType::kConditional) + 1);

// Prints the graph and the graphs in it, each as a cluster.
void Print(FILE* file, const GraphTag& graph) {
  fprintf(file, "subgraph \"cluster_%p\" {\n", static_cast<const void*>(&graph));
  for (const auto& node : graph.nodes) {
    const void* id = node.get();
    fprintf(file, "\"node_%p\" [label=\"%s\"];\n", id, kNodeNames[size_t(node->type)]);
    for (const void* from : node->dependencies)
      fprintf(file, "\"node_%p\" -> \"node_%p\";\n", from, id);
    for (const auto& child : node->children) Print(file, *child);
  }
  fprintf(file, "}\n");
}

}  // namespace

// The simulation ignores the flags, which ask for more parameters of the nodes.
CUDA_EXPORT Result cuGraphDebugDotPrint(Graph graph, const char* path, unsigned) {
  CUDA_ENTER(Call, call);
  if (path == nullptr || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  FILE* file = fopen(path, "we");
  if (file == nullptr) return Result::kOperatingSystem;
  fprintf(file, "digraph dot {\n");
  Print(file, *graph);
  fprintf(file, "}\n");
  return fclose(file) == 0 ? Result::kSuccess : Result::kOperatingSystem;
}

}  // namespace tessera::cuda
