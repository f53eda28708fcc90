// SPDX-License-Identifier: Apache-2.0
// Adding and changing the nodes of graphs. Edges are in graph_edges.cc, memory nodes in
// graph_memory.cc.
#include <string.h>

#include <algorithm>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"
#include "src/sim/cuda/memory/copy.h"
#include "src/sim/cuda/stream/launch.h"

namespace tessera::cuda {
namespace {

// The engine's command and the program's parameters of a new node.
struct PlannedGraphNode {
  Command command;
  NodeParameters parameters;
};

// The structure of cuGraphAddKernelNode ends before `kernel`.
constexpr size_t kKernelParametersV1 = offsetof(KernelNodeParameters, kernel);

const KernelNodeParameters* Widen(const KernelNodeParameters* v1, KernelNodeParameters* wide) {
  if (v1 == nullptr) return nullptr;
  memcpy(wide, v1, kKernelParametersV1);
  return wide;
}

// Copies the launch parameters. Their sizes are those of the entry function. Null: a parameter is
// missing.
std::shared_ptr<const KernelNode> CopyParameters(const Entry& entry,
                                                 const KernelNodeParameters& parameters) {
  auto node = std::make_shared<KernelNode>();
  node->parameters = parameters;
  const bool by_value = parameters.parameters != nullptr && entry.parameters_known;
  const LaunchBuffer buffer = BufferOf(parameters.extra);
  if (by_value) {
    size_t end = 0;
    for (const Parameter& parameter : entry.parameters) {
      end = std::max(end, size_t(parameter.offset) + parameter.size);
    }
    node->bytes.resize(end);
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      const Parameter& parameter = entry.parameters[i];
      if (parameters.parameters[i] == nullptr) return nullptr;
      memcpy(node->bytes.data() + parameter.offset, parameters.parameters[i], parameter.size);
    }
    for (const Parameter& parameter : entry.parameters) {
      node->values.push_back(node->bytes.data() + parameter.offset);
    }
    node->parameters.parameters = node->values.data();
  } else if (buffer.bytes != nullptr) {
    const auto* bytes = static_cast<const unsigned char*>(buffer.bytes);
    node->bytes.assign(bytes, bytes + buffer.size);
    node->size = buffer.size;
    const std::initializer_list<void*> extra = {
        reinterpret_cast<void*>(kLaunchParamBuffer), node->bytes.data(),
        reinterpret_cast<void*>(kLaunchParamSize), &node->size, kLaunchParamEnd};
    std::ranges::copy(extra, node->extra);
    node->parameters.extra = node->extra;
  }
  return node;
}

constexpr GraphNodeType TypeOf(const KernelNodeParameters&) { return GraphNodeType::kKernel; }
constexpr GraphNodeType TypeOf(const Memcpy3D&) { return GraphNodeType::kMemcpy; }
constexpr GraphNodeType TypeOf(const MemsetNodeParameters&) { return GraphNodeType::kMemset; }
constexpr GraphNodeType TypeOf(const HostNodeParameters&) { return GraphNodeType::kHost; }

Result PlanNode(ContextCall& call, const KernelNodeParameters& parameters,
                PlannedGraphNode* planned) {
  const Function function = parameters.function != nullptr
                                ? parameters.function
                                : reinterpret_cast<Function>(parameters.kernel);
  const LaunchShape shape{{parameters.grid_x, parameters.grid_y, parameters.grid_z},
                          {parameters.block_x, parameters.block_y, parameters.block_z},
                          parameters.shared_bytes};
  const Result result = PlanLaunch(call, call.context(), function, shape, parameters.parameters,
                                   parameters.extra, &planned->command);
  if (result != Result::kSuccess) return result;
  const std::shared_ptr<const KernelNode> copy =
      CopyParameters(call->FindFunction(function, call.context())->entry, parameters);
  if (copy == nullptr) return Result::kInvalidValue;
  planned->parameters = copy;
  return Result::kSuccess;
}

Result PlanNode(ContextCall& call, const Memcpy3D& parameters, PlannedGraphNode* planned) {
  BoxCopy copy;
  const Result result = ResolveCopy(call, parameters, &copy);
  planned->parameters = parameters;
  return result == Result::kSuccess ? PlanCopy(call, copy, &planned->command) : result;
}

Result PlanNode(ContextCall& call, const MemsetNodeParameters& parameters,
                PlannedGraphNode* planned) {
  planned->parameters = parameters;
  return PlanMemset(call, parameters, &planned->command);
}

Result PlanNode(ContextCall&, const HostNodeParameters& parameters, PlannedGraphNode* planned) {
  if (parameters.function == nullptr) return Result::kInvalidValue;
  planned->parameters = parameters;
  planned->command = {.kind = Command::Kind::kHost,
                      .effect = [parameters] { parameters.function(parameters.data); }};
  return Result::kSuccess;
}

template <typename Parameters>
Result AddNode(GraphNode* node, Graph graph, const GraphNode* from, size_t count,
               const Parameters* parameters) {
  CUDA_ENTER(ContextCall, call);
  if (parameters == nullptr) return Result::kInvalidValue;
  PlannedGraphNode planned;
  const Result result = PlanNode(call, *parameters, &planned);
  if (result != Result::kSuccess) return result;
  auto created = NewNode(TypeOf(*parameters), std::move(planned.command));
  created->parameters = std::move(planned.parameters);
  return call->graphs().AddNode(node, graph, from, count, std::move(created));
}

template <typename Parameters>
Result ReplaceParameters(ContextCall& call, const Parameters& parameters, GraphNodeTag* node) {
  PlannedGraphNode planned;
  const Result result = PlanNode(call, parameters, &planned);
  if (result != Result::kSuccess) return result;
  node->command = std::move(planned.command);
  node->parameters = std::move(planned.parameters);
  return Result::kSuccess;
}

template <typename Parameters>
Result SetNode(GraphNode node, const Parameters* parameters) {
  CUDA_ENTER(ContextCall, call);
  if (parameters == nullptr || !call->graphs().IsNode(node) || node->type != TypeOf(*parameters)) {
    return Result::kInvalidValue;
  }
  return ReplaceParameters(call, *parameters, node);
}

template <typename Parameters>
Result SetInInstance(GraphExec exec, GraphNode origin, const Parameters* parameters) {
  CUDA_ENTER(ContextCall, call);
  if (parameters == nullptr || !call->graphs().IsExec(exec)) return Result::kInvalidValue;
  GraphNodeTag* node = FindCloneToChange(exec, origin);
  if (node == nullptr || node->type != TypeOf(*parameters)) return Result::kInvalidValue;
  return ReplaceParameters(call, *parameters, node);
}

// Null: a node of another kind, or a captured node.
template <typename Parameters>
const Parameters* ParametersOf(Call& call, GraphNode node) {
  return call->graphs().IsNode(node) ? std::get_if<Parameters>(&node->parameters) : nullptr;
}

template <typename Parameters>
Result GetNode(GraphNode node, Parameters* parameters) {
  CUDA_ENTER(Call, call);
  const auto* known = ParametersOf<Parameters>(call, node);
  return known == nullptr ? Result::kInvalidValue : Put(parameters, *known);
}

Result GetKernelNode(GraphNode node, KernelNodeParameters* parameters, size_t bytes) {
  CUDA_ENTER(Call, call);
  const auto* known = ParametersOf<std::shared_ptr<const KernelNode>>(call, node);
  if (known == nullptr || parameters == nullptr) return Result::kInvalidValue;
  memcpy(parameters, &(*known)->parameters, bytes);
  return Result::kSuccess;
}

Result AddEventNode(GraphNode* node, Graph graph, const GraphNode* from, size_t count, Event event,
                    GraphNodeType type) {
  CUDA_ENTER(Call, call);
  if (!call->events().contains(event)) return Result::kInvalidHandle;
  auto created = NewNode(type);
  created->event = event;
  return call->graphs().AddNode(node, graph, from, count, std::move(created));
}

Result GetEvent(GraphNode node, Event* event, GraphNodeType type) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node) || node->type != type) return Result::kInvalidValue;
  return Put(event, node->event);
}

}  // namespace

