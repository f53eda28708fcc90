// SPDX-License-Identifier: Apache-2.0
// The nodes of a graph and the edges between them.
#include <string.h>

#include <algorithm>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

Result WriteNodes(const std::vector<GraphNode>& found, GraphNode* nodes, size_t* count) {
  if (count == nullptr) return Result::kInvalidValue;
  if (nodes == nullptr) return Put(count, found.size());
  for (size_t i = 0; i < *count; ++i) nodes[i] = i < found.size() ? found[i] : nullptr;
  *count = std::min(*count, found.size());
  return Result::kSuccess;
}

}  // namespace

bool HasPorts(const GraphEdge* edges, size_t count) {
  constexpr GraphEdge kPlain{};
  for (size_t i = 0; edges != nullptr && i < count; ++i) {
    if (memcmp(&edges[i], &kPlain, sizeof(kPlain)) != 0) return true;
  }
  return false;
}

// If `from` was added after `to`, moves `to` behind `from`, so that the nodes stay sorted.
CUDA_EXPORT Result cuGraphAddDependencies(Graph graph, const GraphNode* from, const GraphNode* to,
                                          size_t count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph) || (count != 0 && (from == nullptr || to == nullptr))) {
    return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    const bool in_graph =
        call->graphs().IsNodeOf(graph, from[i]) && call->graphs().IsNodeOf(graph, to[i]);
    if (!in_graph) return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) to[i]->dependencies.push_back(from[i]);
  std::vector<std::unique_ptr<GraphNodeTag>> ordered;
  const auto is_ordered = [&](const GraphNodeTag* node) {
    return std::ranges::any_of(ordered,
                               [&](const auto& candidate) { return candidate.get() == node; });
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::unique_ptr<GraphNodeTag>& node : graph->nodes) {
      if (node == nullptr || !std::ranges::all_of(node->dependencies, is_ordered)) continue;
      ordered.push_back(std::move(node));
      moved = true;
    }
  }
  const bool has_cycle = ordered.size() != graph->nodes.size();
  for (std::unique_ptr<GraphNodeTag>& node : graph->nodes) {
    if (node != nullptr) ordered.push_back(std::move(node));
  }
  graph->nodes = std::move(ordered);
  for (size_t i = 0; has_cycle && i < count; ++i) to[i]->dependencies.pop_back();
  return has_cycle ? Result::kInvalidValue : Result::kSuccess;
}

CUDA_EXPORT Result cuGraphAddDependencies_v2(Graph graph, const GraphNode* from,
                                             const GraphNode* to, const GraphEdge* edges,
                                             size_t count) {
  if (HasPorts(edges, count)) return Result::kNotSupported;
  return cuGraphAddDependencies(graph, from, to, count);
}

CUDA_EXPORT Result cuGraphRemoveDependencies(Graph graph, const GraphNode* from,
                                             const GraphNode* to, size_t count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph) || (count != 0 && (from == nullptr || to == nullptr))) {
    return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    const bool is_edge = call->graphs().IsNodeOf(graph, to[i]) &&
                         std::ranges::count(to[i]->dependencies, from[i]) != 0;
    if (!is_edge) return Result::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) std::erase(to[i]->dependencies, from[i]);
  return Result::kSuccess;
}
CUDA_EXPORT Result cuGraphRemoveDependencies_v2(Graph graph, const GraphNode* from,
                                                const GraphNode* to, const GraphEdge* edges,
                                                size_t count) {
  if (HasPorts(edges, count)) return Result::kInvalidValue;  // no edge of a graph has ports
  return cuGraphRemoveDependencies(graph, from, to, count);
}

CUDA_EXPORT Result cuGraphGetNodes(Graph graph, GraphNode* nodes, size_t* count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  std::vector<GraphNode> all;
  for (const auto& node : graph->nodes) all.push_back(node.get());
  return WriteNodes(all, nodes, count);
}

