// SPDX-License-Identifier: Apache-2.0
// Changes of instances (executable graphs): updates from another graph, disabled nodes, new events
// and child graphs. graph_nodes.cc changes other parameters of nodes.
#include <algorithm>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

// The position of a node in its graph, by which two graphs are compared.
size_t PositionOf(const GraphTag& graph, const GraphNodeTag* node) {
  const auto found = std::ranges::find_if(
      graph.nodes, [node](const auto& candidate) { return candidate.get() == node; });
  return size_t(found - graph.nodes.begin());
}

bool HasSameDependencies(const GraphTag& graph, const GraphNodeTag& node, const GraphTag& other,
                         const GraphNodeTag& other_node) {
  return std::ranges::equal(
      node.dependencies, other_node.dependencies,
      [&](const auto* a, const auto* b) { return PositionOf(graph, a) == PositionOf(other, b); });
}

// Why `update` cannot replace the graph of an instance, or kUpdateSuccess if it has the same shape.
GraphUpdateResult Compare(const GraphTag& graph, const GraphTag& update) {
  if (graph.nodes.size() != update.nodes.size()) {
    return {.result = kUpdateTopologyChanged, .error_node = nullptr, .error_from_node = nullptr};
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNodeTag& old = *graph.nodes[i];
    GraphNodeTag* changed = update.nodes[i].get();
    int result = kUpdateSuccess;
    if (old.type != changed->type)
      result = kUpdateNodeTypeChanged;
    else if (!HasSameDependencies(graph, old, update, *changed))
      result = kUpdateTopologyChanged;
    else if (old.memory != nullptr)
      result = kUpdateNotSupported;
    else if (old.children.size() != changed->children.size() ||
             old.condition.type != changed->condition.type)
      result = kUpdateParametersChanged;
    for (size_t k = 0; k < old.children.size() && result == kUpdateSuccess; ++k) {
      result = Compare(*old.children[k], *changed->children[k]).result;
    }
    if (result != kUpdateSuccess) {
      return {.result = result, .error_node = changed, .error_from_node = nullptr};
    }
  }
  return {.result = kUpdateSuccess, .error_node = nullptr, .error_from_node = nullptr};
}

Result SetEvent(GraphNode node, Event event, GraphNodeType type) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node) || node->type != type) return Result::kInvalidValue;
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  node->event = event;
  return Result::kSuccess;
}

Result SetEventInInstance(GraphExec exec, GraphNode origin, Event event, GraphNodeType type) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  GraphNodeTag* node = FindCloneToChange(exec, origin);
  if (node == nullptr || node->type != type) return Result::kInvalidValue;
  node->event = event;
  return Result::kSuccess;
}

bool CanBeDisabled(const GraphNodeTag* node) {
  return node != nullptr &&
         (node->type == GraphNodeType::kKernel || node->type == GraphNodeType::kMemcpy ||
          node->type == GraphNodeType::kMemset);
}

}  // namespace

CUDA_EXPORT Result cuGraphExecUpdate_v2(GraphExec exec, Graph graph, GraphUpdateResult* update) {
  UserObjects::DeferredDestroyCalls deferred;
  CUDA_ENTER(Call, call);
  if (update == nullptr || !call->graphs().IsExec(exec) || !call->graphs().IsGraph(graph)) {
    return Result::kInvalidValue;
  }
  *update = Compare(*exec->graph, *graph);
  if (update->result != kUpdateSuccess) return Result::kGraphExecUpdateFailure;
  std::unique_ptr<GraphTag> updated = Clone(*graph);
  CopyOrigins(*exec->graph, updated.get());
  call->user_objects().Retain(*updated);
  if (HasUserObjects(*exec->graph)) call.WaitForAll();
  if (!call->graphs().IsExec(exec)) {
    call->user_objects().Release(*updated, &deferred);
    return Result::kInvalidValue;
  }
  call->user_objects().Release(*exec->graph, &deferred);
  exec->graph = std::move(updated);
  return Result::kSuccess;
}
CUDA_EXPORT Result cuGraphExecUpdate(GraphExec exec, Graph graph, GraphNode* error_node,
                                     int* result) {
  GraphUpdateResult update{};
  const Result updated = cuGraphExecUpdate_v2(exec, graph, &update);
  PutIf(error_node, update.error_node);
  PutIf(result, update.result);
  return updated;
}