CUDA_EXPORT Result cuGraphAddKernelNode(GraphNode* node, Graph graph, const GraphNode* from,
                                        size_t count, const KernelNodeParameters* parameters) {
  KernelNodeParameters wide{};
  return AddNode(node, graph, from, count, Widen(parameters, &wide));
}
CUDA_EXPORT Result cuGraphAddKernelNode_v2(GraphNode* node, Graph graph, const GraphNode* from,
                                           size_t count, const KernelNodeParameters* parameters) {
  return AddNode(node, graph, from, count, parameters);
}
CUDA_EXPORT Result cuGraphAddMemcpyNode(GraphNode* node, Graph graph, const GraphNode* from,
                                        size_t count, const Memcpy3D* copy, Context) {
  return AddNode(node, graph, from, count, copy);
}
CUDA_EXPORT Result cuGraphAddMemsetNode(GraphNode* node, Graph graph, const GraphNode* from,
                                        size_t count, const MemsetNodeParameters* parameters,
                                        Context) {
  return AddNode(node, graph, from, count, parameters);
}
CUDA_EXPORT Result cuGraphAddHostNode(GraphNode* node, Graph graph, const GraphNode* from,
                                      size_t count, const HostNodeParameters* parameters) {
  return AddNode(node, graph, from, count, parameters);
}