CUDA_EXPORT Result cuGraphGetRootNodes(Graph graph, GraphNode* nodes, size_t* count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  std::vector<GraphNode> roots;
  for (const auto& node : graph->nodes) {
    if (node->dependencies.empty()) roots.push_back(node.get());
  }
  return WriteNodes(roots, nodes, count);
}

CUDA_EXPORT Result cuGraphNodeGetType(GraphNode node, GraphNodeType* type) {
  CUDA_ENTER(Call, call);
  return call->graphs().IsNode(node) ? Put(type, node->type) : Result::kInvalidValue;
}

CUDA_EXPORT Result cuGraphNodeGetDependencies(GraphNode node, GraphNode* from, size_t* count) {
  CUDA_ENTER(Call, call);
  return call->graphs().IsNode(node) ? WriteNodes(node->dependencies, from, count)
                                     : Result::kInvalidValue;
}

CUDA_EXPORT Result cuGraphNodeGetDependentNodes(GraphNode node, GraphNode* to, size_t* count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node)) return Result::kInvalidValue;
  std::vector<GraphNode> later;
  for (const auto& other : node->graph->nodes) {
    if (std::ranges::count(other->dependencies, node) != 0) later.push_back(other.get());
  }
  return WriteNodes(later, to, count);
}

CUDA_EXPORT Result cuGraphGetEdges(Graph graph, GraphNode* from, GraphNode* to, size_t* count) {
  CUDA_ENTER(Call, call);
  if (count == nullptr || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  std::vector<GraphNode> begins, ends;
  for (const auto& node : graph->nodes) {
    begins.insert(begins.end(), node->dependencies.begin(), node->dependencies.end());
    ends.insert(ends.end(), node->dependencies.size(), node.get());
  }
  if (from == nullptr || to == nullptr) return Put(count, begins.size());
  size_t wanted = *count;
  (void)WriteNodes(begins, from, &wanted);
  return WriteNodes(ends, to, count);
}

// The data of every edge is zero.
CUDA_EXPORT Result cuGraphGetEdges_v2(Graph graph, GraphNode* from, GraphNode* to, GraphEdge* edges,
                                      size_t* count) {
  const Result result = cuGraphGetEdges(graph, from, to, count);
  if (result == Result::kSuccess && edges != nullptr) std::fill_n(edges, *count, GraphEdge{});
  return result;
}
CUDA_EXPORT Result cuGraphNodeGetDependencies_v2(GraphNode node, GraphNode* from, GraphEdge* edges,
                                                 size_t* count) {
  const Result result = cuGraphNodeGetDependencies(node, from, count);
  if (result == Result::kSuccess && edges != nullptr) std::fill_n(edges, *count, GraphEdge{});
  return result;
}
CUDA_EXPORT Result cuGraphNodeGetDependentNodes_v2(GraphNode node, GraphNode* to, GraphEdge* edges,
                                                   size_t* count) {
  const Result result = cuGraphNodeGetDependentNodes(node, to, count);
  if (result == Result::kSuccess && edges != nullptr) std::fill_n(edges, *count, GraphEdge{});
  return result;
}

CUDA_EXPORT Result cuGraphChildGraphNodeGetGraph(GraphNode node, Graph* child) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node) || node->type != GraphNodeType::kGraph) {
    return Result::kInvalidValue;
  }
  return Put(child, node->children[0].get());
}

CUDA_EXPORT Result cuGraphDestroyNode(GraphNode node) {
  UserObjects::DeferredDestroyCalls deferred;
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node)) return Result::kInvalidValue;
  // The driver keeps memory nodes as long as their graph.
  if (node->memory != nullptr) return Result::kNotSupported;
  for (const auto& child : node->children) call->user_objects().Release(*child, &deferred);
  std::vector<std::unique_ptr<GraphNodeTag>>& nodes = node->graph->nodes;
  for (const auto& other : nodes) std::erase(other->dependencies, node);
  std::erase_if(nodes, [node](const auto& candidate) { return candidate.get() == node; });
  return Result::kSuccess;
}

}  // namespace tessera::cuda
