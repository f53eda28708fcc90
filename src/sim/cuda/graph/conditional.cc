// SPDX-License-Identifier: Apache-2.0
// Conditional nodes: graphs that a launch runs if a condition holds.
#include <algorithm>
#include <iterator>

#include "src/sim/cuda/driver/driver.h"
#include "src/sim/cuda/graph/graph.h"

namespace tessera::cuda {
namespace {

constexpr unsigned kCudaWithSwitch = 12080;  // has kSwitch and a second body of kIf
// CUDA has no maximum. Each body takes host memory, and a program may ask for 4 billion bodies.
constexpr unsigned kMaxBodies = 1 << 16;

bool IsValid(const ConditionalNodeParameters& parameters, unsigned driver) {
  switch (parameters.type) {
    case ConditionalType::kIf:
      return parameters.size == 1 || (parameters.size == 2 && driver >= kCudaWithSwitch);
    case ConditionalType::kWhile:
      return parameters.size == 1;
    case ConditionalType::kSwitch:
      return parameters.size >= 1 && driver >= kCudaWithSwitch;
  }
  return false;
}

constexpr GraphNodeType kTypesInBodies[] = {GraphNodeType::kKernel, GraphNodeType::kMemcpy,
                                            GraphNodeType::kMemset, GraphNodeType::kGraph,
                                            GraphNodeType::kEmpty,  GraphNodeType::kConditional};

bool HasOnlyBodyTypes(const GraphTag& graph) {
  return std::ranges::all_of(graph.nodes, [](const auto& node) {
    return std::ranges::count(kTypesInBodies, node->type) != 0 &&
           std::ranges::all_of(node->children,
                               [](const auto& child) { return HasOnlyBodyTypes(*child); });
  });
}

}  // namespace

int CheckConditionalNodes(const GraphTag& graph) {
  for (const auto& [handle, value] : graph.conditions) {
    if (!HasConditionalNode(graph, handle)) return kInstantiateHandleUnused;
  }
  for (const auto& node : graph.nodes) {
    for (const auto& child : node->children) {
      const bool body = node->type == GraphNodeType::kConditional;
      if (body && !HasOnlyBodyTypes(*child)) return kInstantiateOperationNotSupported;
      if (const int found = CheckConditionalNodes(*child); found != kInstantiateSuccess) {
        return found;
      }
    }
  }
  return kInstantiateSuccess;
}

Result AddConditionalNode(GraphNode* node, Graph graph, const GraphNode* from, size_t count,
                          ConditionalNodeParameters* parameters) {
  CUDA_ENTER(ContextCall, call);
  if (!IsValid(*parameters, call->CudaVersion())) return Result::kInvalidValue;
  const GraphTag* owner = call->graphs().OwnerOf(parameters->handle, graph);
  const bool known = owner != nullptr && !HasConditionalNode(*owner, parameters->handle);
  if (!known || (parameters->context != nullptr && !call->IsContext(parameters->context))) {
    return Result::kInvalidValue;
  }
  if (parameters->size > kMaxBodies) return Result::kOutOfMemory;
  auto created = NewNode(GraphNodeType::kConditional);
  created->condition = {parameters->handle, parameters->type,
                        owner->conditions.at(parameters->handle)};
  for (unsigned i = 0; i < parameters->size; ++i) {
    created->children.push_back(std::make_unique<GraphTag>());
    created->bodies.push_back(created->children.back().get());
  }
  GraphNodeTag* added = created.get();
  const Result result = call->graphs().AddNode(node, graph, from, count, std::move(created));
  if (result == Result::kSuccess) parameters->bodies = added->bodies.data();
  return result;
}

// Without the flag, the value is undefined until a kernel sets it; here it is 0.
CUDA_EXPORT Result cuGraphConditionalHandleCreate(ConditionalHandle* handle, Graph graph,
                                                  Context context, unsigned default_value,
                                                  unsigned flags) {
  CUDA_ENTER(ContextCall, call);
  if (handle == nullptr || flags > kAssignDefault || !call->graphs().IsGraph(graph) ||
      (context != nullptr && !call->IsContext(context))) {
    return Result::kInvalidValue;
  }
  *handle = call->NextId();
  graph->conditions[*handle] = flags == kAssignDefault ? default_value : 0;
  return Result::kSuccess;
}

}  // namespace tessera::cuda