CUDA_EXPORT Result cuGraphKernelNodeGetParams(GraphNode node, KernelNodeParameters* parameters) {
  return GetKernelNode(node, parameters, kKernelParametersV1);
}
CUDA_EXPORT Result cuGraphKernelNodeGetParams_v2(GraphNode node, KernelNodeParameters* parameters) {
  return GetKernelNode(node, parameters, sizeof(*parameters));
}
CUDA_EXPORT Result cuGraphMemcpyNodeGetParams(GraphNode node, Memcpy3D* copy) {
  return GetNode(node, copy);
}
CUDA_EXPORT Result cuGraphMemsetNodeGetParams(GraphNode node, MemsetNodeParameters* parameters) {
  return GetNode(node, parameters);
}
CUDA_EXPORT Result cuGraphHostNodeGetParams(GraphNode node, HostNodeParameters* parameters) {
  return GetNode(node, parameters);
}

CUDA_EXPORT Result cuGraphKernelNodeSetParams(GraphNode node,
                                              const KernelNodeParameters* parameters) {
  KernelNodeParameters wide{};
  return SetNode(node, Widen(parameters, &wide));
}
CUDA_EXPORT Result cuGraphKernelNodeSetParams_v2(GraphNode node,
                                                 const KernelNodeParameters* parameters) {
  return SetNode(node, parameters);
}
CUDA_EXPORT Result cuGraphMemcpyNodeSetParams(GraphNode node, const Memcpy3D* copy) {
  return SetNode(node, copy);
}
CUDA_EXPORT Result cuGraphMemsetNodeSetParams(GraphNode node,
                                              const MemsetNodeParameters* parameters) {
  return SetNode(node, parameters);
}
CUDA_EXPORT Result cuGraphHostNodeSetParams(GraphNode node, const HostNodeParameters* parameters) {
  return SetNode(node, parameters);
}

CUDA_EXPORT Result cuGraphExecKernelNodeSetParams(GraphExec exec, GraphNode node,
                                                  const KernelNodeParameters* parameters) {
  KernelNodeParameters wide{};
  return SetInInstance(exec, node, Widen(parameters, &wide));
}
CUDA_EXPORT Result cuGraphExecKernelNodeSetParams_v2(GraphExec exec, GraphNode node,
                                                     const KernelNodeParameters* parameters) {
  return SetInInstance(exec, node, parameters);
}
CUDA_EXPORT Result cuGraphExecMemcpyNodeSetParams(GraphExec exec, GraphNode node,
                                                  const Memcpy3D* copy, Context) {
  return SetInInstance(exec, node, copy);
}
CUDA_EXPORT Result cuGraphExecMemsetNodeSetParams(GraphExec exec, GraphNode node,
                                                  const MemsetNodeParameters* parameters, Context) {
  return SetInInstance(exec, node, parameters);
}
CUDA_EXPORT Result cuGraphExecHostNodeSetParams(GraphExec exec, GraphNode node,
                                                const HostNodeParameters* parameters) {
  return SetInInstance(exec, node, parameters);
}

CUDA_EXPORT Result cuGraphAddEmptyNode(GraphNode* node, Graph graph, const GraphNode* from,
                                       size_t count) {
  CUDA_ENTER(Call, call);
  return call->graphs().AddNode(node, graph, from, count, NewNode(GraphNodeType::kEmpty));
}

CUDA_EXPORT Result cuGraphAddEventRecordNode(GraphNode* node, Graph graph, const GraphNode* from,
                                             size_t count, Event event) {
  return AddEventNode(node, graph, from, count, event, GraphNodeType::kEventRecord);
}
CUDA_EXPORT Result cuGraphAddEventWaitNode(GraphNode* node, Graph graph, const GraphNode* from,
                                           size_t count, Event event) {
  return AddEventNode(node, graph, from, count, event, GraphNodeType::kWaitEvent);
}
CUDA_EXPORT Result cuGraphEventRecordNodeGetEvent(GraphNode node, Event* event) {
  return GetEvent(node, event, GraphNodeType::kEventRecord);
}
CUDA_EXPORT Result cuGraphEventWaitNodeGetEvent(GraphNode node, Event* event) {
  return GetEvent(node, event, GraphNodeType::kWaitEvent);
}

CUDA_EXPORT Result cuGraphAddChildGraphNode(GraphNode* node, Graph graph, const GraphNode* from,
                                            size_t count, Graph child) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(child)) return Result::kInvalidValue;
  if (child->has_memory() || HasConditionalNodes(*child)) return Result::kNotSupported;
  auto created = NewNode(GraphNodeType::kGraph);
  created->children.push_back(Clone(*child));
  const GraphTag& clone = *created->children[0];
  const Result result = call->graphs().AddNode(node, graph, from, count, std::move(created));
  if (result == Result::kSuccess) call->user_objects().Retain(clone);
  return result;
}

}  // namespace tessera::cuda
