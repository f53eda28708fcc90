// SPDX-License-Identifier: Apache-2.0
// The nodes of graphs: adding them, what they do, and in which order. Memory nodes are in
// graph_memory.cc.
#include <string.h>

#include <algorithm>

#include "src/sim/cuda/copy.h"
#include "src/sim/cuda/driver.h"
#include "src/sim/cuda/graph.h"
#include "src/sim/cuda/launch.h"

namespace tessera::cuda {
namespace {

// What a node will do, as the engine and as the program have it.
struct Planned {
  Command command;
  NodeParameters parameters;
};

// The structure that cuGraphAddKernelNode takes ends before `kernel`.
constexpr size_t kKernelParametersV1 = offsetof(KernelNodeParameters, kernel);

const KernelNodeParameters* Widen(const KernelNodeParameters* v1, KernelNodeParameters* wide) {
  if (v1 == nullptr) return nullptr;
  memcpy(wide, v1, kKernelParametersV1);
  return wide;
}

// Copies the values of the launch, as far as the image says what they are.
std::shared_ptr<const KernelNode> Keep(const Entry& entry, const KernelNodeParameters& parameters) {
  auto node = std::make_shared<KernelNode>();
  node->parameters = parameters;
  const bool by_value = parameters.parameters != nullptr && entry.parameters_known;
  const LaunchBuffer buffer = BufferOf(parameters.extra);
  if (by_value) {
    for (size_t i = 0; i < entry.parameters.size(); ++i) {
      const Parameter& parameter = entry.parameters[i];
      node->bytes.resize(parameter.offset + parameter.size);
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

Result PlanNode(ContextCall& call, const KernelNodeParameters& parameters, Planned* planned) {
  const Function function = parameters.function != nullptr
                                ? parameters.function
                                : reinterpret_cast<Function>(parameters.kernel);
  const Shape shape{{parameters.grid_x, parameters.grid_y, parameters.grid_z},
                    {parameters.block_x, parameters.block_y, parameters.block_z},
                    parameters.shared_bytes};
  const Result result =
      PlanLaunch(call, function, shape, parameters.parameters, parameters.extra, &planned->command);
  if (result != Result::kSuccess) return result;
  planned->parameters = Keep(call->FindFunction(function, call.context())->entry, parameters);
  return Result::kSuccess;
}

Result PlanNode(ContextCall& call, const Memcpy3D& parameters, Planned* planned) {
  BoxCopy copy;
  const Result result = FindBox(call, parameters, &copy);
  planned->parameters = parameters;
  return result == Result::kSuccess ? PlanCopy(call, copy, &planned->command) : result;
}

Result PlanNode(ContextCall& call, const MemsetNodeParameters& parameters, Planned* planned) {
  planned->parameters = parameters;
  return PlanMemset(call, parameters, &planned->command);
}

Result PlanNode(ContextCall&, const HostNodeParameters& parameters, Planned* planned) {
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
  Planned planned;
  const Result result = PlanNode(call, *parameters, &planned);
  if (result != Result::kSuccess) return result;
  auto made = NewNode(TypeOf(*parameters), std::move(planned.command));
  made->parameters = std::move(planned.parameters);
  return call->graphs().AddNode(node, graph, from, count, std::move(made));
}

template <typename Parameters>
Result PlanInto(ContextCall& call, const Parameters& parameters, GraphNodeTag* node) {
  Planned planned;
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
  return PlanInto(call, *parameters, node);
}

// The node of the instance that was made of `origin`. A launch that waits for room keeps the graph
// as it was.
GraphNodeTag* NodeToChange(GraphExec exec, const GraphNodeTag* origin) {
  if (exec->graph.use_count() > 1) {
    std::unique_ptr<GraphTag> clone = Clone(*exec->graph);
    TakeOrigins(*exec->graph, clone.get());
    exec->graph = std::move(clone);
  }
  for (const auto& node : exec->graph->nodes) {
    if (node->origin == origin) return node.get();
  }
  return nullptr;
}

template <typename Parameters>
Result SetInInstance(GraphExec exec, GraphNode origin, const Parameters* parameters) {
  CUDA_ENTER(ContextCall, call);
  if (parameters == nullptr || !call->graphs().IsExec(exec)) return Result::kInvalidValue;
  GraphNodeTag* node = NodeToChange(exec, origin);
  if (node == nullptr || node->type != TypeOf(*parameters)) return Result::kInvalidValue;
  return PlanInto(call, *parameters, node);
}

// Null: it is not a node of this kind, or one that was captured.
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

Result List(const std::vector<GraphNode>& found, GraphNode* nodes, size_t* count) {
  if (count == nullptr) return Result::kInvalidValue;
  if (nodes == nullptr) return Put(count, found.size());
  for (size_t i = 0; i < *count; ++i) nodes[i] = i < found.size() ? found[i] : nullptr;
  *count = std::min(*count, found.size());
  return Result::kSuccess;
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

CUDA_EXPORT Result cuGraphAddChildGraphNode(GraphNode* node, Graph graph, const GraphNode* from,
                                            size_t count, Graph child) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(child)) return Result::kInvalidValue;
  if (child->has_memory()) return Result::kNotSupported;
  auto made = NewNode(GraphNodeType::kGraph);
  made->child = Clone(*child);
  return call->graphs().AddNode(node, graph, from, count, std::move(made));
}

// A node may come after one that was added later; then it moves behind it.
CUDA_EXPORT Result cuGraphAddDependencies(Graph graph, const GraphNode* from, const GraphNode* to,
                                          size_t count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  for (size_t i = 0; i < count; ++i) {
    if (!call->graphs().IsNode(from[i]) || !call->graphs().IsNode(to[i])) {
      return Result::kInvalidValue;
    }
  }
  for (size_t i = 0; i < count; ++i) to[i]->from.push_back(from[i]);
  std::vector<std::unique_ptr<GraphNodeTag>> ordered;
  const auto is_ordered = [&](const GraphNodeTag* node) {
    return std::ranges::any_of(ordered, [&](const auto& one) { return one.get() == node; });
  };
  bool moved = true;
  while (moved) {
    moved = false;
    for (std::unique_ptr<GraphNodeTag>& node : graph->nodes) {
      if (node == nullptr || !std::ranges::all_of(node->from, is_ordered)) continue;
      ordered.push_back(std::move(node));
      moved = true;
    }
  }
  const bool circle = ordered.size() != graph->nodes.size();
  for (std::unique_ptr<GraphNodeTag>& node : graph->nodes) {
    if (node != nullptr) ordered.push_back(std::move(node));
  }
  graph->nodes = std::move(ordered);
  for (size_t i = 0; circle && i < count; ++i) to[i]->from.pop_back();
  return circle ? Result::kInvalidValue : Result::kSuccess;
}

CUDA_EXPORT Result cuGraphGetNodes(Graph graph, GraphNode* nodes, size_t* count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  std::vector<GraphNode> all;
  for (const auto& node : graph->nodes) all.push_back(node.get());
  return List(all, nodes, count);
}

CUDA_EXPORT Result cuGraphGetRootNodes(Graph graph, GraphNode* nodes, size_t* count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  std::vector<GraphNode> roots;
  for (const auto& node : graph->nodes) {
    if (node->from.empty()) roots.push_back(node.get());
  }
  return List(roots, nodes, count);
}

CUDA_EXPORT Result cuGraphNodeGetType(GraphNode node, GraphNodeType* type) {
  CUDA_ENTER(Call, call);
  return call->graphs().IsNode(node) ? Put(type, node->type) : Result::kInvalidValue;
}

CUDA_EXPORT Result cuGraphNodeGetDependencies(GraphNode node, GraphNode* from, size_t* count) {
  CUDA_ENTER(Call, call);
  return call->graphs().IsNode(node) ? List(node->from, from, count) : Result::kInvalidValue;
}

CUDA_EXPORT Result cuGraphNodeGetDependentNodes(GraphNode node, GraphNode* to, size_t* count) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node)) return Result::kInvalidValue;
  std::vector<GraphNode> later;
  for (const auto& other : node->graph->nodes) {
    if (std::ranges::count(other->from, node) != 0) later.push_back(other.get());
  }
  return List(later, to, count);
}

CUDA_EXPORT Result cuGraphGetEdges(Graph graph, GraphNode* from, GraphNode* to, size_t* count) {
  CUDA_ENTER(Call, call);
  if (count == nullptr || !call->graphs().IsGraph(graph)) return Result::kInvalidValue;
  std::vector<GraphNode> begins, ends;
  for (const auto& node : graph->nodes) {
    begins.insert(begins.end(), node->from.begin(), node->from.end());
    ends.insert(ends.end(), node->from.size(), node.get());
  }
  if (from == nullptr || to == nullptr) return Put(count, begins.size());
  size_t wanted = *count;
  (void)List(begins, from, &wanted);
  return List(ends, to, count);
}

CUDA_EXPORT Result cuGraphChildGraphNodeGetGraph(GraphNode node, Graph* child) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node) || node->child == nullptr) return Result::kInvalidValue;
  return Put(child, node->child.get());
}

CUDA_EXPORT Result cuGraphDestroyNode(GraphNode node) {
  CUDA_ENTER(Call, call);
  if (!call->graphs().IsNode(node)) return Result::kInvalidValue;
  // The driver keeps memory nodes as long as their graph.
  if (node->memory != nullptr) return Result::kNotSupported;
  std::vector<std::unique_ptr<GraphNodeTag>>& nodes = node->graph->nodes;
  for (const auto& other : nodes) std::erase(other->from, node);
  std::erase_if(nodes, [node](const auto& one) { return one.get() == node; });
  return Result::kSuccess;
}

}  // namespace tessera::cuda