CUDA_EXPORT Result cuGraphExecGetFlags(GraphExec exec, uint64_t* flags) {
  CUDA_ENTER(Call, call);
  return call->graphs().IsExec(exec) ? Put(flags, exec->flags) : Result::kInvalidValue;
}

// The new child graph needs the shape of the old one.
CUDA_EXPORT Result cuGraphExecChildGraphNodeSetParams(GraphExec exec, GraphNode origin,
                                                      Graph child) {
  UserObjects::DeferredDestroyCalls deferred;
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsExec(exec) || !call->graphs().IsGraph(child)) return Result::kInvalidValue;
  if (HasUserObjects(*exec->graph)) call.WaitForAll();
  if (!call->graphs().IsExec(exec) || !call->graphs().IsGraph(child)) return Result::kInvalidValue;
  GraphNodeTag* node = FindCloneToChange(exec, origin);
  if (node == nullptr || node->type != GraphNodeType::kGraph) return Result::kInvalidValue;
  std::unique_ptr<GraphTag>& old = node->children[0];
  if (Compare(*old, *child).result != kUpdateSuccess) return Result::kGraphExecUpdateFailure;
  std::unique_ptr<GraphTag> updated = Clone(*child);
  CopyOrigins(*old, updated.get());
  call->user_objects().Retain(*updated);
  call->user_objects().Release(*old, &deferred);
  old = std::move(updated);
  return Result::kSuccess;
}

CUDA_EXPORT Result cuGraphEventRecordNodeSetEvent(GraphNode node, Event event) {
  return SetEvent(node, event, GraphNodeType::kEventRecord);
}
CUDA_EXPORT Result cuGraphEventWaitNodeSetEvent(GraphNode node, Event event) {
  return SetEvent(node, event, GraphNodeType::kWaitEvent);
}
CUDA_EXPORT Result cuGraphExecEventRecordNodeSetEvent(GraphExec exec, GraphNode node, Event event) {
  return SetEventInInstance(exec, node, event, GraphNodeType::kEventRecord);
}
CUDA_EXPORT Result cuGraphExecEventWaitNodeSetEvent(GraphExec exec, GraphNode node, Event event) {
  return SetEventInInstance(exec, node, event, GraphNodeType::kWaitEvent);
}

// Only kernels, copies and memsets can be disabled.
CUDA_EXPORT Result cuGraphNodeSetEnabled(GraphExec exec, GraphNode origin, unsigned enabled) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  GraphNodeTag* node = FindCloneToChange(exec, origin);
  if (!CanBeDisabled(node)) return Result::kInvalidValue;
  node->enabled = enabled != 0;
  return Result::kSuccess;
}
CUDA_EXPORT Result cuGraphNodeGetEnabled(GraphExec exec, GraphNode origin, unsigned* enabled) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsExec(exec)) return Result::kInvalidValue;
  const GraphNodeTag* node = FindClone(*exec->graph, origin);
  return CanBeDisabled(node) ? Put(enabled, node->enabled) : Result::kInvalidValue;
}

CUDA_EXPORT Result cuGraphNodeFindInClone(GraphNode* found, GraphNode origin, Graph clone) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(clone)) return Result::kInvalidValue;
  GraphNodeTag* node = origin == nullptr ? nullptr : FindClone(*clone, origin);
  return node == nullptr ? Result::kInvalidValue : Put(found, node);
}

}  // namespace tessera::cuda
