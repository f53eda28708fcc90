// SPDX-License-Identifier: Apache-2.0
// The functions of CUDA 12.2 and later that take the parameters of a node of any type, and the
// attributes of kernel nodes. External semaphores and memory operations are not implemented.
#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

constexpr int kLastKernelAttribute = 17;  // in CUDA 13

Result CheckKernelNode(Call& call, GraphNode node) {
  const bool is_kernel = call->graphs().IsNode(node) && node->type == GraphNodeType::kKernel;
  return is_kernel ? Result::kSuccess : Result::kInvalidValue;
}

}  // namespace

CUDA_EXPORT Result cuGraphAddNode(GraphNode* node, Graph graph, const GraphNode* dependencies,
                                  size_t count, GraphNodeParameters* parameters) {
  if (parameters == nullptr) return Result::kInvalidValue;
  switch (parameters->type) {
    case GraphNodeType::kKernel:
      return cuGraphAddKernelNode_v2(node, graph, dependencies, count, &parameters->kernel);
    case GraphNodeType::kMemcpy:
      return cuGraphAddMemcpyNode(node, graph, dependencies, count, &parameters->memcpy.copy,
                                  parameters->memcpy.context);
    case GraphNodeType::kMemset:
      return cuGraphAddMemsetNode(node, graph, dependencies, count, &parameters->memset, nullptr);
    case GraphNodeType::kHost:
      return cuGraphAddHostNode(node, graph, dependencies, count, &parameters->host);
    case GraphNodeType::kGraph:
      return cuGraphAddChildGraphNode(node, graph, dependencies, count, parameters->graph);
    case GraphNodeType::kEmpty:
      return cuGraphAddEmptyNode(node, graph, dependencies, count);
    case GraphNodeType::kWaitEvent:
      return cuGraphAddEventWaitNode(node, graph, dependencies, count, parameters->event);
    case GraphNodeType::kEventRecord:
      return cuGraphAddEventRecordNode(node, graph, dependencies, count, parameters->event);
    case GraphNodeType::kMemAlloc:
      return cuGraphAddMemAllocNode(node, graph, dependencies, count, &parameters->alloc);
    case GraphNodeType::kMemFree:
      return cuGraphAddMemFreeNode(node, graph, dependencies, count, parameters->free);
    case GraphNodeType::kConditional:
      return AddConditionalNode(node, graph, dependencies, count, &parameters->conditional);
  }
  return Result::kNotSupported;
}
CUDA_EXPORT Result cuGraphAddNode_v2(GraphNode* node, Graph graph, const GraphNode* dependencies,
                                     const GraphEdge* edges, size_t count,
                                     GraphNodeParameters* parameters) {
  if (HasPorts(edges, count)) return Result::kNotSupported;
  return cuGraphAddNode(node, graph, dependencies, count, parameters);
}

CUDA_EXPORT Result cuGraphNodeSetParams(GraphNode node, GraphNodeParameters* parameters) {
  if (parameters == nullptr) return Result::kInvalidValue;
  switch (parameters->type) {
    case GraphNodeType::kKernel:
      return cuGraphKernelNodeSetParams_v2(node, &parameters->kernel);
    case GraphNodeType::kMemcpy:
      return cuGraphMemcpyNodeSetParams(node, &parameters->memcpy.copy);
    case GraphNodeType::kMemset:
      return cuGraphMemsetNodeSetParams(node, &parameters->memset);
    case GraphNodeType::kHost:
      return cuGraphHostNodeSetParams(node, &parameters->host);
    case GraphNodeType::kWaitEvent:
      return cuGraphEventWaitNodeSetEvent(node, parameters->event);
    case GraphNodeType::kEventRecord:
      return cuGraphEventRecordNodeSetEvent(node, parameters->event);
    default:
      return Result::kNotSupported;
  }
}

CUDA_EXPORT Result cuGraphExecNodeSetParams(GraphExec exec, GraphNode node,
                                            GraphNodeParameters* parameters) {
  if (parameters == nullptr) return Result::kInvalidValue;
  switch (parameters->type) {
    case GraphNodeType::kKernel:
      return cuGraphExecKernelNodeSetParams_v2(exec, node, &parameters->kernel);
    case GraphNodeType::kMemcpy:
      return cuGraphExecMemcpyNodeSetParams(exec, node, &parameters->memcpy.copy,
                                            parameters->memcpy.context);
    case GraphNodeType::kMemset:
      return cuGraphExecMemsetNodeSetParams(exec, node, &parameters->memset, nullptr);
    case GraphNodeType::kHost:
      return cuGraphExecHostNodeSetParams(exec, node, &parameters->host);
    case GraphNodeType::kGraph:
      return cuGraphExecChildGraphNodeSetParams(exec, node, parameters->graph);
    case GraphNodeType::kWaitEvent:
      return cuGraphExecEventWaitNodeSetEvent(exec, node, parameters->event);
    case GraphNodeType::kEventRecord:
      return cuGraphExecEventRecordNodeSetEvent(exec, node, parameters->event);
    default:
      return Result::kNotSupported;
  }
}

CUDA_EXPORT Result cuGraphKernelNodeGetAttribute(GraphNode node, int id, StreamAttribute* value) {
  CUDA_ENTER(Call, call);
  if (id <= 0 || id > kLastKernelAttribute || value == nullptr) return Result::kInvalidValue;
  const Result result = CheckKernelNode(call, node);
  if (result == Result::kSuccess) *value = node->attributes[id];
  return result;
}
CUDA_EXPORT Result cuGraphKernelNodeSetAttribute(GraphNode node, int id,
                                                 const StreamAttribute* value) {
  CUDA_ENTER(Call, call);
  if (id <= 0 || id > kLastKernelAttribute || value == nullptr) return Result::kInvalidValue;
  const Result result = CheckKernelNode(call, node);
  if (result == Result::kSuccess) node->attributes[id] = *value;
  return result;
}
CUDA_EXPORT Result cuGraphKernelNodeCopyAttributes(GraphNode to, GraphNode from) {
  CUDA_ENTER(Call, call);
  Result result = CheckKernelNode(call, to);
  if (result == Result::kSuccess) result = CheckKernelNode(call, from);
  if (result == Result::kSuccess) to->attributes = from->attributes;
  return result;
}

}  // namespace tessera::cuda
